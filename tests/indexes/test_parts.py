"""What indexes are made of: buckets, cells, counters, bit sets, against plain Python."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from box_oracle import bits
from hypothesis import given
from hypothesis import strategies as st

from boxmatch.arrays import Int32Array, Int64Array, Int64Table, UInt64Array
from boxmatch.indexes.papers.parts import counters
from boxmatch.indexes.papers.parts.cells import cell_of, cells_of, fit_cells
from boxmatch.indexes.papers.parts.portions import discard_items, listed
from boxmatch.indexes.tile import layout as tile_layout
from boxmatch.indexes.tile import postings
from boxmatch.kernels import bit_lines as lines
from boxmatch.kernels import bit_sets as marks
from boxmatch.kernels import box_lists
from boxmatch.kernels import bucket_pool as buckets
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.packing import packing
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes, GrowingBoxes
from boxmatch.spaces import layout as spaces_layout

Contents = dict[int, list[tuple[int, int]]]

# --- buckets ---------------------------------------------------------------------------------


def contents_of(pool: buckets.Buckets) -> Contents:
    """What is in each bucket, after a look at how the buckets lie in the pool."""
    assert (pool.size >= 0).all()
    assert (pool.size <= pool.room).all()
    spans = sorted(zip(pool.start.tolist(), (pool.start + pool.room).tolist(), strict=True))
    spans = [(start, end) for start, end in spans if end > start]
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert max((end for _, end in spans), default=0) <= pool.used[0] <= len(pool.box)
    assert len(pool.key) in (0, len(pool.box))
    found: Contents = defaultdict(list)
    for bucket, (start, size) in enumerate(zip(pool.start, pool.size, strict=True)):
        box = pool.box[start : start + size].tolist()
        key = pool.key[start : start + size].tolist() if len(pool.key) else [0] * len(box)
        found[bucket] = list(zip(box, key, strict=True))
    return found


def same(pool: buckets.Buckets, expected: Contents) -> bool:
    found = contents_of(pool)
    return all(sorted(found[b]) == sorted(expected[b]) for b in range(len(pool.size)))


def columns(items: list[tuple[int, int, int]]) -> tuple[Any, Any, Any]:
    """Buckets, boxes and keys."""
    bucket, box, key = zip(*items, strict=True) if items else ((), (), ())
    return np.array(bucket, np.int64), np.array(box, np.int32), np.array(key, np.int64)


@st.composite
def changes(draw: st.DrawFn, count: int) -> list[tuple[str, list[int]]]:
    """Batches of items to add, by bucket, and of places in the list of what is there to drop."""
    bucket = st.lists(st.integers(0, count - 1), max_size=12)
    # Many for one bucket: it moves, and moves again, and the pool is used up.
    run = st.tuples(st.integers(0, count - 1), st.integers(1, 70)).map(lambda r: [r[0]] * r[1])
    places = st.lists(st.integers(0, 10**6), max_size=20)
    change = st.one_of(
        st.tuples(st.just("append"), st.one_of(bucket, run)),
        st.tuples(st.just("discard"), places),
    )
    return draw(st.lists(change, max_size=12))


@given(count=st.integers(1, 6), with_keys=st.booleans(), data=st.data())
def test_buckets_keep_their_contents(count: int, with_keys: bool, data: st.DataObject) -> None:
    number = 0
    held: list[tuple[int, int, int]] = []

    def new(bucket: list[int]) -> list[tuple[int, int, int]]:
        nonlocal number
        number += len(bucket)
        # Every box has its own key; one box may be in several buckets, and is there once in each.
        first = number - len(bucket)
        return [
            (b, first + i // 2, -(first + i // 2) * 1000 * with_keys) for i, b in enumerate(bucket)
        ]

    def expected() -> Contents:
        by_bucket: Contents = defaultdict(list)
        for bucket, box, key in held:
            by_bucket[bucket].append((box, key))
        return by_bucket

    def once(items: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        there = {item[:2] for item in held}
        return [item for item in dict.fromkeys(items) if item[:2] not in there]

    held = once(new(data.draw(st.lists(st.integers(0, count - 1), max_size=15))))
    bucket, box, key = columns(held)
    pool = buckets.fill(count, bucket, box, key if with_keys else None)
    assert contents_of(pool) == {b: expected()[b] for b in range(count)}, "not in order"
    for verb, drawn in data.draw(changes(count)):
        if verb == "append":
            more = once(new(drawn))
            bucket, box, key = columns(more)
            pool = buckets.append(pool, bucket, box, key if with_keys else None)
            held += more
        else:
            gone = {place % len(held) for place in drawn} if held else set()
            bucket, box, _ = columns([held[place] for place in gone])
            discard_items(pool, listed(bucket, box))
            held = [item for place, item in enumerate(held) if place not in gone]
        assert same(pool, expected())


def test_a_bucket_moves_then_the_pool_is_laid_out_afresh() -> None:
    pool = buckets.allot(np.array([1, 1, 1]), keys=True, spare=4)
    one = np.array([1])

    def append(box: int) -> buckets.Buckets:
        return buckets.append(pool, one, np.array([box], np.int32), np.array([box * 10]))

    pool = append(1)
    assert (pool.start[1], pool.room[1], pool.used[0]) == (1, 1, 3)
    assert append(2) is pool
    assert (pool.start[1], pool.room[1], pool.used[0]) == (3, 4, 7)
    assert append(3) is pool
    assert append(4) is pool
    again = append(5)
    assert again is not pool
    assert contents_of(again)[1] == [(box, box * 10) for box in range(1, 6)]


@pytest.mark.parametrize("with_keys", [True, False])
def test_buckets_without_any_room_take_items_and_keys(with_keys: bool) -> None:
    bucket, box, key = columns([])
    pool = buckets.fill(4, bucket, box, key if with_keys else None)
    assert contents_of(pool) == {b: [] for b in range(4)}
    bucket, box, key = columns([(3, 7, 70), (0, 8, 80), (3, 9, 90)])
    pool = buckets.append(pool, bucket, box, key if with_keys else None)
    assert same(
        pool,
        {0: [(8, 80 * with_keys)], 1: [], 2: [], 3: [(7, 70 * with_keys), (9, 90 * with_keys)]},
    )


# --- cells -----------------------------------------------------------------------------------

ends = st.one_of(
    st.integers(-20, 20),
    st.integers(FIRST, LAST),
    st.sampled_from([ABSENT, FIRST, FIRST + 1, LAST - 1, LAST]),
)


@st.composite
def predicates(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    drawn = draw(st.lists(st.tuples(st.integers(0, 2), ends, ends), max_size=8))
    return [(a, min(pair), max(pair)) for a, *pair in drawn]


@given(asked=predicates(), count=st.sampled_from([1, 2, 3, 16, 1000]), keys=st.lists(ends))
def test_cells_are_even_and_in_order(
    asked: list[tuple[int, int, int]], count: int, keys: list[int]
) -> None:
    cells = fit_cells(Boxes.of(3, [[predicate] for predicate in asked]), count)
    for attribute in range(3):
        mine = [end for a, *pair in asked if a == attribute for end in pair if FIRST < end < LAST]
        least, most = min(mine, default=0), max(mine, default=0)
        first, width = int(cells.first[attribute]), int(cells.width[attribute])
        assert first == least
        assert width == (most - least) // count + 1
        asc = sorted({*keys, *mine, FIRST, FIRST + 1, LAST - 1, LAST})
        asc += [k for c in range(count) for k in (first + c * width - 1, first + c * width)][:40]
        asc = sorted(key for key in asc if FIRST <= key <= LAST)
        found = [cell_of(cells, attribute, np.int64(key)) for key in asc]
        assert found == [max(0, min((key - first) // width, count - 1)) + 1 for key in asc]
        assert found == sorted(found)
        assert found[0] == 1
        assert cell_of(cells, attribute, np.int64(ABSENT)) == 0
        there = np.full(len(asc), attribute, np.uint16)
        assert cells_of(cells, there, np.array(asc, np.int64)).tolist() == found
        if least < most and count > 1:
            assert cell_of(cells, attribute, np.int64(most)) > 1


def test_cells_over_the_whole_axis() -> None:
    """The distance of the ends does not fit into int64."""
    cells = fit_cells(Boxes.of(1, [[(0, FIRST + 1, LAST - 1)]]), 4)
    quarter = 2**62
    keys = [FIRST, FIRST + 1, -quarter - 9, -quarter + 9, -9, 9, quarter - 9, quarter + 9, LAST]
    assert [cell_of(cells, 0, np.int64(key)) for key in keys] == [1, 1, 1, 2, 2, 3, 3, 4, 4]


def test_open_sides_do_not_stretch_the_cells() -> None:
    rows = [[(0, FIRST, 10)], [(0, 0, LAST)], [(0, ABSENT, ABSENT)], [(0, ABSENT, 5)]]
    cells = fit_cells(Boxes.of(2, rows), 11)
    assert (int(cells.first[0]), int(cells.width[0])) == (0, 1)
    assert [cell_of(cells, 0, np.int64(key)) for key in (-5, 0, 1, 10, 11)] == [1, 1, 2, 11, 11]
    assert (int(cells.first[1]), int(cells.width[1])) == (0, 1)


# --- counters --------------------------------------------------------------------------------


def needs(wanted: list[int]) -> counters.Counters:
    """The counters of boxes at positions 0, 1, …"""
    if not wanted:
        return counters.NO_NEEDS
    positions = np.arange(len(wanted), dtype=np.int32)
    return counters.with_needs(counters.NO_NEEDS, np.array(wanted), positions)


@pytest.mark.parametrize(
    ("most", "kind"),
    [(0, np.uint8), (255, np.uint8), (256, np.uint16), (65_535, np.uint16), (65_536, np.uint32)],
)
def test_counters_are_as_small_as_they_can_be(most: int, kind: type) -> None:
    need = needs([0, most, 1])
    assert need.dtype == kind
    assert need[:3].tolist() == [0, most, 1]
    assert len(need) == 64
    assert (need[3:] != 0).all(), "nobody must match for nothing"


@given(data=st.data())
def test_counters_grow(data: st.DataObject) -> None:
    """Batch after batch, with needs that outgrow the type at hand."""
    need = st.sampled_from([0, 1, 2, 255, 256, 65_535, 65_536, 10**6])
    batch = st.tuples(st.lists(need, min_size=1, max_size=5), st.sampled_from([1, 1, 30]))
    wanted: list[int] = []
    held = counters.NO_NEEDS
    for some, times in data.draw(st.lists(batch, max_size=8)):
        more = some * times
        positions = np.arange(len(wanted), len(wanted) + len(more), dtype=np.int32)
        held = counters.with_needs(held, np.array(more), positions)
        wanted += more
        assert held[: len(wanted)].tolist() == wanted
        assert len(held) % 64 == 0
        assert (held[len(wanted) :] != 0).all()


def test_counters_of_boxes_with_gaps_between_them() -> None:
    positions = np.array([1, 4, 70], np.int32)
    need = counters.with_needs(counters.NO_NEEDS, np.array([0, 300, 2]), positions)
    assert need.dtype == np.uint16
    assert len(need) == 128
    assert need[[1, 4, 70]].tolist() == [0, 300, 2]
    assert (np.delete(need, [1, 4, 70]) != 0).all(), "nobody must match for nothing"


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32])
def test_counters_run_down(kind: type) -> None:
    current = np.full(64, 3, kind)
    box = np.array([9, 5, 5, 63, 5, 8], np.int32)
    counters.run_down(current, box, 1, 5)
    assert {place: int(current[place]) for place in (5, 8, 9, 63)} == {5: 0, 8: 3, 9: 3, 63: 2}
    key = np.array([4, ABSENT, 4, LAST, 5, 6])
    pool = buckets.fill(2, np.array([0, 1, 1, 1, 1, 1]), np.arange(6, dtype=np.int32), key)
    current = np.full(64, 1, kind)
    counters.run_down_between(current, pool, 1, 4, 5)
    assert np.flatnonzero(current == 0).tolist() == [2, 4]
    counters.run_down_between(current, pool, 1, ABSENT, ABSENT)
    assert np.flatnonzero(current == 0).tolist() == [1, 2, 4]
    counters.run_down_between(current, pool, 1, LAST, LAST)
    assert np.flatnonzero(current == 0).tolist() == [1, 2, 3, 4]


def zeros_in_python(count: list[int], alive: np.ndarray[Any, Any]) -> list[int]:
    return [box for box, left in enumerate(count) if left == 0 and alive[box]]


@given(
    left=st.lists(st.sampled_from([0, 0, 1, 2, 255]), max_size=700),
    kind=st.sampled_from([np.uint8, np.uint16, np.uint32]),
    listing=st.booleans(),
    before=st.sampled_from([0, 5, 64]),
    seed=st.integers(0, 99),
)
def test_counters_at_zero_are_taken(
    left: list[int], kind: type, listing: bool, before: int, seed: int
) -> None:
    need = needs(left).astype(kind)
    current = np.zeros_like(need)
    counters.reset(current, need)
    assert np.array_equal(current, need)
    alive = np.random.default_rng(seed).random(len(left)) < 0.7
    found = np.arange(64, dtype=np.int32)
    count, found, end = counters.take_zeros(current, bits(alive), listing, found, before)
    expected = zeros_in_python(left, alive)
    assert count == len(expected)
    assert found[:before].tolist() == list(range(before)), "earlier matches must stay"
    assert found[before:end].tolist() == (expected if listing else [])


# --- bit sets --------------------------------------------------------------------------------


@given(
    count=st.sampled_from([0, 1, 63, 64, 65, 511, 512, 513, 1100]),
    seed=st.integers(0, 10**6),
    listing=st.booleans(),
    before=st.sampled_from([0, 5, 64]),
)
def test_marks(count: int, seed: int, listing: bool, before: int) -> None:
    rng = np.random.default_rng(seed)
    alive = rng.random(count) < rng.choice([0.02, 0.5, 1.0])
    free = set(np.flatnonzero(alive).tolist())
    words = rng.integers(0, 2**63, bits(alive).size, np.uint64)  # what an event before left
    marks.mark_all_but(words, bits(alive))
    for box in rng.integers(0, max(count, 1), min(count, 40)).tolist():
        marks.mark(words, box)
        free.discard(box)
    for box in rng.integers(0, max(count, 1), min(count, 10)).tolist():
        marks.unmark(words, box)
        free.add(box)
    bucket = rng.integers(0, 5, min(count, 30))
    box = rng.integers(0, max(count, 1), len(bucket)).astype(np.int32)
    pool = buckets.fill(5, bucket, box, None)
    assert marks.mark_buckets(words, pool, 1, 1) == 0
    inside = (bucket == 1) | (bucket == 2)
    assert marks.mark_buckets(words, pool, 1, 3) == np.count_nonzero(inside)
    free -= set(box[inside].tolist())
    found = np.arange(64, dtype=np.int32)
    number, found, end = marks.take_unmarked(words, listing, found, before)
    assert number == len(free)
    assert found[:before].tolist() == list(range(before)), "earlier matches must stay"
    assert found[before:end].tolist() == (sorted(free) if listing else [])


# --- lines: what counters and bit sets look for ----------------------------------------------


def _zeros(array: Any, first: int) -> Any:
    return lines.zero_items(array, first)


def _ones(words: Any, place: int) -> Any:
    return lines.count_ones(words[place])


@pytest.fixture(params=["compiled", "plain"], scope="module")
def run(request: pytest.FixtureRequest) -> dict[str, Any]:
    wrap = kernel if request.param == "compiled" else lambda function: function
    return {"zeros": wrap(_zeros), "ones": wrap(_ones)}


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32])
def test_zero_items(run: dict[str, Any], kind: type) -> None:
    zeros = run["zeros"]
    rng = np.random.default_rng(1)
    most = np.iinfo(kind).max
    for share in (0.0, 0.02, 0.5, 1.0):
        # The highest and the lowest bit of an item alone make it nonzero.
        array = rng.choice([1, most, most // 2 + 1, 7], 64 * 3).astype(kind)
        array[rng.random(len(array)) < share] = 0
        for first in (0, 1, 37, 64, 128):
            expected = sum(1 << i for i in range(64) if array[first + i] == 0)
            found = zeros(array, first)
            assert int(found) == expected
            assert isinstance(found, (int, np.uint64))
    for place in range(64):
        array = np.ones(64, kind)
        array[place] = 0
        assert int(zeros(array, 0)) == 1 << place


@given(word=st.integers(0, 2**64 - 1) | st.integers(0, 64).map(lambda ones: (1 << ones) - 1))
def test_count_ones(run: dict[str, Any], word: int) -> None:
    assert run["ones"](np.array([5, word], np.uint64), 1) == word.bit_count()


@pytest.mark.parametrize("compiled", [True, False])
@given(
    words=st.lists(
        st.integers(0, 2**64 - 1) | st.integers(0, 63).map(lambda bit: 1 << bit) | st.just(0),
        min_size=8,
        max_size=8,
    ),
    before=st.integers(0, 3),
)
def test_list_line(compiled: bool, words: list[int], before: int) -> None:
    line = np.zeros((2, 8), np.uint64)
    line[1] = words
    expected = [100 + 64 * w + bit for w in range(8) for bit in range(64) if words[w] >> bit & 1]
    boxes = np.full(before + len(expected) + box_lists.SPARE + 2, -7, np.int32)
    run: Any = box_lists.list_line
    if not compiled:
        run = getattr(run, "py_func", run)
    end = run(line, 1, 100, boxes, before)
    assert boxes[before:end].tolist() == expected
    assert boxes[:before].tolist() == [-7] * before
    assert boxes[-2:].tolist() == [-7, -7], "it wrote beyond the spare room"


# --- boxes that grow -------------------------------------------------------------------------


@given(
    batches=st.lists(
        st.lists(
            st.lists(st.integers(0, 3), unique=True, max_size=3).map(
                lambda asked: [(a, -a, a * 7) for a in sorted(asked)]
            ),
            max_size=9,
        ),
        min_size=1,
        max_size=8,
    )
)
def test_growing_boxes(batches: list[list[list[tuple[int, int, int]]]]) -> None:
    first = Boxes.of(4, batches[0])
    growing = GrowingBoxes(first)
    seen = []
    rows = list(batches[0])
    for batch in batches[1:]:
        seen.append((growing.boxes, list(rows)))
        growing.append(Boxes.of(4, batch))
        rows += batch
    for boxes, expected in [*seen, (growing.boxes, rows)]:
        assert boxes.dimensions == 4
        assert boxes.start[-1] == len(boxes.attribute) == len(boxes.low) == len(boxes.high)
        assert [boxes.row(i) for i in range(boxes.count)] == expected
    assert [first.row(i) for i in range(first.count)] == batches[0]


class _Inner(NamedTuple):
    numbers: Int32Array
    rows: Int64Table


class _Outer(NamedTuple):
    size: int
    inner: _Inner
    flag: bool
    words: UInt64Array


pack, unpack = packing(_Outer)


@kernel
def _unpacked(packed: Int64Array) -> _Outer:
    return unpack(packed)


def _packable() -> _Outer:
    rows = np.arange(6, dtype=np.int64).reshape(3, 2)
    return _Outer(7, _Inner(np.array([3, -1], np.int32), rows), True, np.zeros(0, np.uint64))


def test_what_was_packed_is_unpacked() -> None:
    packed = _packable()
    found = _unpacked(pack(packed))
    assert (found.size, bool(found.flag)) == (7, True)
    for before, after in zip(
        (*packed.inner, packed.words), (*found.inner, found.words), strict=True
    ):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)


def test_functions_that_unpack_have_names_of_their_own() -> None:
    """Cached kernels bring them along, and take those of one name for the same."""
    layouts = (unpack, tile_layout.unpack, postings.unpack_plan, spaces_layout.unpack)
    names = {getattr(one, "py_func", one).__qualname__ for one in layouts}
    assert len(names) == len(layouts)


@pytest.mark.parametrize(
    "wrong",
    [
        {"words": np.zeros(1, np.int64)},
        {"words": np.zeros((1, 8), np.uint64)},
        {"words": np.zeros(4, np.uint64)[::2]},
        {"inner": _Inner(np.zeros(1, np.int64), np.zeros((1, 1), np.int64))},
        {"inner": _Inner(np.zeros(1, np.int32), np.zeros(1, np.int64))},
    ],
)
def test_arrays_of_another_type_are_not_packed(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"is not a contiguous \d-dimensional array"):
        pack(_packable()._replace(**wrong))
