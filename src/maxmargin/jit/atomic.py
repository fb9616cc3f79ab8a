"""Numbers that several kernels change at the same time: an array of int64 that threads share, and what may be done to its entries.

The array is C-contiguous, and an index counts its entries, whatever its shape.

Each call is one step that no other thread sees half done, and memory is in order around it: what a thread wrote before it wrote
or added to a number, another thread that reads the outcome sees. (A thread that writes one number and reads another may read what
was there before its own write is seen; what adds or swaps waits for that.) `wait_a_little` is for loops that look at such a number
again and again.
"""

from __future__ import annotations

import os
import platform
import time
from threading import Lock
from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

_HAS_PAUSE = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
_lock = Lock()


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """The address of the entry that is meant."""
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    return builder.gep(data, [arguments[1]])


@intrinsic
def _read(typing_context: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_place(context, builder, signature, arguments), "acquire", 8)

    return types.int64(array, types.int64), generate


@intrinsic
def _write(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[2], _place(context, builder, signature, arguments), "release", 8)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


@intrinsic
def _add(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _place(context, builder, signature, arguments), arguments[2], "seq_cst")

    return types.int64(array, types.int64, types.int64), generate


@intrinsic
def _swap(typing_context: Any, array: Any, index: Any, expected: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature, arguments)
        outcome = builder.cmpxchg(place, arguments[2], arguments[3], "seq_cst", "seq_cst")
        return builder.extract_value(outcome, 1)

    return types.boolean(array, types.int64, types.int64, types.int64), generate


@intrinsic
def _pause(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _HAS_PAUSE:
            name = "llvm.x86.sse2.pause"
            function = builder.module.globals.get(name)
            if function is None:
                function = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), []), name)
            builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _give_way(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if os.name == "posix":
            name = "sched_yield"
            function = builder.module.globals.get(name)
            if function is None:
                function = ir.Function(builder.module, ir.FunctionType(ir.IntType(32), []), name)
            builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), generate


def _plain_read(array: Any, index: int) -> int:
    return int(array.reshape(-1)[index])


def _plain_write(array: Any, index: int, value: int) -> None:
    array.reshape(-1)[index] = value


def _plain_add(array: Any, index: int, value: int) -> int:
    with _lock:
        before = int(array.reshape(-1)[index])
        array.reshape(-1)[index] += value
    return before


def _plain_swap(array: Any, index: int, expected: int, value: int) -> bool:
    with _lock:
        same = bool(array.reshape(-1)[index] == expected)
        if same:
            array.reshape(-1)[index] = value
    return same


def _plain_pause() -> None:
    pass


def _plain_give_way() -> None:
    time.sleep(0)


_PLAIN = getattr(numba.config, "DISABLE_JIT", False)
#: ``atomic_read(array, index)``, ``atomic_write(array, index, value)``; ``atomic_add(array, index, value)`` returns what was there
#: before; ``atomic_swap(array, index, expected, value)`` writes the value if it finds what is expected, and says whether it did.
atomic_read: Any = _plain_read if _PLAIN else _read
atomic_write: Any = _plain_write if _PLAIN else _write
atomic_add: Any = _plain_add if _PLAIN else _add
atomic_swap: Any = _plain_swap if _PLAIN else _swap
#: ``wait_a_little()``: some cycles in which the other thread of a core has it for itself.
wait_a_little: Any = _plain_pause if _PLAIN else _pause
#: ``give_way()``: let another thread run on this core, if one waits for it.
give_way: Any = _plain_give_way if _PLAIN else _give_way
