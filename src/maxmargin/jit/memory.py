"""What a kernel can tell the processor about the memory that it will read."""

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


def _nothing(array: Any, index: int) -> None:
    """There is nothing to do in plain Python."""


#: ``prefetch(array, index)``: a kernel will soon read there, where it has not been for long. The array is C-contiguous, and the
#: index counts its entries. Nothing is read, so that an index may be out of bounds.
prefetch: Any = _nothing if getattr(numba.config, "DISABLE_JIT", False) else _prefetch
