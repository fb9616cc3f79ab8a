"""The first run on a machine: saying once that kernels are being compiled, and compiling on two cores.

Numba keeps compiled kernels beside the source (``__pycache__``), in ``NUMBA_CACHE_DIR``, or in the user's cache
directory; an index file ``soft_visits.KERNEL-LINE.pyVERSION.nbi`` of the solver's kernels says that this machine has
compiled before.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_announced = False


def kernels_are_cached() -> bool:
    """Whether kernels of the solver are kept on this machine for this version of Python, or are not compiled at all."""
    import maxmargin

    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return True
    pattern = f"soft_visits.*.py{sys.version_info.major}{sys.version_info.minor}.nbi"
    # Where the variable is set, Numba looks nowhere else.
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if not chosen and any((Path(maxmargin.__file__).parent / "solvers" / "__pycache__").glob(pattern)):
        return True
    folder = chosen or _user_cache()
    # Numba makes one folder a package in there, named by the package's own folder and a hash.
    return folder is not None and any(Path(folder).glob(f"solvers_*/{pattern}"))


def announce_compilation() -> None:
    """Say on the standard error, once a process, that kernels are being compiled; nothing if they are there."""
    global _announced
    if _announced or kernels_are_cached():
        return
    _announced = True
    print("Compiling kernels for this machine; they are kept for next time.", file=sys.stderr, flush=True)


def compile_aside() -> None:
    """Compile what the solver needs later in a second process, which ends with this one at the latest."""
    if (os.cpu_count() or 1) < 2 or kernels_are_cached():
        return
    with contextlib.suppress(OSError):
        aside = subprocess.Popen(
            [sys.executable, "-m", "maxmargin.solvers.compiling"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        atexit.register(aside.kill)


def _user_cache() -> str | None:
    try:
        from numba.misc import appdirs
    except ImportError:
        return None
    directory: Any = appdirs
    return str(directory.user_cache_dir(appname="numba", appauthor=False))
