"""The parts of a matcher: segments behind an index, and tails that take what is new.

Both hold boxes and ids by position, both only ever grow or log removals, and a snapshot says how
much of each it sees. All boxes of a subscription are in one part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from boxmatch.adaptive.excess import ShrinkingExcess, rarest_first
from boxmatch.adaptive.selectivity import estimate_by_attribute, plausible
from boxmatch.arrays import BitLines, BoolArray, Float64Array, Int32Array, Int64Array
from boxmatch.engine.ids import IdArray, Lookup
from boxmatch.indexes.base import Index, Matches
from boxmatch.indexes.scan import scan_over
from boxmatch.kernels.bit_lines import filled_lines
from boxmatch.model.box_kernels import count_attributes
from boxmatch.model.boxes import Boxes
from boxmatch.model.growing_boxes import longer
from boxmatch.model.ids import SubscriptionId

Row = Sequence[tuple[int, int, int]]


class Removals:
    """A log of removed positions.

    Writers append; a reader knows how long the log was when its snapshot was taken, and asks for
    the bits as of then. One writer at a time; any number of readers.
    """

    def __init__(self) -> None:
        self._log: list[int] = []
        self._gone: set[int] = set()
        self._latest: tuple[int, int, BitLines] = (0, 0, filled_lines(0))

    def __len__(self) -> int:
        return len(self._log)

    def __contains__(self, position: int) -> bool:
        return position in self._gone

    def add(self, positions: Iterable[int]) -> None:
        new = list(positions)
        self._gone.update(new)
        self._log.extend(new)

    def since(self, length: int) -> list[int]:
        """The positions removed after the log had `length` entries."""
        return self._log[length:]

    def positions(self, length: int) -> list[int]:
        """The first `length` positions removed."""
        return self._log[:length]

    def alive(self, length: int, rows: int) -> BitLines | None:
        """Bits of the positions below `rows` that are left after `length` removals."""
        if length == 0:
            return None
        known, known_rows, bits = self._latest
        if known_rows != rows or known > length:
            known, bits = 0, filled_lines(rows)
        elif known < length:
            bits = bits.copy()
        else:
            return bits
        words = bits.reshape(-1)
        for position in self._log[known:length]:
            words[position >> 6] &= ~np.uint64(1 << (position & 63))
        self._latest = length, rows, bits
        return bits


class Store(ABC):
    """Boxes and ids by position. One writer at a time; any number of readers."""

    def __init__(self) -> None:
        self.removals = Removals()

    @property
    @abstractmethod
    def rows(self) -> int:
        """Positions in use, removed ones included."""

    @property
    @abstractmethod
    def boxes(self) -> Boxes:
        """The boxes by position."""

    @property
    @abstractmethod
    def ids(self) -> IdArray:
        """The subscription's id by position."""

    @property
    @abstractmethod
    def owners(self) -> Int32Array | None:
        """The subscription's number by position; None if no two boxes of one overlap."""

    @property
    @abstractmethod
    def numbers(self) -> Int32Array | None:
        """The subscription's number by position; None if every one has a single box.

        Boxes that do not overlap may do so once predicates are skipped.
        """

    @abstractmethod
    def overlapping(self, rows: int) -> BoolArray:
        """For the first `rows` positions: may boxes of the subscription overlap?"""

    @property
    @abstractmethod
    def frequency(self) -> Int64Array:
        """How many boxes constrain each attribute, removed ones included."""

    @abstractmethod
    def find(self, subscription_id: SubscriptionId) -> list[int]:
        """The positions of a subscription; none if it is not here, or no longer."""

    @abstractmethod
    def find_many(self, ids: IdArray) -> list[int]:
        """The positions of many subscriptions."""

    @abstractmethod
    def search(self, rows: int) -> Index:
        """An index over the first `rows` positions."""

    @property
    @abstractmethod
    def nbytes(self) -> dict[str, int]: ...


