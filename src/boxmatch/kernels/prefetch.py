"""Memory asked for before it is needed."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload


def prefetch(array: Any, index: Any) -> None:
    """Ask for row `index` of an array to be brought into the cache; it need not exist."""


@intrinsic
def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        structure = context.make_array(signature.args[0])(context, builder, args[0])
        byte_pointer = ir.IntType(8).as_pointer()
        stride = cgutils.unpack_tuple(builder, structure.strides)[0]
        start = builder.bitcast(structure.data, byte_pointer)
        pointer = builder.gep(start, [builder.mul(args[1], stride)])
        flag = ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte_pointer, flag, flag, flag]),
            "llvm.prefetch.p0",
        )
        # read, keep in every level of cache, data
        builder.call(function, [pointer, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


overload(prefetch, strict=False)(lambda array, index: lambda array, index: _prefetch(array, index))
