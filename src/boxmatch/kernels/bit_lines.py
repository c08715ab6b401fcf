"""Lines: 512 bits at a time, held in one vector register.

Numba does not vectorise loops over eight words, so a line is a type of its own: `<8 x i64>` to
LLVM, which picks AVX-512, AVX2 or NEON. Called from plain Python (kernels with the JIT off), the
same functions work on Python integers of 512 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

from boxmatch.kernels.large_pages import large_zeros

LINE_BITS = 512
LINE_WORDS = 8
_MASK = (1 << LINE_BITS) - 1
_EACH_WORD = sum(1 << 64 * word for word in range(LINE_WORDS))

_word = ir.IntType(64)
_vector = ir.VectorType(_word, LINE_WORDS)


def zero_lines(count: int) -> npt.NDArray[np.uint64]:
    """`count` lines that start where a cache line does, so that no load touches two of them."""
    size = LINE_WORDS * 8
    buffer = large_zeros(((count + 1) * size,), np.uint8)
    first = -buffer.ctypes.data % size
    aligned = buffer[first : first + count * size]
    return aligned.view(np.uint64).reshape(count, LINE_WORDS)


def filled_lines(count: int) -> npt.NDArray[np.uint64]:
    """Lines whose first `count` bits are set."""
    bits = np.zeros((count + LINE_BITS - 1) // LINE_BITS * LINE_BITS, np.uint8)
    bits[:count] = 1
    return np.packbits(bits, bitorder="little").view(np.uint64).reshape(-1, LINE_WORDS)


class LineType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Line")


line_type = LineType()


@register_model(LineType)
class _LineModel(models.PrimitiveModel):
    def __init__(self, manager: Any, type_: Any) -> None:
        super().__init__(manager, type_, _vector)


# What kernels call; each has an overload below.


def load_line(lines: Any, row: Any) -> Any:
    """Line `row` of an array of uint64 whose rows, if it has any, are whole lines."""
    return int.from_bytes(lines.reshape(-1, LINE_WORDS)[row].tobytes(), "little")


def store_line(lines: Any, row: Any, line: Any) -> None:
    """Put `line` where `load_line` finds it."""
    lines.reshape(-1, LINE_WORDS)[row] = np.frombuffer(line.to_bytes(64, "little"), np.uint64)


def full_line() -> Any:
    """The line with all bits set."""
    return _MASK


def and_lines(left: Any, right: Any) -> Any:
    return left & right


def or_lines(left: Any, right: Any) -> Any:
    return left | right


def xor_lines(left: Any, right: Any) -> Any:
    return left ^ right


def and_not_line(left: Any, right: Any) -> Any:
    """The bits of `left` that are not in `right`."""
    return left & (right ^ _MASK)


def word_line(word: Any) -> Any:
    """The line that has the same word eight times."""
    return int(word) * _EACH_WORD


def shift_right(line: Any, bits: Any) -> Any:
    """Every word of the line by itself, shifted by fewer than 64 bits."""
    return line >> int(bits) & ((1 << 64 - int(bits)) - 1) * _EACH_WORD


def shift_left(line: Any, bits: Any) -> Any:
    """Every word of the line by itself, shifted by fewer than 64 bits."""
    return (line & ((1 << 64 - int(bits)) - 1) * _EACH_WORD) << int(bits)


def any_bit(line: Any) -> bool:
    return bool(line != 0)


def count_bits(line: Any) -> int:
    return int(line.bit_count())


def trailing_zeros(word: Any) -> int:
    """Position of the lowest set bit of a nonzero word."""
    value = int(word)
    return (value & -value).bit_length() - 1


def count_ones(word: Any) -> int:
    """How many bits of a word are set."""
    return int(word).bit_count()


def write_places(word: Any, base: Any, items: Any, at: Any) -> Any:
    """Write `base` + the place of each of the lowest four set bits to `items[at : at + 4]`.

    Returns the word without these bits. If it has fewer, what is written instead is arbitrary.
    """
    rest = int(word)
    for i in range(4):
        items[at + i] = int(base) + (rest & -rest).bit_length() - 1
        rest &= rest - 1 if rest else 0
    return np.uint64(rest)


def zero_items(array: Any, first: Any) -> Any:
    """Which of 64 items from `first` on are zero, as bits of a word."""
    return sum(
        (np.uint64(1) << np.uint64(i) for i in range(64) if array[first + i] == 0), np.uint64(0)
    )


def count_below(array: Any, first: Any, bound: Any) -> int:
    """How many of eight numbers from `first` on are below a bound."""
    return int(np.count_nonzero(array[first : first + 8] < bound))


def _row_pointer(context: Any, builder: Any, array_type: Any, array: Any, row: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    as_lines = builder.bitcast(data, _vector.as_pointer())
    return builder.gep(as_lines, [row])


@intrinsic
def _load(typing_context: Any, lines: Any, row: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _row_pointer(context, builder, signature.args[0], args[0], args[1])
        return builder.load(pointer, align=8)

    return line_type(lines, types.intp), generate


@intrinsic
def _store(typing_context: Any, lines: Any, row: Any, line: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _row_pointer(context, builder, signature.args[0], args[0], args[1])
        builder.store(args[2], pointer, align=8)
        return context.get_dummy_value()

    return types.void(lines, types.intp, line), generate


@intrinsic
def _full(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(_vector, [-1] * LINE_WORDS)

    return line_type(), generate


def _on_two_lines(emit: Callable[[Any, Any, Any], Any]) -> Any:
    @intrinsic
    def operation(typing_context: Any, left: Any, right: Any) -> Any:
        return line_type(left, right), lambda context, builder, signature, args: emit(
            builder, *args
        )

    return operation


_and = _on_two_lines(lambda builder, left, right: builder.and_(left, right))
_or = _on_two_lines(lambda builder, left, right: builder.or_(left, right))
_xor = _on_two_lines(lambda builder, left, right: builder.xor(left, right))
_and_not = _on_two_lines(lambda builder, left, right: builder.and_(left, builder.not_(right)))


def _same_lanes(builder: Any, vector: Any, item: Any) -> Any:
    """A vector with the same item in all lanes."""
    undefined = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(undefined, item, ir.IntType(32)(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, undefined, lanes)


@intrinsic
def _word_line(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _same_lanes(builder, _vector, args[0])

    return line_type(types.uint64), generate


def _shift(emit: Callable[[Any, Any, Any], Any]) -> Any:
    @intrinsic
    def operation(typing_context: Any, line: Any, bits: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return emit(builder, args[0], _same_lanes(builder, _vector, args[1]))

        return line_type(line, types.int64), generate

    return operation


_shift_right = _shift(lambda builder, line, bits: builder.lshr(line, bits))
_shift_left = _shift(lambda builder, line, bits: builder.shl(line, bits))


def _on_one(result: Any, argument: Any, emit: Callable[[Any, Any], Any]) -> Any:
    @intrinsic
    def operation(typing_context: Any, value: Any) -> Any:
        return result(argument), lambda context, builder, signature, args: emit(builder, args[0])

    return operation


def _emit_any(builder: Any, line: Any) -> Any:
    zero = ir.Constant(_vector, [0] * LINE_WORDS)
    words = builder.bitcast(builder.icmp_signed("!=", line, zero), ir.IntType(LINE_WORDS))
    return builder.icmp_signed("!=", words, ir.IntType(LINE_WORDS)(0))


def _emit_count(builder: Any, line: Any) -> Any:
    for name, result in (("ctpop", _vector), ("vector.reduce.add", _word)):
        function = ir.FunctionType(result, [_vector])
        line = builder.call(
            cgutils.get_or_insert_function(builder.module, function, f"llvm.{name}.v8i64"), [line]
        )
    return line


_any = _on_one(types.boolean, line_type, _emit_any)
_count = _on_one(types.int64, line_type, _emit_count)
_trailing_zeros = _on_one(
    types.int64, types.uint64, lambda builder, word: builder.cttz(word, ir.IntType(1)(1))
)
_count_ones = _on_one(types.int64, types.uint64, lambda builder, word: builder.ctpop(word))


def _compare_items(
    context: Any,
    builder: Any,
    signature: Any,
    args: Any,
    relation: str,
    other: Any,
    count: int = 64,
) -> Any:
    """Compare items of an array with a number; the outcome as bits."""
    item = context.get_data_type(signature.args[0].dtype)
    vector = ir.VectorType(item, count)
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    pointer = builder.bitcast(builder.gep(data, [args[1]]), vector.as_pointer())
    items = builder.load(pointer, align=1)
    others = _same_lanes(builder, vector, other(item))
    return builder.bitcast(builder.icmp_signed(relation, items, others), ir.IntType(count))


@intrinsic
def _write_places(typing_context: Any, word: Any, base: Any, items: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rest, base, _, at = args
        item = context.get_data_type(signature.args[2].dtype)
        data = context.make_array(signature.args[2])(context, builder, args[2]).data
        for i in range(4):
            place = builder.add(base, builder.cttz(rest, ir.IntType(1)(0)))
            pointer = builder.gep(data, [builder.add(at, _word(i))])
            builder.store(builder.trunc(place, item), pointer)
            rest = builder.and_(rest, builder.sub(rest, _word(1)))
        return rest

    return types.uint64(types.uint64, types.int64, items, types.int64), generate


@intrinsic
def _zero_items(typing_context: Any, array: Any, first: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _compare_items(context, builder, signature, args, "==", lambda item: item(0))

    return types.uint64(array, types.intp), generate


@intrinsic
def _count_below(typing_context: Any, array: Any, first: Any, bound: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        below = _compare_items(
            context, builder, signature, args, "<", lambda item: args[2], LINE_WORDS
        )
        return builder.zext(builder.ctpop(below), _word)

    return types.int64(array, types.intp, array.dtype), generate


# `strict=False`: the annotations of the function and of its implementation differ.
for _function, _implementation in (
    (load_line, lambda lines, row: _load(lines, row)),
    (store_line, lambda lines, row, line: _store(lines, row, line)),
    (full_line, lambda: _full()),
    (and_lines, lambda left, right: _and(left, right)),
    (or_lines, lambda left, right: _or(left, right)),
    (xor_lines, lambda left, right: _xor(left, right)),
    (and_not_line, lambda left, right: _and_not(left, right)),
    (word_line, lambda word: _word_line(word)),
    (shift_right, lambda line, bits: _shift_right(line, bits)),
    (shift_left, lambda line, bits: _shift_left(line, bits)),
    (count_below, lambda array, first, bound: _count_below(array, first, bound)),
    (any_bit, lambda line: _any(line)),
    (count_bits, lambda line: _count(line)),
    (trailing_zeros, lambda word: _trailing_zeros(word)),
    (count_ones, lambda word: _count_ones(word)),
    (write_places, lambda word, base, items, at: _write_places(word, base, items, at)),
    (zero_items, lambda array, first: _zero_items(array, first)),
):
    # A name for each: kernels from the cache take functions of one name and signature for the same.
    _implementation.__qualname__ = f"{_function.__name__}_compiled"
    overload(_function, strict=False)(
        lambda *arguments, _implementation=_implementation: _implementation
    )
