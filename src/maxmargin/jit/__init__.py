"""All about compilation: the decorators of compiled code, the structs and records that it takes, the cache of what was compiled,
and the seconds that it took.
"""

from .atomic import atomic_add, atomic_read, atomic_swap, atomic_write, give_way, wait_a_little
from .decorators import inner, inner_overload, kernel, reordering
from .folder import describe_cache
from .memory import prefetch, unowned
from .records import record_type, records
from .stopwatch import announce_compilation, clock, compile_seconds, silence
from .structs import Struct

__all__ = [
    "Struct",
    "announce_compilation",
    "atomic_add",
    "atomic_read",
    "atomic_swap",
    "atomic_write",
    "clock",
    "compile_seconds",
    "describe_cache",
    "give_way",
    "inner",
    "inner_overload",
    "kernel",
    "prefetch",
    "record_type",
    "records",
    "reordering",
    "silence",
    "unowned",
    "wait_a_little",
]
