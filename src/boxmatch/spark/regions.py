"""Regions as tables and indexes have them: what subscriptions of publications may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from boxmatch.errors import SparkError
from boxmatch.model.axis import ABSENT
from boxmatch.spark.columns import End
from boxmatch.spark.segments import OpenShard


def check_ends(ends: Mapping[str, tuple[str, End]], what: str) -> None:
    """Raise an error if a dimension has both a value and a range."""
    for dimension in {dimension for dimension, _ in ends.values()}:
        given = [name for name, (own, _) in ends.items() if own == dimension]
        if dimension in given and len(given) > 1:
            raise SparkError(
                f"the {what} have columns {', '.join(map(repr, given))}: give a value or a range"
            )


def check_regions(shard: OpenShard, *, ranges: bool) -> None:
    """Raise an error if a subscription asks for what no publication has, or for nothing at all.

    If they are `ranges`, rather than texts, also for one that holds nothing.
    """
    for segment in shard.segments:
        if segment.matcher is None:
            continue
        for view in segment.matcher.snapshot.views:
            boxes, rows = view.store.boxes, np.asarray(view.store.ids)
            free = np.diff(boxes.start) == 0
            if free.any():
                one = _id(segment.ids, rows, int(free.argmax()))
                raise SparkError(f"subscription {one!r}: its filter constrains no dimension")
            absent = (boxes.low == ABSENT) & (boxes.high == ABSENT)
            empty = boxes.low > boxes.high
            wrong = absent | empty if ranges else absent
            if wrong.any():
                at = int(wrong.argmax())
                box = int(np.searchsorted(boxes.start, at, side="right")) - 1
                name = segment.matcher.schema.names[boxes.attribute[at]]
                reason = f"{name} IS NULL: a publication has a value or any value"
                if empty[at]:
                    reason = f"no value of {name} is in its range"
                raise SparkError(f"subscription {_id(segment.ids, rows, box)!r}: {reason}")


def _id(ids: Any, rows: Any, position: int) -> Any:
    return ids[int(rows[position])].as_py()