@dataclass(frozen=True, slots=True)
class Part:
    """A store as a snapshot sees it: its first `rows` positions, after `removed` removals."""

    store: Store
    rows: int
    removed: int

    @classmethod
    def now(cls, store: Store) -> Part:
        return cls(store, store.rows, len(store.removals))

    @property
    def alive(self) -> BitLines | None:
        return self.store.removals.alive(self.removed, self.rows) if self.removed else None

    def match_one(self, point: Int64Array, skipped: BoolArray | None = None) -> IdArray:
        """The ids, each once, of the boxes that hold the point."""
        positions = self.store.search(self.rows).match_one(point, self.alive, skipped)
        owners = self._owners(skipped)
        if owners is not None and len(positions) > 1:
            _, first = np.unique(owners[positions], return_index=True)
            positions = positions[first]
        return self.store.ids[positions]

    def match(self, points: Int64Array, skipped: BoolArray | None = None) -> Matches:
        """The positions, one per subscription, of the boxes that hold each point."""
        found = self.store.search(self.rows).match(points, self.alive, skipped)
        owners = self._owners(skipped)
        return found if owners is None else _once_per_owner(found, owners)

    def count(self, points: Int64Array, skipped: BoolArray | None = None) -> Int64Array:
        """How many subscriptions have a box that holds each point."""
        if self._owners(skipped) is not None:
            return self.match(points, skipped).counts
        return self.store.search(self.rows).count(points, self.alive, skipped)

    def _owners(self, skipped: BoolArray | None) -> Int32Array | None:
        return self.store.owners if skipped is None else self.store.numbers

    def live_positions(self) -> Int64Array:
        keep = np.ones(self.rows, bool)
        keep[self.store.removals.positions(self.removed)] = False
        return np.flatnonzero(keep)


def _once_per_owner(found: Matches, owners: Int32Array) -> Matches:
    """Boxes of one subscription may overlap: keep one position per event and owner."""
    event = np.repeat(np.arange(len(found.counts)), found.counts)
    owner = owners[found.positions].astype(np.int64)
    _, first = np.unique(event * (int(owner.max(initial=0)) + 1) + owner, return_index=True)
    counts = np.bincount(event[first], minlength=len(found.counts))
    return Matches(counts, found.positions[first])


class Segment(Store):
    """Boxes behind an index. Made once; only the log of removals grows."""

    def __init__(self, index: Index, ids: IdArray, owners: Int32Array | None) -> None:
        super().__init__()
        self.index = index
        self._ids = ids
        self._owners = owners

    @classmethod
    def build(
        cls, index: Index, boxes: Boxes, ids: IdArray, owners: Int32Array | None
    ) -> tuple[Segment, Int64Array]:
        """A segment of `boxes`, and the row of `boxes` at each of its positions."""
        order = index.build(boxes)
        if order is None:
            return cls(index, ids, owners), np.arange(boxes.count)
        return cls(index, ids[order], None if owners is None else owners[order]), order

    @property
    def rows(self) -> int:
        return len(self._ids)

    @property
    def boxes(self) -> Boxes:
        return self.index.boxes

    @property
    def ids(self) -> IdArray:
        return self._ids

    @property
    def owners(self) -> Int32Array | None:
        return self._owners

    @cached_property
    def numbers(self) -> Int32Array | None:
        if self._owners is not None:
            return self._owners
        import pyarrow as pa

        kind = pa.int64() if self._ids.dtype == np.int64 else pa.large_string()
        encoded = pa.array(self._ids, kind).dictionary_encode()
        if len(encoded.dictionary) == len(self._ids):
            return None
        numbers: Int32Array = encoded.indices.to_numpy()
        return numbers

    def overlapping(self, rows: int) -> BoolArray:
        return np.full(rows, self._owners is not None)

    @cached_property
    def frequency(self) -> Int64Array:
        return count_attributes(self.index.boxes.attribute, self.index.dimensions)

    @cached_property
    def selectivity(self) -> Float64Array:
        """The share of events that satisfy a predicate, in each plausible case, by attribute."""
        return plausible(estimate_by_attribute(self.index.boxes))

    @cached_property
    def excess(self) -> ShrinkingExcess:
        """How many false matches skipping an attribute adds."""
        order = rarest_first(self.frequency)
        return ShrinkingExcess(self.index.boxes, self.selectivity, order, self._owners)

    @cached_property
    def _lookup(self) -> Lookup:
        return Lookup(self._ids)

    def find(self, subscription_id: SubscriptionId) -> list[int]:
        return [p for p in self._lookup.find(subscription_id) if p not in self.removals]

    def find_many(self, ids: IdArray) -> list[int]:
        return [p for p in self._lookup.find_many(ids).tolist() if p not in self.removals]

    def search(self, rows: int) -> Index:
        return self.index

    @property
    def nbytes(self) -> dict[str, int]:
        held = dict(self.index.nbytes)
        held["ids"] = id_bytes(self._ids) + (0 if self._owners is None else self._owners.nbytes)
        if "_lookup" in self.__dict__:
            held["lookup"] = self._lookup.nbytes
        return held


