"""What skipping adds: the false matches to expect, by attribute, counted box by box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from boxmatch.arrays import Float64Array, Int32Array, Int64Array, UInt16Array
from boxmatch.kernels.jit import kernel
from boxmatch.model.boxes import Boxes


@dataclass(frozen=True, eq=False)
class Excess:
    """Matches of one event to expect, in each of some cases of how often predicates hold.

    `added[case, a]` bounds what skipping attribute a adds, and the sum over any set of attributes
    bounds what skipping them all adds. For a box matches falsely only if one of its predicates
    fails, and those that fail are all skipped. Charge the match to the one of them that comes last
    in the order of skipping, so that all later predicates of the box hold: every false match is
    charged once, to a skipped attribute, with a probability of (1 - w) Π w over the later
    predicates. If the first so many of the order are skipped, what they add is exactly their sum.
    Nothing is assumed about which attributes occur together or how many a box has; values are
    taken to be independent from attribute to attribute.

    Both fields are sums over boxes, so parts can be added and taken away.
    """

    true: Float64Array
    added: Float64Array

    @classmethod
    def of(
        cls,
        boxes: Boxes,
        selectivity: Float64Array,
        order: Int64Array,
        subscribers: Int32Array | Int64Array | None = None,
    ) -> Excess:
        """The excess of `boxes`, where `selectivity` says how often predicates hold.

        That is a row for each case, or a single one, with a share for each attribute. `order` names
        the attributes as they are skipped. Boxes of one subscriber, which may overlap, count as
        one: as the likeliest of them where matches are counted, so that these are not too many.
        """
        cases = np.atleast_2d(np.asarray(selectivity, np.float64))
        rank = np.empty(boxes.dimensions, np.int64)
        rank[order] = np.arange(boxes.dimensions)
        weight = np.empty((len(cases), boxes.count))
        added = np.zeros(cases.shape)
        _charge(*boxes[1:], cases, rank, weight, added)
        if subscribers is not None:
            best = np.zeros((len(cases), int(subscribers.max(initial=-1)) + 1))
            for of_case, of_boxes in zip(best, weight, strict=True):
                np.maximum.at(of_case, subscribers, of_boxes)
            weight = best
        return cls(weight.sum(axis=1), added)

    def __add__(self, other: Excess) -> Excess:
        return Excess(self.true + other.true, self.added + other.added)

    def __sub__(self, other: Excess) -> Excess:
        return Excess(self.true - other.true, self.added - other.added)


class ShrinkingExcess:
    """The excess of boxes that are removed over time, in a log that only grows.

    Each removal is looked at once, whoever asks how often. Any number of threads may ask.
    """

    def __init__(
        self,
        boxes: Boxes,
        selectivity: Float64Array,
        order: Int64Array,
        subscribers: Int32Array | None = None,
    ) -> None:
        self._boxes = boxes
        self._selectivity = selectivity
        self._order = order
        self._subscribers = subscribers
        self._whole = Excess.of(boxes, selectivity, order, subscribers)
        self._latest = 0, self._whole

    def without(self, removed: Sequence[int]) -> Excess:
        """What is left without the boxes at `removed`, the log so far; subscribers leave as a
        whole.
        """
        known, excess = self._latest
        if known > len(removed):
            known, excess = 0, self._whole
        if known < len(removed):
            gone = np.array(removed[known:], np.int64)
            subscribers = None if self._subscribers is None else self._subscribers[gone]
            boxes = self._boxes.take(gone)
            excess -= Excess.of(boxes, self._selectivity, self._order, subscribers)
            self._latest = len(removed), excess
        return excess


def rarest_first(frequency: Int64Array) -> Int64Array:
    """The attributes in the order in which they are skipped (Algorithm 1)."""
    return np.argsort(frequency, kind="stable")


@kernel
def _charge(
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    cases: Float64Array,
    rank: Int64Array,
    weight: Float64Array,
    added: Float64Array,
) -> None:
    """Set `weight` to the probability that a box matches; add to `added` what skipping adds."""
    turn = np.empty(16, np.int64)
    for box in range(len(start) - 1):
        first = start[box]
        size = start[box + 1] - first
        if size > len(turn):
            turn = np.empty(2 * size, np.int64)
        for i in range(size):  # sort the predicates, the last to be skipped first
            mine = rank[attribute[first + i]]
            place = i
            while place > 0 and rank[attribute[turn[place - 1]]] < mine:
                turn[place] = turn[place - 1]
                place -= 1
            turn[place] = first + i
        for case in range(len(cases)):
            holds = 1.0
            for i in range(size):
                p = turn[i]
                share = cases[case, attribute[p]]
                if low[p] > high[p]:
                    share = 0.0
                added[case, attribute[p]] += holds * (1.0 - share)
                holds *= share
            weight[case, box] = holds
