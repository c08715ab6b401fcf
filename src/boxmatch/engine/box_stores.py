"""The stores of a matcher: segments behind an index, and tails that take what is new.

Both hold boxes and ids by position, both only ever grow or log removals, and a snapshot says how
much of each it sees. All boxes of a subscription are in one store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from boxmatch.adaptive.excess import ShrinkingExcess, rarest_first
from boxmatch.adaptive.selectivity import estimate_by_attribute, plausible
from boxmatch.arrays import BitLines, BoolArray, Float64Array, Int32Array, Int64Array
from boxmatch.engine.filter_texts import FilterTexts, no_texts
from boxmatch.engine.ids import IdArray, Lookup
from boxmatch.engine.removals import Removals
from boxmatch.engine.residuals import NONE, Residual, Residuals
from boxmatch.indexes.base import NO_IDS, NO_LINES, NO_OWNERS, Index, Matches, Search
from boxmatch.indexes.scan import scan_over
from boxmatch.kernels.background import Stage, background
from boxmatch.kernels.box_lists import once_per_owner_and_point
from boxmatch.kernels.pieces import let_go, listed, repeat, take, to_texts
from boxmatch.model.box_kernels import count_attributes
from boxmatch.model.boxes import Boxes, longer
from boxmatch.model.ids import SubscriptionId
from boxmatch.model.point_encoder import PointBatch, Values
from boxmatch.model.points import FloatPoints, Points

if TYPE_CHECKING:
    import pyarrow as pa

Row = Sequence[tuple[int, int, int]]

MUCH = 2_000_000_000
"""Pairs of a box and an event from which on it is faster to wait for an index than to scan."""

_MANY = 10_000
"""Matches from which on sorting them takes longer than a kernel that does not."""

SegmentKind = Literal["disjoint", "overlapping", "residual"]
KINDS: Final[tuple[SegmentKind, ...]] = get_args(SegmentKind)
"""Subscriptions whose boxes do not overlap, those whose boxes may, those with residuals."""


class IndexedSegment:
    """Boxes behind an index. Made once; only the log of removals grows."""

    def __init__(
        self,
        index: Index,
        ids: IdArray,
        owners: Int32Array | None,
        residuals: Residuals | None = None,
        texts: FilterTexts | None = None,
    ) -> None:
        self.removals = Removals()
        self.index = index
        self.rows = len(ids)
        """Positions in use, removed ones included."""
        self.ids = ids
        """The subscription's id by position."""
        self.owners = owners
        """The subscription's number by position; None if no two boxes of one overlap."""
        self.residuals = residuals
        """What filters ask for besides their boxes, by position; None if that is nothing."""
        self.texts = texts
        """Filters as they were written; None if none is known."""

    @property
    def interim(self) -> bool:
        """Whether it is yet to get its index, whose kernels are being compiled."""
        return self.index.interim

    @property
    def kind(self) -> SegmentKind:
        if self.residuals is not None:
            return "residual"
        return "disjoint" if self.owners is None else "overlapping"

    def kinds(self, rows: int) -> npt.NDArray[np.int8]:
        """For the first `rows` positions: in which kind of segment the box belongs."""
        return np.full(rows, KINDS.index(self.kind), np.int8)

    @property
    def boxes(self) -> Boxes:
        """The boxes by position."""
        return self.index.boxes

    @cached_property
    def numbers(self) -> Int32Array | None:
        """The subscription's number by position; None if every one has a single box.

        Boxes that do not overlap may do so once predicates are skipped.
        """
        if self.owners is not None:
            return self.owners
        import pyarrow as pa

        texts = self.ids.dtype != np.int64
        column: Any = to_texts(self.ids, pa.large_string()) if texts else pa.array(self.ids)
        encoded = (column.combine_chunks() if texts else column).dictionary_encode()
        if len(encoded.dictionary) == len(self.ids):
            return None
        numbers: Int32Array = encoded.indices.to_numpy()
        return numbers

    def __del__(self, let_go: Callable[[dict[str, Any], str], None] = let_go) -> None:
        self.__dict__.pop("_lookup", None)  # it has the ids, too
        let_go(self.__dict__, "ids")

    @cached_property
    def frequency(self) -> Int64Array:
        """How many boxes constrain each attribute, removed ones included."""
        return count_attributes(self.boxes.attribute, self.index.dimensions)

    @cached_property
    def selectivity(self) -> Float64Array:
        """The share of events that satisfy a predicate, in each plausible case, by axis."""
        return plausible(estimate_by_attribute(self.boxes))

    @cached_property
    def excess(self) -> ShrinkingExcess:
        """How many false matches skipping an attribute adds."""
        order = rarest_first(self.frequency)
        return ShrinkingExcess(self.boxes, self.selectivity, order, self.owners)

    @cached_property
    def _lookup(self) -> Lookup:
        return Lookup(self.ids)

    @property
    def is_looked_up(self) -> bool:
        """Whether ids have been looked up here."""
        return "_lookup" in self.__dict__

    def prepare_lookup(self) -> None:
        """Have ready what `find` needs, which takes long to make."""
        _ = self._lookup

    def find(self, subscription_id: SubscriptionId) -> list[int]:
        """The positions of a subscription; none if it is not here, or no longer."""
        found = self._lookup.find(subscription_id)
        return [p for p in found if p not in self.removals] if found else found

    def find_many(self, ids: IdArray) -> list[int]:
        """The positions of many subscriptions."""
        return [p for p in listed(self._lookup.find_many(ids)) if p not in self.removals]

    def text_of(self, positions: Sequence[int]) -> str | None:
        """The filter of the subscription at these positions as it was written, if it is known."""
        return None if self.texts is None else self.texts.at(positions)

    def take_texts(self, positions: Int64Array) -> pa.Array[Any]:
        """The texts at some positions, of whole subscriptions: one of each has it, or none."""
        return no_texts(len(positions)) if self.texts is None else self.texts.take(positions)

    def index_of(self, rows: int) -> Index:
        """An index over the first `rows` positions, which are always all."""
        return self.index

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes held, by part."""
        held = dict(self.index.nbytes)
        held["ids"] = id_bytes(self.ids) + (0 if self.owners is None else self.owners.nbytes)
        if self.is_looked_up:
            held["lookup"] = self._lookup.nbytes
        if self.texts is not None:
            held["texts"] = self.texts.nbytes
        return held


class Tail:
    """The newest boxes, compared one by one: a few thousand at most.

    Has what a segment has, by the same names.
    """

    is_looked_up = True

    def __init__(self, dimensions: int, id_dtype: type) -> None:
        self.removals = Removals()
        self.rows = 0
        self.ids: IdArray = np.empty(1024, id_dtype)
        self.owners: Int32Array | None = None
        self.numbers: Int32Array = np.empty(1024, np.int32)
        self._overlap = np.empty(1024, bool)
        self.residuals: Residuals | None = None
        self.texts: dict[int, str] = {}
        """By the first position of a subscription."""
        self._predicates = 0
        self._boxes = Boxes(
            dimensions,
            np.zeros(1025, np.int64),
            np.empty(8192, np.uint16),
            np.empty(8192, np.int64),
            np.empty(8192, np.int64),
        )
        self._write_to(self._boxes)
        self._frequency = 0, np.zeros(dimensions, np.int64)
        """Of so many predicates."""
        self._places: dict[SubscriptionId, tuple[int, int]] = {}

    def append(
        self,
        subscription_id: SubscriptionId,
        boxes: Sequence[Row],
        disjoint: bool,
        residual: Residual | None = None,
        text: str | None = None,
    ) -> None:
        """Add a subscription that is not here. Seen by snapshots taken from now on."""
        first, end = self.rows, self.rows + len(boxes)
        self._make_room(end, self._predicates + sum(map(len, boxes)))
        start, attribute, low, high = self._written
        used = self._predicates
        for position, row in enumerate(boxes, first + 1):
            # One by one: NumPy takes longer to make arrays of so few, or to set an item.
            for attribute[used], low[used], high[used] in row:
                used += 1
            start[position] = used
        self._predicates = used
        self.ids[first:end] = subscription_id
        self.numbers[first:end] = first
        self._overlap[first:end] = not disjoint
        if self.owners is not None or not disjoint:
            self.owners = self.numbers
        if residual is not None and self.residuals is None:
            self.residuals = Residuals(np.full(len(self.ids), NONE, np.int32))
        if self.residuals is not None:
            self.residuals.numbers[first:end] = self.residuals.number(residual)
        if text is not None:
            self.texts[first] = text
        self._places[subscription_id] = first, end
        self.rows = end

    def _make_room(self, rows: int, predicates: int) -> None:
        # Readers keep the arrays they hold; what they see in them never changes.
        dimensions, start, attribute, low, high = self._boxes
        if rows <= len(self.ids) and predicates <= len(attribute):
            return
        if rows > len(self.ids):
            self.ids, self.numbers = longer(self.ids, 2 * rows), longer(self.numbers, 2 * rows)
            self._overlap, start = longer(self._overlap, 2 * rows), longer(start, 2 * rows + 1)
            if self.residuals is not None:
                self.residuals.numbers = longer(self.residuals.numbers, 2 * rows)
        if predicates > len(attribute):
            size = 2 * predicates
            attribute, low, high = longer(attribute, size), longer(low, size), longer(high, size)
        self._write_to(Boxes(dimensions, start, attribute, low, high))

    def _write_to(self, boxes: Boxes) -> None:
        self._boxes = boxes
        self._written = boxes.start.data, boxes.attribute.data, boxes.low.data, boxes.high.data

    def widen(self, dimensions: int) -> None:
        """Make room for boxes over more axes."""
        if dimensions > self._boxes.dimensions:
            self._boxes = self._boxes._replace(dimensions=dimensions)

    def kinds(self, rows: int) -> npt.NDArray[np.int8]:
        kinds = self._overlap[:rows].astype(np.int8)  # "disjoint" or "overlapping"
        if self.residuals is not None:
            kinds[self.residuals.numbers[:rows] != NONE] = KINDS.index("residual")
        return kinds

    @property
    def boxes(self) -> Boxes:
        dimensions, start, attribute, low, high = self._boxes
        used = slice(0, self._predicates)
        return Boxes(dimensions, start[: self.rows + 1], attribute[used], low[used], high[used])

    @property
    def frequency(self) -> Int64Array:
        # Every snapshot asks. Only what is new is counted; threads that do so at once agree.
        end, (counted, known) = self._predicates, self._frequency
        boxes = self._boxes
        if counted == end and len(known) == boxes.dimensions:
            return known
        frequency = count_attributes(boxes.attribute[counted:end], boxes.dimensions)
        frequency[: len(known)] += known
        self._frequency = end, frequency
        return frequency

    def find(self, subscription_id: SubscriptionId) -> list[int]:
        place = self._places.get(subscription_id)
        if place is None or place[0] in self.removals:
            return []
        return list(range(*place))

    def find_many(self, ids: IdArray) -> list[int]:
        # Far more ids may be asked for than are here.
        here = set(self._places).intersection(listed(ids)) if self._places else ()
        return [position for one in here for position in self.find(one)]

    def text_of(self, positions: Sequence[int]) -> str | None:
        return self.texts.get(positions[0])

    def take_texts(self, positions: Int64Array) -> pa.Array[Any]:
        import pyarrow as pa

        return pa.array(map(self.texts.get, positions.tolist()), pa.large_string())

    def index_of(self, rows: int) -> Index:
        return scan_over(self._boxes, rows)

    @property
    def nbytes(self) -> dict[str, int]:
        return {"tail": self._boxes.nbytes + self.ids.nbytes + self.numbers.nbytes}


BoxStore = IndexedSegment | Tail
"""Boxes and ids by position. One writer at a time; any number of readers."""


class StoreView:
    """A store as a snapshot sees it: its first `rows` positions, after `removed` removals."""

    __slots__ = ("_index", "dimensions", "removed", "residuals", "rows", "search", "store")

    def __init__(self, store: BoxStore) -> None:
        self.store = store
        self.rows = store.rows
        self.removed = len(store.removals)
        # A tail may get its first ones later, of which the boxes seen here have none.
        self.residuals = store.residuals
        self._index = store.index_of(self.rows)
        self.dimensions = self._index.dimensions
        self.search: Search | None = None
        """Finds ids, or positions where ids are strings; None until `prepare` has made it."""

    def prepare(self) -> Search | None:
        """Make `search`; None if it needs residuals, or kernels that are not there."""
        index, store = self._index, self.store
        slow = index.slow_to_compile and not background.has(Stage.INDEX)
        if not (slow or index.interim or self.residuals is not None):
            alive = self.alive
            ids: Any = store.ids
            self.search = index.prepare(
                NO_LINES if alive is None else alive,
                ids=ids if ids.dtype == np.int64 else NO_IDS,
                owners=NO_OWNERS if store.owners is None else store.owners,
            )
        return self.search

    @property
    def is_plain(self) -> bool:
        """Whether every box that holds an event is a subscription that wants it."""
        return self.residuals is None and self.store.owners is None

    @property
    def alive(self) -> BitLines | None:
        return self.store.removals.alive(self.removed, self.rows) if self.removed else None

    def match_one(
        self, point: Points, values: Values | None = None, skipped: BoolArray | None = None
    ) -> IdArray:
        """The ids, each once, of the subscriptions that want the event, which is one point.

        Its `values` are needed if there are residuals.
        """
        point = self._seen(point)
        positions = self._usable(point).match_one(
            point.keys, self.alive, skipped, lists=point.lists
        )
        if self.residuals is not None and len(positions):
            if values is None:
                raise TypeError("residuals need the values of the event")
            positions = self.residuals.keep_one(positions, values)
        owners = self._owners(skipped)
        if owners is not None and len(positions) > 1:
            _, first = np.unique(owners[positions], return_index=True)
            positions = positions[first]
        return self.store.ids[positions]

    def match(
        self,
        batch: PointBatch,
        skipped: BoolArray | None = None,
        found: Matches | None = None,
    ) -> Matches:
        """The positions, one per subscription that wants it, of boxes that hold each event.

        `found` are those of all boxes that do, if they are known.
        """
        if found is None:
            found = self.match_points(batch.points, skipped)
        if self.residuals is not None and len(found.positions):
            found = self.residuals.keep(found, batch)
        owners = self._owners(skipped)
        return found if owners is None else once_per_owner(found, owners)

    def match_boxes(self, points: Points) -> Matches:
        """The positions, one per subscription, of boxes that hold each point.

        Residuals, which need more than points, are not looked at.
        """
        found = self.match_points(points)
        owners = self._owners(None)
        return found if owners is None else once_per_owner(found, owners)

    def match_points(self, points: Points, skipped: BoolArray | None = None) -> Matches:
        """The positions of all boxes that hold each point."""
        if isinstance(points, FloatPoints) and skipped is None:
            found = self._index.match_floats(points.table, self.alive, listing=True)
            if found is not None:
                return found
        points = self._seen(points)
        return self._usable(points).match(points.keys, self.alive, skipped, lists=points.lists)

    def prefers_whole(self, batch: PointBatch, skipped: BoolArray | None) -> bool:
        """Whether a batch is best searched all at once, before it is shared out to threads."""
        if skipped is not None or batch.points.lists is not None:
            return False
        return self._index.prefers_whole(len(batch))

    def takes_floats(self, events: int) -> bool:
        """Whether so many events may come as floats."""
        return self._index.prefers_whole(events)

    def _usable(self, points: Points) -> Index:
        """The index, or, while its kernels are compiled, a scan of its boxes."""
        index = self._index
        stage = Stage.INDEX if points.lists is None else Stage.LISTS
        if index.interim:
            background.has(stage)  # else nobody would ask in a forked process
        if not index.slow_to_compile or background.has(stage):
            return index
        if len(points) * self.rows > MUCH:
            background.wait(stage)
            return index
        return scan_over(index.boxes, self.rows)

    def _seen(self, points: Points) -> Points:
        """The points on the axes that the index knows of.

        Where it takes no lists, no box is on an axis of lists.
        """
        points = points.narrow(self._index.dimensions)
        return points if self._index.capabilities.lists else Points(points.keys)

    def count(self, batch: PointBatch, skipped: BoolArray | None = None) -> Int64Array:
        """How many subscriptions want each event."""
        if self._owners(skipped) is not None or self.residuals is not None:
            return self.match(batch, skipped).counts
        if isinstance(batch.points, FloatPoints) and skipped is None:
            found = self._index.match_floats(batch.points.table, self.alive, listing=False)
            if found is not None:
                return found.counts
        points = self._seen(batch.points)
        return self._usable(points).count(points.keys, self.alive, skipped, lists=points.lists)

    def count_one(self, point: Points, values: Values | None, skipped: BoolArray | None) -> int:
        """How many ids `match_one` finds."""
        if self._owners(skipped) is not None or self.residuals is not None:
            return len(self.match_one(point, values, skipped))
        point = self._seen(point)
        index = self._usable(point)
        return int(index.count(point.keys, self.alive, skipped, lists=point.lists)[0])

    def _owners(self, skipped: BoolArray | None) -> Int32Array | None:
        return self.store.owners if skipped is None else self.store.numbers

    def removed_positions(self) -> list[int]:
        return self.store.removals.log[: self.removed]

    def live_positions(self) -> Int64Array:
        keep = np.ones(self.rows, bool)
        keep[self.removed_positions()] = False
        return np.flatnonzero(keep)


def once_per_owner(found: Matches, owners: Int32Array) -> Matches:
    """Boxes of one subscription may overlap: keep one position per event and owner."""
    if len(found.positions) > _MANY and background.has(Stage.INDEX):
        counts, positions = found.counts.astype(np.int64), found.positions.astype(np.int32)
        once_per_owner_and_point(np.asarray(owners), counts, positions)
        return Matches(counts, positions[: counts.sum()])
    event = repeat(np.arange(len(found.counts)), found.counts)
    owner = owners[found.positions].astype(np.int64)
    _, first = np.unique(event * (int(owner.max(initial=0)) + 1) + owner, return_index=True)
    counts = np.bincount(event[first], minlength=len(found.counts))
    return Matches(counts, found.positions[first])


def build_segments(
    make_index: Callable[[int], Index],
    boxes: Boxes,
    ids: IdArray,
    owners: Int64Array,
    kinds: npt.NDArray[np.int8],
    residuals: Sequence[Residual | None] = (),
    texts: pa.Array[Any] | None = None,
) -> list[tuple[IndexedSegment, Int64Array]]:
    """Segments of all boxes, each with the row of `boxes` at each of its positions.

    Subscriptions whose own boxes overlap are kept apart, so that the rest can be counted without
    looking at who owns a box; and so are those with residuals, so that the rest is known by its
    boxes alone. `ids`, `owners`, `kinds`, and, if there are any, `residuals` and
    `texts` go by row.
    """
    built = []
    for number, kind in enumerate(KINDS):
        mine = kinds == number
        count = np.count_nonzero(mine)
        if count == 0:
            continue
        index = make_index(boxes.dimensions)
        if count == boxes.count:
            order = index.build(boxes)
            rows = np.arange(count) if order is None else order
        else:
            rows = np.flatnonzero(mine)
            order = index.build(boxes.take(rows))
            rows = rows if order is None else rows[order]
        numbers = None if kind == "disjoint" else owners[rows].astype(np.int32)
        tests = None
        if kind == "residual":
            tests = Residuals.of([residuals[row] for row in rows.tolist()])
        kept = None if texts is None else FilterTexts.of(texts.take(rows))
        built.append((IndexedSegment(index, take(ids, rows), numbers, tests, kept), rows))
    return built


def id_bytes(ids: IdArray) -> int:
    """Bytes of the ids, the strings included (as if all were as long as a sample of them)."""
    if ids.dtype != object or len(ids) == 0:
        return ids.nbytes
    sample = ids[:: max(1, len(ids) // 1000)]
    return ids.nbytes + int(np.mean([49 + len(one) for one in sample]) * len(ids))
