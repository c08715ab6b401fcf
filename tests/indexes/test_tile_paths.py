"""The ways in which the tile index comes to its answers, each of them taken and compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from box_oracle import KINDS, Case, check_large, large_case

from boxmatch.indexes.registry import index_class
from boxmatch.model.boxes import Boxes


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Which ways the answers came: by `lines`, by a `sweep`, or by rows of ends for a `few` events.

    Or one by one (`single`).
    """
    from boxmatch.indexes.tile import index as module

    taken: set[str] = set()
    batch, few, sweep = module.search_batch, module.search_few, module.order_events

    def by_batch(*arguments: Any) -> Any:
        order = arguments[4]
        if len(order) == 0:
            taken.add("lines")
        return batch(*arguments)

    def by_few(*arguments: Any) -> Any:
        taken.add("few" if len(arguments[1]) > 1 else "single")
        return few(*arguments)

    def by_sweep(*arguments: Any) -> Any:
        taken.add("sweep")
        return sweep(*arguments)

    monkeypatch.setattr(module, "search_batch", by_batch)
    monkeypatch.setattr(module, "search_few", by_few)
    monkeypatch.setattr(module, "order_events", by_sweep)
    return taken


@pytest.mark.parametrize(
    ("kind", "events", "expected"),
    [
        ("uniform", 300, "lines"),
        ("equality", 300, "lines"),
        ("dense", 63, "few"),
    ],
)
def test_which_way_the_answers_come(paths: set[str], kind: str, events: int, expected: str) -> None:
    # Without odd predicates, since those that rule nothing out are themselves dense.
    check_large("tile", large_case(kind, 3000, events, seed=7, odd=0.0), seed=7)
    assert paths == {expected, "single"}


@pytest.mark.parametrize("pays", [True, False])
@pytest.mark.parametrize("events", [256, 4096 + 37])
@pytest.mark.parametrize("kind", ["dense", "sizes", "edges", "attributes"])
def test_sweeping_whether_it_pays_or_not(
    paths: set[str], monkeypatch: pytest.MonkeyPatch, kind: str, events: int, pays: bool
) -> None:
    from boxmatch.indexes.tile import index as module

    monkeypatch.setattr(module, "sweeping_pays", lambda state, points: pays)
    # Half of the predicates odd makes any kind dense.
    odd = 0.02 if kind == "dense" else 0.5
    index = check_large("tile", large_case(kind, 700, events, seed=8, odd=odd), seed=8)
    in_rows = len(index.to_arrays()["row_line"]) > 0
    assert paths == ({"sweep", "few", "single"} if in_rows and pays else {"lines", "single"})
    assert in_rows or kind != "dense"


def test_large_cases_reach_every_structure() -> None:
    """Ends, boxes without lines, doubt and none, tiles that the directory tells apart."""
    states = {}
    for kind in KINDS:
        case = large_case(kind, 3000, 1, seed=7, odd=0.0)
        index = index_class("tile")(case.boxes.dimensions)
        index.build(case.boxes)
        states[kind] = index.to_arrays()
    with_ends = {kind for kind, state in states.items() if len(state["endpoint_key"])}
    assert "dense" in with_ends
    assert "equality" not in with_ends
    assert "attributes" in {kind for kind, state in states.items() if state["unlined"].any()}
    assert "uniform" in {kind for kind, state in states.items() if state["unsettled"].any()}
    assert any(not np.array_equal(s["unsettled"], s["filled"]) for s in states.values())
    assert "zipf" in {kind for kind, state in states.items() if len(state["top_attribute"])}
    assert all(len(state["filled"]) == 6 for state in states.values())


def test_endpoints_decide_when_many_boxes_are_unverified(paths: set[str]) -> None:
    """Small batches of a dense workload, with boxes among them that have too rare attributes."""
    rng = np.random.default_rng(3)
    rows = []
    for number in range(1500):
        low = int(rng.integers(0, 200_000))
        row = [(0, low, low + 700_000), (1, low // 2, 900_000 - low)]
        if number % 40 == 0:
            row.append((int(rng.integers(2, 60)), 0, 500_000))
        rows.append(row)
    boxes = Boxes.of(60, rows)
    points = rng.integers(0, 1_000_000, (60, 60))
    points[::2, :2] = rng.integers(200_000, 700_000, (30, 2))
    state = check_large("tile", Case(boxes, points), seed=1).to_arrays()
    assert len(state["endpoint_key"]) > 0
    assert state["unlined"].any()
    assert paths == {"few", "single"}
    # The same through a sweep, which has to settle the unlined ones too.
    check_large("tile", Case(boxes, np.tile(points, (5, 1))), seed=2)
    assert "sweep" in paths
