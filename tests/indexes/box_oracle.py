"""Boxes and points, and which holds which, worked out the obvious way.

Shares nothing with the indexes: a box is a list of `(attribute, low, high)`, a point a list of
keys, or of tuples of keys where it has a set of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from boxmatch.arrays import BitLines
from boxmatch.indexes.base import Index, Matches
from boxmatch.indexes.registry import index_class, index_names
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes
from boxmatch.model.points import ListKeys

Rows = Sequence[Sequence[tuple[int, int, int]]]
Points = npt.NDArray[np.int64]

NEVER = (FIRST, ABSENT)
"""The one empty interval that indexes have to bear."""


class Case(NamedTuple):
    boxes: Boxes
    points: Points
    lists: ListKeys | None = None


def names_of_indexes(**wanted: bool) -> list[str]:
    """Those that declare these capabilities, such as `updates=True`."""
    return [
        name
        for name in index_names()
        if all(getattr(index_class(name).capabilities, key) == wanted[key] for key in wanted)
    ]


# --- truth -----------------------------------------------------------------------------------


def holders(rows: Rows, points: Sequence[Sequence[Any]]) -> list[set[int]]:
    """For each point, the rows of the boxes that hold it."""

    def holds(value: int | tuple[int, ...], low: int, high: int) -> bool:
        keys = value if isinstance(value, tuple) else (value,)
        return any(low <= key <= high for key in keys)

    return [
        {
            number
            for number, row in enumerate(rows)
            if all(holds(point[attribute], low, high) for attribute, low, high in row)
        }
        for point in points
    ]


def sets_of(lists: ListKeys, event: int) -> dict[int, tuple[int, ...]]:
    """The keys of an event on each axis where it has a set of them."""
    first = event * len(lists.axes)
    return {
        axis: tuple(lists.keys[lists.start[first + j] : lists.start[first + j + 1]].tolist())
        for j, axis in enumerate(lists.axes.tolist())
    }


def with_sets(case: Case) -> list[list[Any]]:
    """The points, with tuples where they have sets."""
    if case.lists is None:
        return case.points.tolist()
    points: list[list[Any]] = case.points.tolist()
    for event, point in enumerate(points):
        for axis, keys in sets_of(case.lists, event).items():
            point[axis] = keys
    return points


def holders_of_many(boxes: Boxes, points: Points, lists: ListKeys | None = None) -> list[set[int]]:
    """The same for more boxes than plain Python likes: a box holds if no predicate fails."""
    row = np.repeat(np.arange(boxes.count), np.diff(boxes.start))
    found = []
    for event, point in enumerate(points):
        keys = point[boxes.attribute]
        failed = (keys < boxes.low) | (keys > boxes.high)
        for axis, several in () if lists is None else sets_of(lists, event).items():
            asked = boxes.attribute == axis
            inside = np.zeros(np.count_nonzero(asked), bool)
            for key in several:
                inside |= (boxes.low[asked] <= key) & (key <= boxes.high[asked])
            failed[asked] = ~inside
        misses = np.bincount(row[failed], minlength=boxes.count)
        found.append(set(np.flatnonzero(misses == 0).tolist()))
    return found


def without(boxes: Boxes, skipped: npt.NDArray[np.bool_]) -> Boxes:
    """The boxes as if nobody had asked for the skipped attributes."""
    kept = ~skipped[boxes.attribute]
    start = np.concatenate([[0], np.cumsum(kept)])[boxes.start]
    return Boxes(boxes.dimensions, start, boxes.attribute[kept], boxes.low[kept], boxes.high[kept])


def bits(alive: npt.NDArray[np.bool_]) -> BitLines:
    """One bit per position, in lines of 512."""
    words = np.zeros((len(alive) + 511) // 512 * 8, np.uint64)
    for position in np.flatnonzero(alive).tolist():
        words[position // 64] |= np.uint64(1 << position % 64)
    return words.reshape(-1, 8)


DEVICE = os.environ.get("BOXMATCH_TEST_DEVICE", "cpu")
"""Where indexes that can search batches on a card do so."""

if DEVICE != "cpu":
    from boxmatch.indexes.tile import index as tile

    tile._LEAST_ON_CARD = tile._LEAST_PAIRS_ON_CARD = 1  # else small batches would stay


# --- comparison ------------------------------------------------------------------------------


def build(name: str, boxes: Boxes, **parameters: Any) -> tuple[Index, list[int]]:
    """The index over these boxes, and the row of each position."""
    index = index_class(name)(boxes.dimensions, **parameters)
    if index.capabilities.devices:
        index.device = DEVICE
    return index, check_order(index, boxes, index.build(boxes))


def check_order(index: Index, boxes: Boxes, order: npt.NDArray[np.int64] | None) -> list[int]:
    """`order` is a permutation and `index.boxes` are the boxes in it; returns it as a list."""
    rows = list(range(boxes.count)) if order is None else order.tolist()
    assert sorted(rows) == list(range(boxes.count))
    stored = index.boxes
    assert stored.count == boxes.count
    assert stored.dimensions == boxes.dimensions
    wanted = boxes.take(np.array(rows, np.int64))
    assert all(map(np.array_equal, stored[1:], wanted[1:]))
    return rows


def listed(found: Matches) -> list[list[int]]:
    """The positions of each event."""
    assert int(found.counts.sum()) == len(found.positions)
    ends = np.cumsum(found.counts).tolist()
    positions = found.positions.tolist()
    return [
        positions[end - count : end] for end, count in zip(ends, found.counts.tolist(), strict=True)
    ]


def check_answers(
    index: Index,
    order: list[int],
    points: Points,
    expected: list[set[int]],
    alive: npt.NDArray[np.bool_] | None = None,
    singles: int = 20,
    lists: ListKeys | None = None,
) -> None:
    """`match`, `match_one` and `count` find exactly the `expected` rows that are alive."""
    lines = None if alive is None else bits(alive)
    if alive is not None:
        living = {row for position, row in enumerate(order) if alive[position]}
        expected = [rows & living for rows in expected]
    for event, (positions, wanted) in enumerate(
        zip(listed(index.match(points, lines, lists=lists)), expected, strict=True)
    ):
        assert len(set(positions)) == len(positions), f"event {event}: a position twice"
        assert {order[position] for position in positions} == wanted, f"event {event}"
    assert index.count(points, lines, lists=lists).tolist() == [len(rows) for rows in expected]
    for event in range(0, len(points), max(1, len(points) // singles)):
        part = None if lists is None else lists.part(event, event + 1)
        positions = index.match_one(points[event : event + 1], lines, lists=part).tolist()
        assert len(set(positions)) == len(positions)
        assert {order[position] for position in positions} == expected[event], f"single {event}"


def check_large(name: str, case: Case, seed: int, **parameters: Any) -> Index:
    """Build the index and compare all its answers, with all boxes alive and with some."""
    index, order = build(name, case.boxes, **parameters)
    expected = holders_of_many(*case)
    check_answers(index, order, case.points, expected, lists=case.lists)
    rng = np.random.default_rng(seed)
    alive = rng.random(case.boxes.count) < 0.7
    check_answers(index, order, case.points, expected, alive, lists=case.lists)
    return index


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


@st.composite
def list_cases(draw: st.DrawFn) -> Case:
    """Small cases with sets of keys on some axes, empty ones and duplicates among them."""
    case = draw(cases(most_boxes=30))
    axis = st.integers(0, case.boxes.dimensions - 1)
    axes = sorted(draw(st.sets(axis, max_size=3)))
    most = draw(st.sampled_from([0, 1, 3, 12]))
    return with_lists(case, axes, most, draw(st.integers(0, 2**32 - 1)))


@st.composite
def boolean_cases(draw: st.DrawFn, most_boxes: int = 60) -> Case:
    """Boxes that ask for 0 or 1, and points of these keys, of which some may be missing or odd."""
    dimensions = draw(st.integers(1, 12))
    key = st.sampled_from([0, 1])
    distinct = draw(st.lists(st.lists(key | st.none(), max_size=dimensions), min_size=1))
    picks = draw(st.lists(st.integers(0, len(distinct) - 1), max_size=most_boxes))
    rows = [
        [(a, wanted, wanted) for a, wanted in enumerate(distinct[pick]) if wanted is not None]
        for pick in picks
    ]
    some = st.sampled_from(draw(st.sampled_from([[0, 0, 0, 1], [0, 1], [0, 0, 1, ABSENT, 2, -1]])))
    points = draw(st.lists(st.tuples(*[some] * dimensions), max_size=12))
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


def with_lists(case: Case, axes: Sequence[int], most: int, seed: int) -> Case:
    """The case with up to `most` keys on some axes: those of other events and of boxes."""
    rng = np.random.default_rng(seed)
    boxes, events = case.boxes, len(case.points)
    # No box asks for "absent" there.
    low = boxes.low.copy()
    low[(low == ABSENT) & np.isin(boxes.attribute, axes)] = FIRST
    start = np.concatenate([[0], np.cumsum(rng.integers(0, most + 1, events * len(axes)))])
    keys = np.zeros(start[-1], np.int64)
    for number in range(events * len(axes)):
        axis = axes[number % len(axes)]
        asked = boxes.attribute == axis
        pool = np.concatenate([case.points[:, axis], low[asked], boxes.high[asked]])
        pool = np.append(pool[pool != ABSENT], [FIRST, 0, LAST])
        keys[start[number] : start[number + 1]] = rng.choice(
            pool, start[number + 1] - start[number]
        )
    lists = ListKeys(np.array(axes, np.int32), start.astype(np.int64), keys)
    return Case(boxes._replace(low=low), case.points, lists)


BOOLEAN_KINDS = ["light", "coins", "few", "full", "patchy"]


def large_boolean_case(kind: str, count: int, events: int, seed: int) -> Case:
    """`count` boxes that ask for 0 or 1 in some properties, and `events` points.

    Half of the points are made from a box, so that what asks for much is found too.
    """
    rng = np.random.default_rng(seed)
    # Properties, how often a box asks for them, and how often a point has them.
    dimensions, asked, ones = {
        "light": (60, 0.08, 0.04),
        "coins": (30, 0.2, 0.5),
        "few": (4, 0.5, 0.2),
        "full": (11, 2.0, 0.2),  # every one, whatever the factor below
        "patchy": (25, 0.1, 0.1),
    }[kind]
    asks = rng.random((count, dimensions)) < asked * rng.uniform(0.5, 1.5, dimensions)
    wants = (rng.random((count, dimensions)) < 0.4).astype(np.int64)
    start = np.concatenate([[0], np.cumsum(np.count_nonzero(asks, axis=1))]).astype(np.int64)
    low = wants[asks]
    boxes = Boxes(dimensions, start, np.nonzero(asks)[1].astype(np.uint16), low, low.copy())
    points = (rng.random((events, dimensions)) < ones).astype(np.int64)
    points[rng.random(events) < 0.02] = 0
    points[rng.random(events) < 0.02] = 1
    if count:
        rows = rng.integers(0, count, events)
        rows[1::2] = -1
        points = np.where((rows >= 0)[:, None] & asks[rows], wants[rows], points)
    if kind == "patchy":
        odd = rng.random(points.shape) < 0.05
        points[odd] = rng.choice([ABSENT, ABSENT, FIRST, -1, 2, LAST], np.count_nonzero(odd))
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
