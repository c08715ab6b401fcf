"""Lines of 512 bits against Python integers, compiled and not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmatch.kernels import bit_lines as lines
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.prefetch import prefetch

FULL = (1 << 512) - 1

# Random bits, few bits, whole words, nothing and everything.
lines_of_bits = st.one_of(
    st.integers(0, FULL),
    st.lists(st.integers(0, 511), max_size=4).map(lambda bits: sum({1 << bit for bit in bits})),
    st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1]), min_size=8, max_size=8).map(
        lambda words: sum(word << 64 * place for place, word in enumerate(words))
    ),
    st.sampled_from([0, 1, 1 << 511, FULL]),
)


def stored(*values: int) -> Any:
    return np.frombuffer(b"".join(v.to_bytes(64, "little") for v in values), np.uint64).reshape(
        -1, 8
    )


def number(words: Any) -> int:
    return sum(int(word) << 64 * place for place, word in enumerate(words.tolist()))


# One kernel around each operation: a line exists only inside compiled code.


def _copy(source: Any, row: int, target: Any, to: int) -> None:
    lines.store_line(target, to, lines.load_line(source, row))


def _full(target: Any) -> None:
    lines.store_line(target, 0, lines.full_line())


def _and(source: Any, target: Any) -> None:
    line = lines.and_lines(lines.load_line(source, 0), lines.load_line(source, 1))
    lines.store_line(target, 0, line)


def _or(source: Any, target: Any) -> None:
    line = lines.or_lines(lines.load_line(source, 0), lines.load_line(source, 1))
    lines.store_line(target, 0, line)


def _and_not(source: Any, target: Any) -> None:
    line = lines.and_not_line(lines.load_line(source, 0), lines.load_line(source, 1))
    lines.store_line(target, 0, line)


def _xor(source: Any, target: Any) -> None:
    line = lines.xor_lines(lines.load_line(source, 0), lines.load_line(source, 1))
    lines.store_line(target, 0, line)


def _right(source: Any, bits: int, target: Any) -> None:
    lines.store_line(target, 0, lines.shift_right(lines.load_line(source, 0), bits))


def _left(source: Any, bits: int, target: Any) -> None:
    lines.store_line(target, 0, lines.shift_left(lines.load_line(source, 0), bits))


def _same(words: Any, place: int, target: Any) -> None:
    lines.store_line(target, 0, lines.word_line(words[place]))


def _below(numbers: Any, first: int, bound: int) -> int:
    return lines.count_below(numbers, first, bound)


def _any(source: Any) -> bool:
    return lines.any_bit(lines.load_line(source, 0))


def _count(source: Any) -> int:
    return lines.count_bits(lines.load_line(source, 0))


def _prefetch(source: Any, row: int) -> int:
    prefetch(source, row)
    return 1


def _trailing(words: Any, place: int) -> int:
    return lines.trailing_zeros(words[place])


class Operations:
    def __init__(self, wrap: Any) -> None:
        self.copy, self.full, self.both, self.either = map(wrap, (_copy, _full, _and, _or))
        self.left_only, self.any, self.count = map(wrap, (_and_not, _any, _count))
        self.prefetch, self.trailing = map(wrap, (_prefetch, _trailing))
        self.differing, self.right, self.left = map(wrap, (_xor, _right, _left))
        self.same, self.below = map(wrap, (_same, _below))


@pytest.fixture(params=["compiled", "plain"], scope="module")
def run(request: pytest.FixtureRequest) -> Operations:
    return Operations(kernel if request.param == "compiled" else lambda function: function)


@given(values=st.lists(lines_of_bits, min_size=1, max_size=5), data=st.data())
def test_load_and_store(run: Operations, values: list[int], data: st.DataObject) -> None:
    row, to = (data.draw(st.integers(0, len(values) - 1)) for _ in range(2))
    target = stored(*[5] * len(values)).copy()
    run.copy(stored(*values).copy(), row, target, to)
    wanted = [5] * len(values)
    wanted[to] = values[row]
    assert [number(line) for line in target] == wanted


@given(left=lines_of_bits, right=lines_of_bits)
def test_two_lines(run: Operations, left: int, right: int) -> None:
    source, target = stored(left, right).copy(), np.zeros((1, 8), np.uint64)
    run.both(source, target)
    assert number(target[0]) == left & right
    run.either(source, target)
    assert number(target[0]) == left | right
    run.left_only(source, target)
    assert number(target[0]) == left & ~right
    run.differing(source, target)
    assert number(target[0]) == left ^ right
    assert [number(line) for line in source] == [left, right]


@given(value=lines_of_bits, bits=st.integers(0, 63))
def test_shifts_of_every_word(run: Operations, value: int, bits: int) -> None:
    source, target = stored(value).copy(), np.zeros((1, 8), np.uint64)
    run.right(source, bits, target)
    assert target[0].tolist() == [int(word) >> bits for word in source[0]]
    run.left(source, bits, target)
    assert target[0].tolist() == [int(word) << bits & (2**64 - 1) for word in source[0]]


@given(word=st.integers(0, 2**64 - 1))
def test_a_line_of_one_word(run: Operations, word: int) -> None:
    target = np.zeros((1, 8), np.uint64)
    run.same(np.array([5, word], np.uint64), 1, target)
    assert target[0].tolist() == [word] * 8


@given(
    numbers=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=8, max_size=8),
    bound=st.integers(-(2**63), 2**63 - 1),
)
def test_count_below(run: Operations, numbers: list[int], bound: int) -> None:
    array = np.array([0, *numbers], np.int64)
    assert run.below(array, 1, bound) == sum(number < bound for number in numbers)


@given(value=lines_of_bits)
def test_one_line(run: Operations, value: int) -> None:
    source = stored(value).copy()
    assert run.any(source) == (value != 0)
    assert run.count(source) == value.bit_count()


def test_every_single_bit_counts(run: Operations) -> None:
    for bit in range(512):
        source = stored(1 << bit).copy()
        assert run.any(source)
        assert run.count(source) == 1


def test_full_line(run: Operations) -> None:
    target = np.zeros((1, 8), np.uint64)
    run.full(target)
    assert number(target[0]) == FULL


@given(value=st.integers(1, 2**64 - 1) | st.integers(0, 63).map(lambda bit: 1 << bit))
def test_trailing_zeros(run: Operations, value: int) -> None:
    place = run.trailing(np.array([7, value], np.uint64), 1)
    assert place == (value & -value).bit_length() - 1


def test_fetching_what_does_not_exist_is_harmless(run: Operations) -> None:
    for array in (np.zeros((2, 8), np.uint64), np.zeros(3, np.int64), np.zeros(0, np.uint16)):
        for row in (0, 1, 10_000_000, -10_000_000):
            assert run.prefetch(array, row) == 1
