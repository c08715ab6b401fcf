"""Rows near the edge of a block, and how to compare boxes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from boxmatch.model.boxes import Boxes
from boxmatch.workloads import streams

EDGE = streams.BLOCK  # rows on both sides come from different random streams


def same_boxes(one: Boxes, other: Boxes) -> bool:
    return one.dimensions == other.dimensions and all(
        np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(one[1:], other[1:], strict=True)
    )


def in_chunks(make: Callable[[int, int], Boxes]) -> bool:
    """Whether rows around the edge of a block are the same in one piece and in several."""
    cuts = [EDGE - 50, EDGE - 49, EDGE, EDGE + 7, EDGE + 7, EDGE + 50]
    parts = [make(a, b) for a, b in pairwise(cuts)]
    return same_boxes(make(cuts[0], cuts[-1]), Boxes.concatenate(parts))
