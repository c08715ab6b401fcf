"""The distinct predicates of many boxes, numbered, and found by a hash table."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from boxmatch.arrays import Int, Int32Array, Int64Array, UInt16Array
from boxmatch.kernels.jit import kernel
from boxmatch.model.axis import ABSENT, LAST
from boxmatch.model.boxes import longer

ALWAYS: Final = 0
"""The number that stands for no predicate at all, so that every key passes."""

_EMPTY: Final = -1


class NumberedPredicates(NamedTuple):
    """Predicate `i` of `used[0]` asks for a key of `attribute[i]` in `low[i] … high[i]`.

    They are found by a hash table, `slots`. None is ever dropped, so an index that lives long
    should begin anew now and then.
    """

    attribute: UInt16Array
    low: Int64Array
    high: Int64Array
    slots: Int32Array
    used: Int64Array


def no_predicates() -> NumberedPredicates:
    """Only `ALWAYS`."""
    ends = np.array([ABSENT]), np.array([LAST])
    slots = np.full(2, _EMPTY, np.int32)
    return NumberedPredicates(np.zeros(1, np.uint16), *ends, slots, np.ones(1, np.int64))


def number(
    predicates: NumberedPredicates, attribute: UInt16Array, low: Int64Array, high: Int64Array
) -> tuple[NumberedPredicates, Int32Array]:
    """The number of each predicate given, and the predicates with those that are new.

    What was given must not be used any more.
    """
    numbers = np.empty(len(attribute), np.int32)
    done = 0
    while True:
        done = _number(predicates, attribute, low, high, numbers, done)
        if done == len(numbers):
            return predicates, numbers
        predicates = _with_room(predicates)


def _with_room(predicates: NumberedPredicates) -> NumberedPredicates:
    room = 2 * int(predicates.used[0]) + 64
    roomier = NumberedPredicates(
        longer(predicates.attribute, room),
        longer(predicates.low, room),
        longer(predicates.high, room),
        np.full(2 * room, _EMPTY, np.int32),
        predicates.used,
    )
    _enter_all(roomier)
    return roomier


@kernel
def mixed(state: np.uint64, word: np.uint64) -> np.uint64:
    """A hash with one more word stirred in."""
    state = (state ^ word) * np.uint64(0x9E3779B97F4A7C15)
    return state ^ (state >> np.uint64(32))


@kernel
def slot_for(state: np.uint64, slots: Int) -> Int:
    """The slot among so many that a hash belongs to."""
    return np.int64(((state & np.uint64(0x7FFFFFFF)) * np.uint64(slots)) >> np.uint64(31))


@kernel
def find(predicates: NumberedPredicates, attribute: Int, low: Int, high: Int) -> Int:
    """The number of a predicate, or -1."""
    return np.int64(predicates.slots[_slot_of(predicates, attribute, low, high)])


@kernel
def _slot_of(predicates: NumberedPredicates, attribute: Int, low: Int, high: Int) -> Int:
    """The slot with the number of a predicate, or else the empty one where it would go."""
    slots = predicates.slots
    state = mixed(mixed(np.uint64(0), np.uint64(attribute)), np.uint64(low))
    slot = slot_for(mixed(state, np.uint64(high)), len(slots))
    while slots[slot] != _EMPTY:
        here = slots[slot]
        if (
            predicates.attribute[here] == attribute
            and predicates.low[here] == low
            and predicates.high[here] == high
        ):
            break
        slot += 1
        if slot == len(slots):
            slot = 0
    return slot


@kernel
def _enter_all(predicates: NumberedPredicates) -> None:
    for i in range(ALWAYS + 1, predicates.used[0]):
        attribute = np.int64(predicates.attribute[i])
        slot = _slot_of(predicates, attribute, predicates.low[i], predicates.high[i])
        predicates.slots[slot] = i


@kernel
def _number(
    predicates: NumberedPredicates,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    numbers: Int32Array,
    done: int,
) -> int:
    """Number predicates from `done` on; return where it had to stop for want of room."""
    for p in range(done, len(numbers)):
        slot = _slot_of(predicates, np.int64(attribute[p]), low[p], high[p])
        if predicates.slots[slot] == _EMPTY:
            new = predicates.used[0]
            if new == len(predicates.attribute):
                return p
            predicates.attribute[new] = attribute[p]
            predicates.low[new] = low[p]
            predicates.high[new] = high[p]
            predicates.slots[slot] = new
            predicates.used[0] += 1
        numbers[p] = predicates.slots[slot]
    return len(numbers)
