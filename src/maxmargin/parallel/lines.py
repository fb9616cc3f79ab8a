"""Arrays whose rows are lines of the cache: threads that write to rows of their own do not wait for each other.

A processor moves memory in lines of 64 bytes. Where two threads write to one line, even to different numbers in it, it travels
from core to core at each write, which takes some hundred times as long as the write.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Numbers of a line.
LINE = 8
#: Processors bring lines in pairs, so that the other one of a pair travels along.
_PAIR = 2 * LINE


def zeros_in_lines(shape: tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
    """Zeros, of 8 bytes each, the first of which is the first of a pair of lines."""
    size = math.prod(shape)
    whole = np.zeros(size + _PAIR, dtype)
    first = -(whole.ctypes.data // 8) % _PAIR
    return whole[first : first + size].reshape(shape)
