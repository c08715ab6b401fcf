"""Selectivity: the share of events that satisfy a predicate (w in the Ada-REIN paper)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boxmatch.arrays import Float64Array, Int64Array
from boxmatch.model.axis import FIRST, LAST
from boxmatch.model.box_kernels import count_attributes
from boxmatch.model.boxes import Boxes

_SAMPLE = 1_024
"""Predicates of an attribute that are compared with each other."""

_CAUTION = 0.75
"""What is taken for granted of the share found: events also fall where fewer people ask."""

_DOUBT = 8
"""Failures that every attribute starts with, so that a handful of predicates proves little."""


def measure_selectivity(boxes: Boxes, points: Int64Array) -> float:
    """The share of `points` that satisfy a predicate, on average over all predicates."""
    frequency = count_attributes(boxes.attribute, boxes.dimensions)
    shares = measure_by_attribute(boxes, points)
    return float(shares @ frequency / max(1, frequency.sum()))


def measure_by_attribute(boxes: Boxes, points: Int64Array) -> Float64Array:
    """The share of `points` that satisfy a predicate of each attribute; 0 where there is none."""
    shares = np.zeros(boxes.dimensions)
    if len(points) == 0:
        return shares
    for attribute, mine in _by_attribute(boxes):
        inside = _inside(boxes.low[mine], boxes.high[mine], points[:, attribute])
        shares[attribute] = inside.mean() / len(points)
    return shares


def estimate_by_attribute(boxes: Boxes) -> Float64Array:
    """A cautious guess, for each attribute, of the share of events that satisfy a predicate.

    Events are not known here. Subscribers ask for what happens, so an event's value is taken to be
    an end of some other predicate of the same attribute (an end that is a value: open ones are
    not). Attributes of which next to nothing is known are taken to hold hardly ever. Nothing here
    can know that events lack an attribute, or that all ask for what seldom happens: then measure.
    """
    shares = np.zeros(boxes.dimensions)
    for attribute, mine in _by_attribute(boxes):
        some = mine[:: -(-len(mine) // _SAMPLE)]
        low, high = boxes.low[some], boxes.high[some]
        lows = low[(low == high) | ((low > FIRST) & (low < high))]
        highs = high[(low == high) | ((high < LAST) & (low < high))]
        values = np.concatenate([lows, highs])
        # A predicate always holds its own ends, which say nothing.
        inside = int(_inside(low, high, values).sum()) - len(values)
        pairs = (len(some) - 1) * len(values)
        shares[attribute] = _CAUTION * inside / (pairs + _DOUBT)
    return shares


def plausible(estimate: Float64Array) -> Float64Array:
    """An estimate from below, and two cases in which it was too low by far, one in each row.

    With boxes of one size a share that is too small errs on the safe side. With boxes of many sizes
    it need not: the smaller the shares, the less the long boxes count, and it may be they that
    lose their predicates. So whoever has only an estimate looks at higher shares as well.
    """
    return np.stack([estimate, estimate**0.5, estimate**0.25])


def _inside(low: Int64Array, high: Int64Array, values: Int64Array) -> Int64Array:
    """How many of the values each interval holds."""
    ordered = np.sort(values)
    below = np.searchsorted(ordered, low, side="left")
    inside: Int64Array = np.maximum(np.searchsorted(ordered, high, side="right") - below, 0)
    return inside


def _by_attribute(boxes: Boxes) -> Iterator[tuple[int, Int64Array]]:
    """The attributes that have predicates, and which these are."""
    frequency = count_attributes(boxes.attribute, boxes.dimensions)
    order = np.argsort(boxes.attribute, kind="stable")
    ends = np.cumsum(frequency)
    for attribute in np.flatnonzero(frequency).tolist():
        yield attribute, order[ends[attribute] - frequency[attribute] : ends[attribute]]
