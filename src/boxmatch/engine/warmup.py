"""Having kernels compiled, or loaded from the cache: by using them on a few subscriptions."""

from __future__ import annotations

from typing import Any

import numpy as np

from boxmatch.engine.matcher import Matcher
from boxmatch.indexes.base import NO_LINES
from boxmatch.indexes.scan import scan_over
from boxmatch.indexes.tile.blocks import BlockSearch
from boxmatch.indexes.tile.build import build_tiles
from boxmatch.indexes.tile.groups import regroup
from boxmatch.indexes.tile.layout import RankedPredicates
from boxmatch.kernels.background import Stage, background
from boxmatch.kernels.bit_lines import LINE_BITS
from boxmatch.kernels.box_lists import once_per_owner_and_point
from boxmatch.kernels.pieces import LONG, take
from boxmatch.kernels.radix import sorted_keys, stable_order
from boxmatch.model.box_kernels import count_attributes
from boxmatch.model.boxes import Boxes
from boxmatch.model.filters import compile_many
from boxmatch.model.points import ListKeys
from boxmatch.model.schema import Schema, SchemaSpec


def warm_up(matcher: Matcher) -> None:
    """Have all kernels that a matcher needs, and wait for them."""
    index, parameters = matcher.index, matcher._parameters
    lists = any(one.repeated or one.type in ("string", "json") for one in matcher.schema)
    last = Stage.LISTS if lists else Stage.INDEX
    with background.in_this_thread(last if index == "tile" else Stage.SCAN):
        _use_scan()
        _use_index(matcher.schema, index, parameters)
        if lists:
            _use_lists(index, parameters)


def load(stage: Stage) -> None:
    """Use the kernels of a stage."""
    if stage == Stage.SCAN:
        _use_scan()
    elif stage == Stage.INDEX:
        _use_index({"number": "int", "text": "string"}, "tile", {})
    elif stage == Stage.LISTS:
        _use_lists("tile", {})


def _use_scan() -> None:
    boxes = Boxes.of(1, [[(0, 1, 2)], [(0, 3, 4)]])
    count_attributes(boxes.attribute, 1)
    scan = scan_over(boxes, 1)
    points = np.ones((2, 1), np.int64)
    scan.match_one(points[:1])
    sets = ListKeys.of([0], [(np.arange(3), np.ones(2, np.int64))])
    scan.count(points, lists=sets)


def _use_index(schema: SchemaSpec, index: str, parameters: dict[str, Any]) -> None:
    trial = Matcher(schema, index=index, **parameters)
    count = 64
    keys = np.arange(count * len(trial.schema)).reshape(count, -1) % 97
    trial._subscribe_compressed(np.arange(count), Boxes.from_dense(keys, keys + 50))
    trial._subscribe_compressed(np.arange(count, 2 * count), Boxes.from_dense(keys, keys))
    trial.subscribe(0, {})
    trial.unsubscribe(1)
    trial.compact()
    trial.subscribe(2, {})  # something for the tail
    snapshot = trial.snapshot
    snapshot.skipped(0.5)
    batch = snapshot.batch([{}] * 300)
    for view in snapshot.views:
        view.match_one(batch.points.part(0, 1))
        view.match(batch)
        view.count(batch)
    trial.nearest({}, limit=0)  # its keys are of no string that could be shown
    # What only `subscribe_boxes` needs.
    trial = Matcher({"number": "float"}, index=index, **parameters)
    trial.subscribe_boxes([0], [[0.0]], [[1.0]])
    _use_texts()
    if index == "tile":
        _use_what_is_for_many()


def _use_texts() -> None:
    """Use what only many filters as texts need."""
    texts = [f"number > {n} AND text = 'a'" for n in range(8)]
    compile_many(Schema({"number": "float", "text": "string"}), texts)


def _use_what_is_for_many() -> None:
    """Use what only large builds and batches with many matches need."""
    keys = np.arange(2_000)
    sorted_keys(keys)
    stable_order(keys.astype(np.uint64))
    boxes = Boxes.of(1, [[(0, 1, 2)]])
    state, _ = build_tiles(boxes, 64, 1)
    search = BlockSearch(state)
    points, counts = np.ones((2, 1), np.int64), np.empty(2, np.int64)
    search.count(points, NO_LINES, counts)
    search.list(points, NO_LINES, counts)
    ranks = np.tile(np.array([1, 2], np.uint16), 4 * LINE_BITS)
    regroup(
        RankedPredicates(np.arange(0, len(ranks) + 1, 2), ranks - np.uint16(1), ranks, ranks),
        np.array([0, 4, 8], np.int32),
        np.full(2, 0.5),
        np.arange(2, dtype=np.uint16),
        np.arange(len(ranks) // 2, dtype=np.int32),
        1,
        least_tiles=1,
        worth=np.inf,
    )
    take(keys, np.zeros(LONG + 1, np.int32))
    once_per_owner_and_point(np.zeros(1, np.int32), np.ones(1, np.int64), np.zeros(1, np.int32))


def _use_lists(index: str, parameters: dict[str, Any]) -> None:
    """Use what only lists and tests of texts need."""
    schema = {"numbers": "list of int", "texts": "list of string", "text": "string"}
    trial = Matcher(schema, index=index, **parameters)
    filters = ("ANY(numbers) > 1", "'a' = ANY(texts)", "text LIKE '%a%'")
    for id, filter in enumerate(filters):
        trial.subscribe(id, filter)
    event = {"numbers": [1, 3], "texts": ["a", "b"], "text": "bab"}
    for _ in range(2):
        trial.match(event)
        trial.match_batch([event] * 300, threads=1)
        trial.count_batch([event] * 300, threads=1)
        trial.nearest(event, limit=1)
        trial.compact()
