"""Boxes and points, and which holds which, worked out the obvious way.

Shares nothing with the indexes: a box is a list of `(attribute, low, high)`, a point a list of
keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from boxmatch.indexes.base import Index, Lines
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes

Rows = Sequence[Sequence[tuple[int, int, int]]]
Points = npt.NDArray[np.int64]

NEVER = (FIRST, ABSENT)
"""The one empty interval that indexes have to bear."""


class Case(NamedTuple):
    boxes: Boxes
    points: Points


# --- truth -----------------------------------------------------------------------------------


def holders(rows: Rows, points: Sequence[Sequence[int]]) -> list[set[int]]:
    """For each point, the rows of the boxes that hold it."""
    return [
        {
            number
            for number, row in enumerate(rows)
            if all(low <= point[attribute] <= high for attribute, low, high in row)
        }
        for point in points
    ]


def holders_of_many(boxes: Boxes, points: Points) -> list[set[int]]:
    """The same for more boxes than plain Python likes: a box holds if no predicate fails."""
    row = np.repeat(np.arange(boxes.count), np.diff(boxes.start))
    found = []
    for point in points:
        keys = point[boxes.attribute]
        failed = (keys < boxes.low) | (keys > boxes.high)
        misses = np.bincount(row[failed], minlength=boxes.count)
        found.append(set(np.flatnonzero(misses == 0).tolist()))
    return found


def bits(alive: npt.NDArray[np.bool_]) -> Lines:
    """One bit per position, in lines of 512."""
    words = np.zeros((len(alive) + 511) // 512 * 8, np.uint64)
    for position in np.flatnonzero(alive).tolist():
        words[position // 64] |= np.uint64(1 << position % 64)
    return words.reshape(-1, 8)


# --- comparison ------------------------------------------------------------------------------


def check_order(index: Index, boxes: Boxes, order: npt.NDArray[np.int64] | None) -> list[int]:
    """`order` is a permutation and `index.boxes` are the boxes in it; returns it as a list."""
    rows = list(range(boxes.count)) if order is None else order.tolist()
    assert sorted(rows) == list(range(boxes.count))
    stored = index.boxes
    assert stored.count == boxes.count
    assert stored.dimensions == boxes.dimensions
    for position, row in enumerate(rows):
        assert stored.row(position) == boxes.row(row)
    return rows


def check_answers(
    index: Index,
    order: list[int],
    points: Points,
    expected: list[set[int]],
    alive: npt.NDArray[np.bool_] | None = None,
    singles: int = 20,
) -> None:
    """`match`, `match_one` and `count` find exactly the `expected` rows that are alive."""
    lines = None if alive is None else bits(alive)
    if alive is not None:
        living = {row for position, row in enumerate(order) if alive[position]}
        expected = [rows & living for rows in expected]
    found = index.match(points, lines)
    assert len(found.counts) == len(points)
    assert int(found.counts.sum()) == len(found.positions)
    ends = np.cumsum(found.counts)
    for event, wanted in enumerate(expected):
        positions = found.positions[ends[event] - found.counts[event] : ends[event]].tolist()
        assert len(set(positions)) == len(positions), f"event {event}: a position twice"
        assert {order[position] for position in positions} == wanted, f"event {event}"
    assert index.count(points, lines).tolist() == [len(rows) for rows in expected]
    for event in range(0, len(points), max(1, len(points) // singles)):
        positions = index.match_one(points[event : event + 1], lines).tolist()
        assert len(set(positions)) == len(positions)
        assert {order[position] for position in positions} == expected[event], f"single {event}"


# --- small cases, by Hypothesis --------------------------------------------------------------

KEYS = [ABSENT, FIRST, FIRST + 1, -7, -1, 0, 1, 2, 3, 4, 5, 9, 2**40, LAST - 1, LAST]


def intervals() -> st.SearchStrategy[tuple[int, int]]:
    key = st.sampled_from(KEYS)
    value = st.sampled_from(KEYS[1:])
    return st.one_of(
        st.tuples(key, key).map(lambda ends: (min(ends), max(ends))),
        value.map(lambda at: (at, at)),
        value.map(lambda low: (low, LAST)),
        value.map(lambda high: (FIRST, high)),
        st.sampled_from([(ABSENT, ABSENT), (ABSENT, LAST), (FIRST, LAST), (LAST, LAST), NEVER]),
    )


@st.composite
def cases(draw: st.DrawFn, most_boxes: int = 60) -> Case:
    dimensions = draw(st.integers(1, 40))
    # A few attributes draw most predicates, so that boxes meet.
    attribute = st.integers(0, min(dimensions, draw(st.sampled_from([1, 2, 4, 40]))) - 1)
    box = st.dictionaries(attribute, intervals(), max_size=5)
    # A few distinct boxes, over and over: duplicates, and tiles that are more than half full.
    distinct = draw(st.lists(box, min_size=1, max_size=12))
    picks = draw(st.lists(st.integers(0, len(distinct) - 1), max_size=most_boxes))
    rows = [[(a, *ends) for a, ends in sorted(distinct[pick].items())] for pick in picks]
    around: list[set[int]] = [{ABSENT, FIRST, 0, LAST} for _ in range(dimensions)]
    for row in rows:
        for a, low, high in row:
            for end in (low, high):
                around[a].update(k for k in (end - 1, end, end + 1) if ABSENT <= k <= LAST)
    point = st.tuples(*(st.sampled_from(sorted(keys)) for keys in around))
    points = draw(st.lists(point, max_size=12))
    array = np.array(points, np.int64).reshape(len(points), dimensions)
    return Case(Boxes.of(dimensions, rows), array)


# --- large cases, by seed --------------------------------------------------------------------

KINDS = ["uniform", "clustered", "zipf", "equality", "attributes", "sizes", "dense", "edges"]

_DOMAIN = 1_000_000


def large_case(kind: str, count: int, events: int, seed: int, odd: float = 0.02) -> Case:
    """`count` boxes of one kind and `events` points, half of them on the edge of some box.

    A fraction `odd` of the predicates is replaced by the intervals at the ends of the axis.
    """
    rng = np.random.default_rng(seed)
    dimensions, fewest, most = {
        "uniform": (20, 5, 5),
        "clustered": (10, 1, 4),
        "zipf": (8, 3, 3),
        "equality": (8, 3, 3),
        "attributes": (300, 1, 10),
        "sizes": (30, 1, 30),
        "dense": (10, 3, 3),
        "edges": (5, 0, 5),
    }[kind]
    sizes = rng.integers(fewest, most + 1, count)
    sizes[rng.random(count) < 0.001] = 0
    attribute = np.concatenate(
        [np.zeros(0, np.int64)]
        + [np.sort(rng.choice(dimensions, size, replace=False)) for size in sizes]
    )
    low, high = _intervals(rng, kind, attribute)
    special = rng.random(len(attribute)) < odd
    chosen = rng.integers(0, len(_ODD), int(special.sum()))
    low[special], high[special] = _ODD[chosen, 0], _ODD[chosen, 1]
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    boxes = Boxes(dimensions, start, attribute.astype(np.uint16), low, high)
    # One box in ten is the twin of another.
    boxes = boxes.take(
        np.where(rng.random(count) < 0.1, rng.integers(0, max(1, count), count), np.arange(count))
    )
    present = 20 / dimensions if kind == "attributes" else 0.95
    points = _values(rng, kind, np.tile(np.arange(dimensions), events)).reshape(events, dimensions)
    points[rng.random(points.shape) >= present] = ABSENT
    if count:
        for event in range(0, events, 2):
            row = int(rng.integers(count))
            span = slice(boxes.start[row], boxes.start[row + 1])
            ends = np.where(
                rng.random(span.stop - span.start) < 0.5, boxes.low[span], boxes.high[span]
            )
            step = rng.choice([-1, 0, 0, 0, 1], len(ends))
            safe = np.where((ends > FIRST) & (ends < LAST), ends + step, ends)
            points[event, boxes.attribute[span]] = safe
    return Case(boxes, points)


_ODD = np.array(
    [
        (ABSENT, ABSENT),
        (ABSENT, LAST),
        (FIRST, LAST),
        (FIRST, 0),
        (0, LAST),
        (ABSENT, 5),
        (LAST, LAST),
        (FIRST, FIRST),
        NEVER,
    ],
    np.int64,
)


def _values(
    rng: np.random.Generator, kind: str, attribute: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    count = len(attribute)
    match kind:
        case "clustered":
            centre = rng.choice([-(2**62), -1000, 0, 50_000, 2**61], count)
            return centre + rng.integers(-40, 40, count)
        case "zipf":
            return np.minimum(rng.zipf(1.3, count), 10_000).astype(np.int64)
        case "equality":
            return rng.integers(0, np.array([20, 5000, 5, 1000])[attribute % 4])
        case "edges":
            return rng.choice(KEYS[1:], count)
        case _:
            return rng.integers(0, _DOMAIN, count)


def _intervals(
    rng: np.random.Generator, kind: str, attribute: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    low = _values(rng, kind, attribute)
    count = len(low)
    match kind:
        case "edges":
            other = _values(rng, kind, attribute)
            return np.minimum(low, other), np.maximum(low, other)
        case "clustered":
            return low, low + rng.integers(0, 10, count)
        case "zipf":
            return low, low + rng.integers(0, 3, count)
        case "equality":
            return low, low.copy()
    share = {"uniform": 0.3, "attributes": 0.5, "sizes": 0.9, "dense": 0.8}[kind]
    low = (low * (1 - share)).astype(np.int64)
    return low, low + int(share * _DOMAIN)
