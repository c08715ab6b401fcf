"""A tile index on a card: what is there, and how a batch goes through it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import cuda

from boxmatch.arrays import BitLines, Int32Array, Int64Array
from boxmatch.indexes.base import NO_LINES, Query
from boxmatch.indexes.tile.cuda.locating import (
    TILE_GROUPS,
    find_cells,
    keys_of_floats,
    mark_waiting,
    relevant,
)
from boxmatch.indexes.tile.cuda.order import busiest_first
from boxmatch.indexes.tile.cuda.passing import THREADS as PASS_THREADS
from boxmatch.indexes.tile.cuda.passing import pass_tiles
from boxmatch.indexes.tile.cuda.pinned import PinnedResults
from boxmatch.indexes.tile.cuda.settling import (
    SUMMED,
    add_up,
    add_up_blocks,
    check_found,
    put_in_order,
)
from boxmatch.indexes.tile.cuda.tables import draw_tables, make_runs, scales
from boxmatch.indexes.tile.cuda.warps import SIMULATED
from boxmatch.indexes.tile.cuda.whole import (
    EVENTS,
    LISTED,
    LISTING,
    add_parts,
    compare_all,
    list_boxes,
    shift_parts,
    turn,
)
from boxmatch.indexes.tile.cuda.whole import THREADS as WHOLE_THREADS
from boxmatch.indexes.tile.cuda.workspace import Array, Workspace
from boxmatch.indexes.tile.layout import TileState
from boxmatch.model.points import FloatTable

_CHUNK: Final = 1 << 16
"""Events at a time."""

_PASS_BLOCKS: Final = 4_096
_PART_GROUPS: Final = 64
"""The events of a tile are for several blocks if each has so many words of 32 and there are fewer
than so many blocks in all."""

_MANY_FOUND: Final = 64
"""Where more than one box in so many is left by lines, all are compared."""

_MOST_FOUND: Final = 1 << 30
_FEWEST_FOUND: Final = 1 << 16
_FOUND_EACH: Final = 32
"""Boxes that there is room for at first, and for each event."""

_LISTED_BYTES: Final = 1 << 31
_LENT: Final = 1 << 16
"""Matches from which on they are written where they stay."""

_FOUND: Final = ("found_event", "found_box", "place")

_THREADS: Final = 16 if SIMULATED else 256
_BLOCKS: Final = 2 if SIMULATED else 4_096
_FEWEST_BLOCKS: Final = 1 if SIMULATED else 128


def _enough(blocks: int, times: int = 1) -> int:
    """So many blocks, and idle ones: Numba warns of grids with few, which some of these are."""
    return max(blocks, -(-_FEWEST_BLOCKS // times))


def _most_found(events: int, boxes: int) -> int:
    """Boxes that lines may leave."""
    return min(_MOST_FOUND, events * (boxes // _MANY_FOUND + 64))


class CardSearch:
    """Searches a tile index on a card. Any number of threads may."""

    def __init__(self, state: TileState, card: int = 0, threads: int | None = None) -> None:
        self._state = state
        self._card = cuda.gpus[card]
        self._threads = threads
        self._tiles = len(state.unsettled)
        self._boxes = len(state.box_start) - 1
        self.dimensions = len(state.cut_start) - 1
        self._row_words = (self.dimensions + 7) // 8
        self._held: list[Any] = []
        self._runs: Any = None
        self._never: npt.NDArray[np.uint32] | None = None
        self._making = threading.Lock()
        self._results = PinnedResults()
        self._free: list[Workspace] = []
        self._all: list[Workspace] = []
        with self._card:
            self._upload(state)

    def _upload(self, state: TileState) -> None:
        put = self._put
        self._ruler = tuple(
            put(one)
            for one in (
                *(state.cuts, state.cut_start, state.guess, state.guess_shift),
                scales(state.cut_start),
            )
        )
        self._width = (self._tiles + 511) // 512 * 16
        self._top = put(state.top.view(np.uint32).reshape(-1))
        self._top_of = tuple(
            put(one)
            for one in (state.top_attribute, state.top_shift, state.top_row, relevant(state))
        )
        *tables, order = (put(one) for one in draw_tables(state, self._threads))
        self._tables = tuple(tables)
        self._order = put(busiest_first(state))
        self._bounds = tuple(
            put(one)
            for one in (
                *(state.box_start, state.box_attribute, state.box_ranks.view(np.uint32).ravel()),
                *(state.box_low, state.box_high),
            )
        )
        self._places = order
        self._filled = put(state.filled.view(np.uint32).reshape(-1))

    def _put(self, array: Array) -> Any:
        # An empty array has no place on a card; nothing looks at the single item.
        there = array if array.size else np.zeros((1,) * array.ndim, array.dtype)
        held = cuda.to_device(np.ascontiguousarray(there))
        self._held.append(held)
        return held

    def __del__(self) -> None:
        self.__dict__.clear()
        try:
            # Numba keeps what is to be freed until there is more of it.
            cuda.current_context().deallocations.clear()
        except Exception:
            return  # the process ends, or the card is lost

    @property
    def nbytes(self) -> int:
        """Bytes on the card."""
        return sum(one.nbytes for one in self._held) + sum(one.nbytes for one in self._all)

    @contextmanager
    def _workspace(self) -> Iterator[Workspace]:
        try:
            space = self._free.pop()
        except IndexError:
            space = Workspace()
            self._all.append(space)
        try:
            yield space
        except BaseException:
            self._all.remove(space)
            raise
        self._free.append(space)

    def search(self, query: Query, table: FloatTable | None = None) -> Int32Array | None:
        """As `Index._search`, of a table in the place of points if there is one.

        None if a value in the table is not what its axis takes.
        """
        points = query.points if table is None else table.values
        counts, listing = query.counts, query.listing
        found: list[Int32Array] = []
        if self._boxes == 0 or len(points) == 0:
            counts[:] = 0
            return np.zeros(0, np.int32)
        with self._card, self._workspace() as space:
            first = 0
            whole = len(self._state.row_line) > 0
            living = self._alive(space, query.alive)
            while first < len(points):
                size = min(self._whole_events(listing) if whole else _CHUNK, len(points) - first)
                keys = self._keys(space, points[first : first + size], table)
                if keys is None:
                    return None
                some = counts[first : first + size]
                if whole:
                    found.append(self._whole(space, keys, query.alive, some, listing))
                else:
                    boxes = self._narrow(space, keys, living, some, listing)
                    if boxes is None:
                        whole = True
                        continue
                    found.append(boxes)
                first += size
        if not listing:
            return np.zeros(0, np.int32)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def kernel_seconds(self, points: Int64Array, repeats: int) -> float:
        """The best time of the kernels that list the matches of points: no copies but of counts.

        Points are no more than are searched at a time.
        """
        counts = np.empty(len(points), np.int64)
        with self._card, self._workspace() as space:
            keys = self._keys(space, points, None)
            times = []
            for turn in range(repeats + 2):  # launches are recorded the second time
                timer = cuda.event(), cuda.event()
                space.timer = timer if turn > 1 else None
                if len(self._state.row_line) > 0:
                    if turn > 1:
                        timer[0].record(space.stream)
                    self._whole(space, keys, NO_LINES, counts, False)
                    if turn > 1:
                        timer[1].record(space.stream)
                else:
                    self._narrow(space, keys, self._filled, counts, True)
                space.wait()
                if turn > 1:
                    times.append(cuda.event_elapsed_time(*timer) / 1000)
            space.timer = None
        return min(times)

    def _keys(self, space: Workspace, points: Array, table: FloatTable | None) -> Any:
        """The keys of some events on the card; None if a value is refused."""
        keys = space.room("keys", points.shape, np.int64)
        points = np.ascontiguousarray(points)
        if table is None:
            space.put(keys, points)
            return keys
        values = space.room("values", points.shape, np.float64)
        whole = space.room("whole", table.whole.shape, np.uint8)
        refused = space.room("refused", (1,), np.int32)
        space.put(values, points)
        space.put(whole, table.whole)
        space.put(refused, np.zeros(1, np.int32))
        keys_of_floats[_BLOCKS, _THREADS, space.stream](values, whole, keys, refused)
        marked = space.fetch("refused", refused)
        space.wait()
        return None if marked[0] else keys

    def _alive(self, space: Workspace, alive: BitLines) -> Any:
        if len(alive) == 0:
            return self._filled
        living = space.room("alive", (self._tiles * 16,), np.uint32)
        # What bits say beyond the last box means nothing.
        space.put(living, alive[: self._tiles] & self._state.filled)
        return living

    def _narrow(
        self, space: Workspace, keys: Any, alive: Any, counts: Int64Array, listing: bool
    ) -> Int32Array | None:
        """By lines, then by checks of what they leave; None if that is too much."""
        events = len(counts)
        most = _most_found(events, self._boxes)
        capacity = max(_FEWEST_FOUND, _FOUND_EACH * events, space.size("found_box"))
        capacity = min(most, capacity)
        while True:
            end = space.pinned("cursor", 1, np.int64)
            count = space.pinned("counts", events, np.int32)
            boxes = space.room("boxes", (capacity,), np.int32)
            space.launch(
                ("narrow", events, capacity, listing, alive is self._filled),
                partial(self._launch_narrow, space, keys, alive, capacity, listing),
            )
            space.wait()
            if end[0] <= capacity:
                break
            if end[0] > most:
                return None
            capacity = min(most, int(end[0]) + (int(end[0]) >> 3))
        counts[:] = count
        return self._take(space, boxes, int(counts.sum()) if listing else 0)

    def _launch_narrow(
        self, space: Workspace, keys: Any, alive: Any, capacity: int, listing: bool
    ) -> None:
        """All kernels of a batch. What they are given stays where it is, as they are replayed."""
        stream = space.stream
        cursor = space.room("cursor", (1,), np.int64)
        totals = space.room("counts", keys.shape[:1], np.int32)
        found = space.room("found_event", (capacity,), np.int32)
        found_box = space.room("found_box", (capacity,), np.int32)
        place = space.room("place", (capacity,), np.int32)
        cells, waiting = self._locate(space, keys, totals, cursor)
        self._pass(space, cells, waiting, found, found_box, cursor)
        ranks = space.room("ranks", keys.shape, np.uint16)
        check_found[_BLOCKS, _THREADS, stream](
            *(keys, ranks, *self._bounds, self._places, alive),
            *(found, found_box, cursor, totals, place),
        )
        if listing:
            boxes = space.room("boxes", (capacity,), np.int32)
            offsets, sums = self._add_up(space, totals)
            put_in_order[_BLOCKS, _THREADS, stream](
                found, found_box, cursor, place, offsets, sums, boxes
            )
        space.fetch("cursor", cursor)
        space.fetch("counts", totals)

    def _locate(self, space: Workspace, keys: Any, totals: Any, cursor: Any) -> tuple[Any, Any]:
        """Cells of events, and which of them wait for which tile."""
        events = keys.shape[0]
        stream = space.stream
        ranks = space.room("ranks", keys.shape, np.uint16)
        cells = space.room("cells", (events, 8 * self._row_words), np.uint8)
        find_cells[_BLOCKS, _THREADS, stream](keys, *self._ruler, ranks, cells, totals, cursor)
        groups = (events + 31) // 32
        waiting = space.room("waiting", (self._tiles, groups), np.uint32)
        columns = (self._width + TILE_GROUPS - 1) // TILE_GROUPS
        mark_waiting[(_enough(groups, columns), columns), _THREADS, stream](
            ranks,
            self._top,
            self._width,
            *self._top_of,
            len(self._state.top_attribute),
            self._tiles,
            waiting,
        )
        return cells.reshape(-1).view(np.uint64), waiting

    def _pass(self, space: Workspace, cells: Any, waiting: Any, *found: Any) -> None:
        groups = waiting.shape[1]
        parts = max(1, min(_PASS_BLOCKS // max(1, self._tiles), groups // _PART_GROUPS))
        pass_tiles[_enough(self._tiles * parts), PASS_THREADS, space.stream](
            self._order, parts, waiting, *self._tables, self._filled, cells, self._row_words, *found
        )

    def _whole_events(self, listing: bool) -> int:
        """How many events may be compared with all boxes at a time."""
        if not listing:
            return _CHUNK
        return max(64, min(_CHUNK, _LISTED_BYTES // (4 * max(1, self._boxes))))

    def _whole(
        self, space: Workspace, keys: Any, alive: BitLines, counts: Int64Array, listing: bool
    ) -> Int32Array:
        """By comparing all boxes."""
        runs, never = self._all_runs()
        stream = space.stream
        events = len(counts)
        filled = self._state.filled
        lines = alive[: self._tiles] & filled if len(alive) else filled
        words = lines.view(np.uint32).reshape(-1) & ~never
        living = space.room("living", (len(words),), np.uint32)
        space.put(living, words)
        turned = space.room("turned", (self.dimensions, events), np.int64)
        turn[_BLOCKS, _THREADS, stream](keys, turned)
        blocks = (events + EVENTS - 1) // EVENTS
        parts = max(1, min(len(words) // 16, (2 if SIMULATED else 8_192) // blocks))
        each = (len(words) + parts - 1) // parts
        by_part = space.room("by_part", (parts, events), np.int64)
        totals = space.room("counts", (events,), np.int32)
        masks = space.room("masks", (len(words) if listing else 0, events), np.uint32)
        compare_all[(_enough(blocks, parts), parts), WHOLE_THREADS, stream](
            turned, *runs, living, each, by_part, masks
        )
        add_parts[_BLOCKS, _THREADS, stream](by_part, totals)
        count = space.fetch("counts", totals)
        space.wait()
        counts[:] = count
        if not listing:
            return np.zeros(0, np.int32)
        total = int(counts.sum())
        boxes = space.room("boxes", (total,), np.int32)
        offsets, sums = self._add_up(space, totals)
        shift_parts[_BLOCKS, _THREADS, stream](by_part, offsets, sums)
        together = (LISTING + each - 1) // each
        lists = (parts + together - 1) // together
        list_boxes[(_enough(events, lists), lists), LISTED, stream](
            masks, each, together, by_part, boxes
        )
        return self._take(space, boxes, total)

    def _add_up(self, space: Workspace, totals: Any) -> tuple[Any, Any]:
        """Where the matches of each event begin in its block, and those of each block."""
        blocks = (totals.size + SUMMED - 1) // SUMMED
        offsets = space.room("offsets", (totals.size,), np.int64)
        sums = space.room("sums", (blocks,), np.int64)
        add_up_blocks[_enough(blocks), SUMMED, space.stream](totals, offsets, sums)
        add_up[_enough(1), SUMMED, space.stream](sums)
        return offsets, sums

    def _all_runs(self) -> tuple[Any, npt.NDArray[np.uint32]]:
        with self._making:
            if self._never is None:
                runs = make_runs(self._state, self._threads)
                self._runs = tuple(self._put(one) for one in runs[:-1])
                self._never = runs.never
        return self._runs, self._never

    def _take(self, space: Workspace, boxes: Any, total: int) -> Int32Array:
        """The first boxes of a list, in memory of their own."""
        if total == 0:
            return np.zeros(0, np.int32)
        if total < _LENT:
            fetched = space.fetch("boxes", boxes, total)
            space.wait()
            return fetched.copy()
        taken = self._results.array(total)
        if taken is None:
            taken = np.empty(total, np.int32)
        space.copy(taken, boxes)
        space.wait()
        return taken
