"""`siena`: look up the constraints that a value meets, and count them for each box.

After the forwarding table of "Forwarding in a Content-Based Network" (Carzaniga and Wolf, SIGCOMM
2003), as the REIN paper measures it: a first level by attribute, a second by operator, and below
that the constraints of one attribute and operator in the order of their keys. An interval is two
constraints. An event's value meets all `>=` before it and all `<=` after it. A box matches when as
many of its constraints are met as it has.

The order is that of cells: buckets on one side of the event's own need no comparison, and within a
bucket the order is that of the boxes, so that an update is cheap and counting goes through memory
in one direction. With very many cells it no longer does.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from boxmatch.arrays import Int, Int32Array
from boxmatch.indexes.base import Query
from boxmatch.indexes.papers.parts.cells import Cells, cell_of, cells_of, fit_cells
from boxmatch.indexes.papers.parts.constraints import (
    ABSENT_OR_AT_MOST,
    AT_LEAST,
    AT_MOST,
    EQUAL,
    OPERATORS,
    constraints_of,
    count_constraints,
)
from boxmatch.indexes.papers.parts.counters import (
    NO_NEEDS,
    Counters,
    reset,
    run_down,
    run_down_between,
    take_zeros,
    with_needs,
)
from boxmatch.indexes.papers.parts.portions import (
    PORTION,
    ByAttribute,
    Items,
    discard_items,
    insert_items,
    no_items,
)
from boxmatch.indexes.updatable import UpdatableIndex
from boxmatch.kernels.bucket_pool import Buckets
from boxmatch.kernels.jit import kernel
from boxmatch.model.axis import ABSENT, LAST
from boxmatch.model.boxes import Boxes


class SienaState(NamedTuple):
    """The forwarding table, and how many constraints each box has.

    The constraints of attribute `a` and operator `o` whose key is in cell `c` are in bucket
    `(4 * a + o) * (number + 1) + c`.
    """

    cells: Cells
    table: Buckets
    need: Counters


class SienaIndex(UpdatableIndex):
    """Constraints by attribute, operator and key, and a counter for each box.

    `cells`: how finely the constraints of an attribute and operator are ordered.
    """

    name = "siena"
    parameters = {"cells": 100}
    _structure = SienaState
    _limits = {"cells": (1, 1_000_000)}

    def _empty(self, boxes: Boxes) -> SienaState:
        cells = self.chosen["cells"]
        table = no_items(boxes.dimensions * OPERATORS * (cells + 1))
        return SienaState(fit_cells(boxes, cells), table, NO_NEEDS)

    def _insert(self, boxes: Boxes, positions: Int32Array) -> SienaState:
        cells, table, need = self._state
        table = insert_items(table, partial(_items, cells, ByAttribute(boxes, positions)))
        wanted = count_constraints(boxes.start, boxes.low, boxes.high)
        return SienaState(cells, table, with_needs(need, wanted, positions))

    def _delete(self, boxes: Boxes, positions: Int32Array) -> None:
        cells, table, _ = self._state
        discard_items(table, partial(_items, cells, ByAttribute(boxes, positions)))

    def _search(self, query: Query) -> Int32Array:
        return _search(self._state, query)


def _items(cells: Cells, predicates: ByAttribute) -> Iterator[Items]:
    for part in predicates.portions(PORTION // 2):
        code, key, box = constraints_of(part)
        cell = cells_of(cells, (code // OPERATORS).astype(np.uint16), key)
        yield Items(code * int(cells.number[0] + 1) + cell, box, key)


@kernel
def _search(state: SienaState, query: Query) -> Int32Array:
    points, alive, _, listing, counts = query
    cells, table, need = state
    counters = np.empty_like(need)
    found = np.empty(64, np.int32)
    end: Int = np.int64(0)  # not a literal, for which kernels would be compiled twice
    row = cells.number[0] + 1  # buckets of one attribute and operator
    for event in range(len(points)):
        reset(counters, need)
        for a in range(points.shape[1]):
            key = points[event, a]
            first = a * OPERATORS * row
            cell = cell_of(cells, a, key)
            if key != ABSENT:
                least = first + AT_LEAST * row
                _meet_all(counters, table, least, least + cell)
                run_down_between(counters, table, least + cell, np.int64(ABSENT), key)
                run_down_between(counters, table, first + EQUAL * row + cell, key, key)
                _meet_from(counters, table, first + AT_MOST * row, cell, row, key)
            _meet_from(counters, table, first + ABSENT_OR_AT_MOST * row, cell, row, key)
        counts[event], found, end = take_zeros(counters, alive, listing, found, end)
    return found[:end]


@kernel
def _meet_all(counters: Counters, table: Buckets, first: int, last: int) -> None:
    """Every constraint of some neighbouring buckets is met."""
    for bucket in range(first, last):
        start = table.start[bucket]
        run_down(counters, table.box, start, start + table.size[bucket])


@kernel
def _meet_from(
    counters: Counters, table: Buckets, first: int, cell: int, row: int, key: int
) -> None:
    """Constraints of one list are met if their key is not below the event's."""
    run_down_between(counters, table, first + cell, key, np.int64(LAST))
    _meet_all(counters, table, first + cell + 1, first + row)