def build_segments(
    make_index: Callable[[], Index],
    boxes: Boxes,
    ids: IdArray,
    owners: Int64Array,
    overlapping: BoolArray,
) -> list[tuple[Segment, Int64Array]]:
    """Segments of all boxes, each with the row of `boxes` at each of its positions.

    Subscriptions whose own boxes overlap are kept apart, so that the rest can be counted without
    looking at who owns a box. `ids`, `owners` and `overlapping` go by row.
    """
    built = []
    for apart in (False, True):
        rows = np.flatnonzero(overlapping == apart)
        if len(rows) == 0:
            continue
        some = boxes if len(rows) == boxes.count else boxes.take(rows)
        numbers = owners[rows].astype(np.int32) if apart else None
        segment, order = Segment.build(make_index(), some, ids[rows], numbers)
        built.append((segment, rows[order]))
    return built


class Tail(Store):
    """The newest boxes, compared one by one: a few thousand at most."""

    def __init__(self, dimensions: int, id_dtype: type) -> None:
        super().__init__()
        self._rows = 0
        self._predicates = 0
        self._boxes = Boxes(
            dimensions,
            np.zeros(1025, np.int64),
            np.empty(8192, np.uint16),
            np.empty(8192, np.int64),
            np.empty(8192, np.int64),
        )
        self._ids: IdArray = np.empty(1024, id_dtype)
        self._owner = np.empty(1024, np.int32)
        self._overlap = np.empty(1024, bool)
        self._any_overlap = False
        self._frequency = np.zeros(dimensions, np.int64)
        self._places: dict[SubscriptionId, tuple[int, int]] = {}

    def append(self, subscription_id: SubscriptionId, boxes: Sequence[Row], disjoint: bool) -> None:
        """Add a subscription that is not here. Seen by snapshots taken from now on."""
        first = self._rows
        self._make_room(len(boxes), sum(map(len, boxes)))
        start, attribute, low, high = self._boxes[1:]
        for row in boxes:
            if row:
                span = slice(self._predicates, self._predicates + len(row))
                attribute[span], low[span], high[span] = zip(*row, strict=True)
                self._frequency[attribute[span]] += 1
                self._predicates = span.stop
            self._ids[self._rows] = subscription_id
            self._owner[self._rows] = first
            self._overlap[self._rows] = not disjoint
            self._rows += 1
            start[self._rows] = self._predicates
        self._any_overlap |= not disjoint
        self._places[subscription_id] = first, self._rows

    def _make_room(self, rows: int, predicates: int) -> None:
        # Readers keep the arrays they hold; what they see in them never changes.
        if self._rows + rows > len(self._ids):
            size = 2 * (self._rows + rows)
            self._ids = longer(self._ids, size)
            self._owner = longer(self._owner, size)
            self._overlap = longer(self._overlap, size)
            self._boxes = self._boxes._replace(start=longer(self._boxes.start, size + 1))
        if self._predicates + predicates > len(self._boxes.attribute):
            size = 2 * (self._predicates + predicates)
            boxes = self._boxes
            self._boxes = boxes._replace(
                attribute=longer(boxes.attribute, size),
                low=longer(boxes.low, size),
                high=longer(boxes.high, size),
            )

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def boxes(self) -> Boxes:
        dimensions, start, attribute, low, high = self._boxes
        used = slice(0, self._predicates)
        return Boxes(dimensions, start[: self._rows + 1], attribute[used], low[used], high[used])

    @property
    def ids(self) -> IdArray:
        return self._ids

    @property
    def owners(self) -> Int32Array | None:
        return self._owner if self._any_overlap else None

    @property
    def numbers(self) -> Int32Array | None:
        return self._owner

    def overlapping(self, rows: int) -> BoolArray:
        return self._overlap[:rows]

    @property
    def frequency(self) -> Int64Array:
        return self._frequency

    def find(self, subscription_id: SubscriptionId) -> list[int]:
        place = self._places.get(subscription_id)
        if place is None or place[0] in self.removals:
            return []
        return list(range(*place))

    def find_many(self, ids: IdArray) -> list[int]:
        # Far more ids may be asked for than are here.
        here = set(self._places).intersection(ids.tolist()) if self._places else ()
        return [position for one in here for position in self.find(one)]

    def search(self, rows: int) -> Index:
        return scan_over(self._boxes, rows)

    @property
    def nbytes(self) -> dict[str, int]:
        return {"tail": self._boxes.nbytes + self._ids.nbytes + self._owner.nbytes}


def id_bytes(ids: IdArray) -> int:
    """Bytes of the ids, the strings included (as if all were as long as a sample of them)."""
    if ids.dtype != object or len(ids) == 0:
        return ids.nbytes
    sample = ids[:: max(1, len(ids) // 1000)]
    return ids.nbytes + int(np.mean([49 + len(one) for one in sample]) * len(ids))
