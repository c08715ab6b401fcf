"""A custom index: the algorithm, its name, and the test suite that every index must pass.

It stores each box under its narrowest predicate, sorted by the low bound. An event checks only the
boxes whose narrowest predicate begins at or before its value.

Run it with `python own_index.py`. This runs all tests of `tests/indexes` and `tests/engine` that
apply to every index, so it needs a clone of the repository with what `make test` installs. With
arguments it is the command `boxmatch` with this index added:
`python own_index.py bench equality --index narrowest`.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from boxmatch.arrays import Int32Array, Int64Array
from boxmatch.indexes.base import Query
from boxmatch.indexes.registry import register
from boxmatch.indexes.updatable import UpdatableIndex
from boxmatch.kernels.box_lists import is_alive, longer
from boxmatch.kernels.jit import kernel
from boxmatch.model.boxes import Boxes


class Files(NamedTuple):
    """Boxes by attribute and low bound, followed by those that every event must check."""

    box: Int32Array
    begin: Int64Array
    first: Int64Array


@register
class NarrowestIndex(UpdatableIndex):
    """`UpdatableIndex` does the rest: positions, live boxes, updates, storage."""

    name = "narrowest"
    _structure = Files

    def _make(self, boxes: Boxes, positions: Int32Array) -> Files:
        sizes = np.diff(boxes.start)
        width = boxes.high.astype(float) - boxes.low
        by_width = np.lexsort((width, np.repeat(np.arange(boxes.count), sizes)))
        filed = np.flatnonzero(sizes)  # boxes without predicates come last
        narrowest = by_width[boxes.start[filed]]
        order = np.lexsort((boxes.low[narrowest], boxes.attribute[narrowest]))
        begin, attribute = boxes.low[narrowest][order], boxes.attribute[narrowest][order]
        box = positions[np.concatenate([filed[order], np.flatnonzero(sizes == 0)])]
        return Files(box, begin, np.searchsorted(attribute, np.arange(boxes.dimensions + 1)))

    def _insert(self, boxes: Boxes, positions: Int32Array) -> Files:
        # Every event checks these, until there are so many that `_make` is called again.
        return self._state._replace(box=np.concatenate([self._state.box, positions]))

    def _delete(self, boxes: Boxes, positions: Int32Array) -> None:
        pass  # `alive` leaves them out

    def _search(self, query: Query) -> Int32Array:
        return _search(*self.boxes[1:], *self._state, query)


@kernel
def _search(start, attribute, low, high, box, begin, first, query):
    points, alive, _, listing, counts = query
    found, end = np.empty(64, np.int32), 0
    for event in range(len(points)):
        counts[event] = 0
        for group in range(len(first)):  # the last group is checked by every event
            at, stop = first[group], len(box)
            if group < points.shape[1]:
                begins = begin[at : first[group + 1]]
                stop = at + np.searchsorted(begins, points[event, group], side="right")
            for i in range(at, stop):
                holds, p = is_alive(alive, box[i]), start[box[i]]
                while holds and p < start[box[i] + 1]:
                    holds = low[p] <= points[event, attribute[p]] <= high[p]
                    p += 1
                if holds and listing:
                    found = longer(found, 2 * end) if end == len(found) else found
                    found[end] = box[i]
                    end += 1
                counts[event] += holds
    return found[:end]


if __name__ == "__main__":
    if sys.argv[1:]:
        from boxmatch.cli import main

        main()
    import pytest

    tests = Path(__file__).parent.parent / "tests"
    suites = [str(tests / "indexes"), str(tests / "engine")]
    sys.exit(pytest.main([*suites, "-q", "-k", NarrowestIndex.name]))
