"""The order of the tests: files that take long come first, so that no process is left with one of them at the end."""

from __future__ import annotations

from pathlib import Path

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
    # Otherwise pytest-xdist begins with the files that have the most tests.
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items):
    def place(item):
        name = item.path.relative_to(HERE).as_posix()
        return next((k for k, long in enumerate(LONG) if name == long or name.startswith(f"{long}/")), len(LONG))

    items.sort(key=place)
