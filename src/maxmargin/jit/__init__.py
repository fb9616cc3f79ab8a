"""All about compilation: the decorators of compiled code, the structs that it takes, the cache of what was compiled, and the
seconds that it took.
"""

from .decorators import inner, inner_overload, kernel
from .folder import describe_cache
from .stopwatch import announce_compilation, clock, compile_seconds, silence
from .structs import Struct

__all__ = [
    "Struct",
    "announce_compilation",
    "clock",
    "compile_seconds",
    "describe_cache",
    "inner",
    "inner_overload",
    "kernel",
    "silence",
]
