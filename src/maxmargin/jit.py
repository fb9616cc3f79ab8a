"""The two decorators of all compiled code.

`kernel` is for functions called from Python, `inner` for functions called only by kernels (no Python entry is compiled
for them). Division follows IEEE rules, as in NumPy. Kernels take the tuple of a batch's arrays and bind what they need
once, at the top; inner functions take plain arrays, because reading an array out of a tuple counts a reference, and in
an inner loop that costs more than the loop.

Compiled code is cached beside the source, or in the user's cache directory where that cannot be written. Numba looks
only at the file of the kernel itself: after editing an inner function in another file, delete the ``*.nbi`` and
``*.nbc`` files.
"""

from __future__ import annotations

from typing import Any

from numba import njit

# Numba's stubs do not know all of its options.
_njit: Any = njit
_options: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
kernel = _njit(**_options)
inner = _njit(no_cpython_wrapper=True, **_options)
