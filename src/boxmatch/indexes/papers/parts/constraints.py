"""Constraints: predicates taken apart into comparisons with one key each.

An interval is `>= low` and `<= high`, or `= low` if both are the same. Sides that every value
meets need no constraint, though something has to be left that an absent value does not meet. An
interval that takes absent values is a constraint of its own kind, "absent, or `<= high`", so that
nothing else has to be looked at when an event lacks the attribute.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.arrays import Int32Array, Int64Array
from boxmatch.indexes.papers.parts.portions import OwnedPredicates
from boxmatch.kernels.jit import kernel
from boxmatch.model.axis import ABSENT, FIRST, LAST

AT_LEAST = 0
AT_MOST = 1
EQUAL = 2
ABSENT_OR_AT_MOST = 3
OPERATORS = 4

_NONE = -1
_OPERATOR_BITS = 2
GROUP_BITS = 18
"""Bits of a code below the group: sixteen for the attribute, two for the operator."""


class Constraints(NamedTuple):
    """Box `box[i]` compares with `key[i]`, in the way that `code[i]` says.

    A code is `group << GROUP_BITS | attribute << 2 | operator`.
    """

    code: Int64Array
    key: Int64Array
    box: Int32Array


def constraints_of(predicates: OwnedPredicates, group: Int64Array | None = None) -> Constraints:
    """The constraints of predicates, in the group of each predicate (0 unless given)."""
    if group is None:
        group = np.zeros(len(predicates.box), np.int64)
    most = 2 * len(predicates.box)
    code, key, box = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int32)
    end = _list(predicates, group, Constraints(code, key, box))
    return Constraints(code[:end], key[:end], box[:end])


@kernel
def _low_operator(low: int, high: int) -> int:
    if low in (ABSENT, high) or (low == FIRST and high != LAST):
        return _NONE
    return AT_LEAST


@kernel
def _high_operator(low: int, high: int) -> int:
    if high == LAST and low != high:
        return _NONE
    if low == ABSENT:
        return ABSENT_OR_AT_MOST
    return EQUAL if low == high else AT_MOST


@kernel
def count_constraints(start: Int64Array, low: Int64Array, high: Int64Array) -> Int64Array:
    """How many constraints each box has."""
    counts = np.zeros(len(start) - 1, np.int64)
    for row in range(len(counts)):
        for p in range(start[row], start[row + 1]):
            counts[row] += _low_operator(low[p], high[p]) != _NONE
            counts[row] += _high_operator(low[p], high[p]) != _NONE
    return counts


@kernel
def _list(predicates: OwnedPredicates, group: Int64Array, constraints: Constraints) -> int:
    """Write all constraints; return how many."""
    end = 0
    for p in range(len(predicates.box)):
        low = predicates.low[p]
        high = predicates.high[p]
        attribute = np.int64(predicates.attribute[p])
        code = (group[p] << GROUP_BITS) | (attribute << _OPERATOR_BITS)
        for operator, key in ((_low_operator(low, high), low), (_high_operator(low, high), high)):
            if operator != _NONE:
                constraints.code[end] = code | operator
                constraints.key[end] = key
                constraints.box[end] = predicates.box[p]
                end += 1
    return end
