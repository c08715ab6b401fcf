"""`tile`: our own index. Clustered boxes in tiles of 512, behind two levels of bitmaps."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BitLines, BoolArray, Int32Array, Int64Array
from boxmatch.indexes.base import (
    NO_IDS,
    NO_LINES,
    NO_MARKS,
    NO_OWNERS,
    Capabilities,
    Index,
    Matches,
    Query,
    Search,
    returned,
)
from boxmatch.indexes.tile.blocks import LEAST_EVENTS, BlockSearch, blocks_pay
from boxmatch.indexes.tile.build import build_tiles
from boxmatch.indexes.tile.layout import TileState, pack
from boxmatch.indexes.tile.lists import search_lists, search_one_with_lists
from boxmatch.indexes.tile.postings import ListPlan, pack_plan, plan_lists
from boxmatch.indexes.tile.search import search_batch, search_few
from boxmatch.model.boxes import Boxes
from boxmatch.model.points import FloatTable, ListKeys

if TYPE_CHECKING:
    from boxmatch.indexes.tile.cuda.card import CardIndex

_NO_BOXES = np.zeros(0, np.int32)
_NO_POINTS = np.zeros((0, 0), np.int64)

_MOST_PLANS = 16

_FEW_EVENTS = 16
"""No more than these are searched for one by one."""

_FEW_IN_ROWS = 255
"""The same where lines lie in rows."""

_LEAST_ON_CARD = 8
_LEAST_PAIRS_ON_CARD = 4_000_000
"""Events, and pairs of an event and a box, from which on a card is faster: a call takes 0.2 ms,
however little there is to do."""

_PARTS = {
    "boxes": ("box_start", "box_attribute", "box_ranks", "box_low", "box_high"),
    "lines": ("lines", "unsettled", "unlined", "filled"),
    "endpoints": (
        *("endpoint_base", "endpoint_start", "endpoint_key", "endpoint_box"),
        *("rare_start", "rare_low", "rare_low_box", "rare_high", "rare_high_box"),
    ),
    "directory": ("top", "top_attribute", "top_shift", "top_row"),
    "ranks": ("cuts", "cut_start", "guess", "guess_shift", "cell_shift"),
    "slots": ("tile_line", "slot_start", "slot_depth", "slot_attribute", "slot_line", "line_step"),
    "rows": ("row_line", "row_start", "row_tile", "row_block", "row_rules"),
}


class TileIndex(Index):
    """Groups subscriptions into tiles and predicates into bit lines; see the package's modules.

    `cells`: lines that an attribute constrained by every box gets in a tile; others get fewer in
    proportion. More cells leave fewer candidates to check and take more memory.
    """

    name = "tile"
    slow_to_compile = True
    parameters = {"cells": 64}
    # Lines pass over whole tiles at once; what is left for single predicates to decide is little.
    capabilities = Capabilities(approximate=True, skipping_pays=False, lists=True, devices=True)
    _limits = {"cells": (8, 120)}

    def build(self, boxes: Boxes) -> Int64Array:
        state, order = build_tiles(boxes, self.chosen["cells"], self.attributes, self.threads)
        self._hold(state)
        return order

    def _hold(self, state: TileState) -> None:
        self._state = state
        self._packed = pack(state)
        self._block_search: BlockSearch | None = None
        self._plans: dict[bytes, tuple[ListPlan, Int64Array] | None] = {}
        self._card: CardIndex | None = None
        self._making_card = threading.Lock()

    def match_one(
        self,
        point: Int64Array,
        alive: BitLines | None = None,
        skipped: BoolArray | None = None,
        *,
        lists: ListKeys | None = None,
    ) -> Int32Array:
        lines = NO_LINES if alive is None else alive
        marks = NO_MARKS if skipped is None else skipped
        planned = None if lists is None else self._plan(lists.axes)
        if lists is not None and planned is not None:
            return search_one_with_lists(self._packed, planned[1], point, lists, lines, marks)
        return returned(self.prepare(lines, marks)(point, True, np.empty(1, np.int64)))

    def prepare(
        self,
        alive: BitLines = NO_LINES,
        skipped: BoolArray = NO_MARKS,
        ids: Int64Array = NO_IDS,
        owners: Int32Array = NO_OWNERS,
    ) -> Search:
        return partial(search_few, self._packed, alive, skipped, ids, owners)

    def _search(self, query: Query) -> Int32Array:
        points, lines, skipped, listing, counts = query
        # What lines leave out with an attribute, blocks would not: answers should not depend on
        # how many events come at once.
        exact = len(skipped) == 0
        if exact and self.prefers_whole(len(points)):
            found = self._on_card.search(query)
            if found is not None:
                return found
        has_rows = len(self._state.row_line) > 0
        one_by_one = len(points) <= (_FEW_IN_ROWS if has_rows else _FEW_EVENTS)
        enough = exact and len(points) >= LEAST_EVENTS
        if enough and blocks_pay(self._state, points, listing, one_by_one):
            if listing:
                return self._blocks.list(points, lines, counts)
            self._blocks.count(points, lines, counts)
            return _NO_BOXES
        if one_by_one:
            return returned(self.prepare(lines, skipped)(points, listing, counts))
        return search_batch(self._state, *query)

    def prefers_whole(self, events: int) -> bool:
        if self.device == "cpu" or events < _LEAST_ON_CARD:
            return False
        if events * (len(self._state.box_start) - 1) < _LEAST_PAIRS_ON_CARD:
            return False
        return self._on_card.is_usable

    def match_floats(
        self, table: FloatTable, alive: BitLines | None = None, *, listing: bool
    ) -> Matches | None:
        events, width = table.values.shape
        if width != self.dimensions or not self.prefers_whole(events):
            return None
        lines = NO_LINES if alive is None else alive
        counts = np.empty(events, np.int64)
        query = Query(_NO_POINTS, lines, NO_MARKS, listing, counts)
        positions = self._on_card.search(query, table)
        return None if positions is None else Matches(counts, positions)

    @property
    def _on_card(self) -> CardIndex:
        """Made when it is first asked for: the card has memory for what is searched there."""
        with self._making_card:
            if self._card is None or self._card.device != self.device:
                from boxmatch.indexes.tile.cuda.card import CardIndex

                self._card = CardIndex(self._state, self.device)
            return self._card

    @property
    def _blocks(self) -> BlockSearch:
        """Made when it is first asked for: most indexes are searched by lines only."""
        if self._block_search is None:
            self._block_search = BlockSearch(self._state)
        return self._block_search

    def _search_lists(self, query: Query, lists: ListKeys) -> Int32Array:
        planned = self._plan(lists.axes)
        if planned is None:
            return self._search(query)
        return search_lists(self._packed, planned[1], query, lists)

    def _plan(self, axes: Int32Array) -> tuple[ListPlan, Int64Array] | None:
        """The plan for these axes, and how kernels take it; None if no box constrains them.

        Made when it is first asked for: most indexes never see a set of keys.
        """
        key = axes.tobytes()
        try:
            return self._plans[key]
        except KeyError:
            plan = plan_lists(self._state, axes)
        planned = None if plan is None else (plan, pack_plan(plan))
        if len(self._plans) >= _MOST_PLANS:
            self._plans = {}
        self._plans[key] = planned
        return planned

    @property
    def boxes(self) -> Boxes:
        state = self._state
        return Boxes(
            self.dimensions, state.box_start, state.box_attribute, state.box_low, state.box_high
        )

    @property
    def nbytes(self) -> dict[str, int]:
        arrays = self._state._asdict()
        held = {part: sum(arrays[name].nbytes for name in names) for part, names in _PARTS.items()}
        plans = [planned[0] for planned in list(self._plans.values()) if planned is not None]
        if plans:
            held["postings"] = sum(array.nbytes for plan in plans for array in plan)
        if self._card is not None:
            held["card"] = self._card.nbytes
        return held

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        return self._state._asdict()

    @classmethod
    def from_arrays(
        cls, dimensions: int, parameters: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]
    ) -> Self:
        index = cls(dimensions, **parameters)
        index._hold(TileState(**arrays))
        return index
