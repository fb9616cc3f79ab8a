"""What a kernel can say of the memory that it will read: to the processor, and to Numba."""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

_BYTE, _INT = ir.IntType(8).as_pointer(), ir.IntType(32)


@intrinsic
def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), _BYTE)
        name = "llvm.prefetch.p0i8"
        function = builder.module.globals.get(name)
        if function is None:
            function = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [_BYTE, _INT, _INT, _INT]), name)
        # To read it; into all caches; data.
        builder.call(function, [place, _INT(0), _INT(3), _INT(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def _unowned(typing_context: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = arguments[0]
        for place in range(2):
            found = builder.insert_value(found, found.type.elements[place](None), place)
        return found

    return array(array), generate


def _same(array: Any) -> Any:
    return array


def _nothing(array: Any, index: int) -> None:
    """There is nothing to do in plain Python."""


#: ``prefetch(array, index)``: a kernel will soon read there, where it has not been for long. The array is C-contiguous, and the
#: index counts its entries. Nothing is read, so that an index may be out of bounds.
prefetch: Any = _nothing if getattr(numba.config, "DISABLE_JIT", False) else _prefetch
#: ``unowned(array)``: an array that Python gave to a kernel, without its count of references. Numba counts a reference at each
#: call that takes an array and at each view of it, in memory that all threads share, which then wait for each other. Python has
#: its own reference for as long as the kernel runs; a kernel's own arrays have nobody else, and must be counted.
unowned: Any = _same if getattr(numba.config, "DISABLE_JIT", False) else _unowned
