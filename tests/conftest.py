"""The order of the tests: files that take long come first, so that no process is left with one of them at the end.

A test that hangs ends its process, with the stacks of all threads, and the others go on (pytest-xdist). Signals that tests send
do what they do by default, whatever the shell that started them says.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from pathlib import Path

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

#: Seconds after which a test hangs; the longest takes 15.
HANGS = 300

HERE = Path(__file__).parent
#: Files and folders by seconds a test, the longest first; all others come after them.
LONG = (
    "solvers/test_battery.py",
    "documentation/test_pages.py",
    "solvers/test_theorems.py",
    "cli/test_compile.py",
    "cli/test_reproduce.py",
    "test_jit.py",
    "solvers/cutting_planes",
    "solvers/oracles",
    "solvers/soft",
    "estimators/test_kernels.py",
    "estimators/test_sklearn_conventions.py",
    "experiments",
    "dask_extra",
    "solvers",
    "cli",
    "estimators",
)


def pytest_configure(config):
    # Shells start what runs in the background with Ctrl-C ignored, and nohup SIGHUP.
    defaults = {"SIGINT": signal.default_int_handler, "SIGTERM": signal.SIG_DFL, "SIGHUP": signal.SIG_DFL}
    for name, default in defaults.items():
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)
    # Otherwise pytest-xdist begins with the files that have the most tests.
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    # The standard error is captured during tests; pytest keeps the one from before for its own use of this module.
    file = item.config.stash.get(fault_handler_stderr_fd_key, sys.__stderr__)
    faulthandler.dump_traceback_later(HANGS, exit=True, file=file)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_collection_modifyitems(items):
    def place(item):
        name = item.path.relative_to(HERE).as_posix()
        return next((k for k, long in enumerate(LONG) if name == long or name.startswith(f"{long}/")), len(LONG))

    items.sort(key=place)
