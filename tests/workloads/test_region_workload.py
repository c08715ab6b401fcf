from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from chunking import EDGE, in_chunks

from boxmatch.workloads import RegionWorkload

SMALL = RegionWorkload(publications=400, subscriptions=500, publication_constraints=25)
KINDS: list[Literal["random", "incremental"]] = ["random", "incremental"]


def test_rows_do_not_depend_on_chunks() -> None:
    assert in_chunks(SMALL.publication_boxes)
    assert in_chunks(SMALL.subscription_boxes)


@pytest.mark.parametrize("kind", KINDS)
def test_updates_do_not_depend_on_chunks(kind: Literal["random", "incremental"]) -> None:
    whole = SMALL.updates(EDGE - 5, EDGE + 5, kind=kind, count=6)
    assert whole.shape == (6, 10, 25)
    for rows in (slice(0, 4), slice(4, 5), slice(5, 10)):
        part = SMALL.updates(EDGE - 5 + rows.start, EDGE - 5 + rows.stop, kind=kind, count=6)
        assert np.array_equal(part, whole[:, rows])
    late = SMALL.updates(EDGE - 5, EDGE + 5, kind=kind, first=4, count=2)
    assert np.array_equal(late, whole[4:])


def test_publications_are_points_and_subscriptions_intervals() -> None:
    publications, subscriptions = SMALL.publication_boxes(), SMALL.subscription_boxes()
    assert (publications.count, subscriptions.count) == (400, 500)
    for boxes, constraints in ((publications, 25), (subscriptions, 2)):
        assert boxes.dimensions == 50
        assert (np.diff(boxes.start) == constraints).all()
        assert (np.diff(boxes.attribute.reshape(-1, constraints).astype(int)) > 0).all()
        assert set(np.concatenate([boxes.low, boxes.high])) == set(range(100))
        assert np.bincount(boxes.attribute, minlength=50).min() > 0
    assert np.array_equal(publications.low, publications.high)
    assert (subscriptions.low <= subscriptions.high).all()
    # Two uniform ends are a third of the domain apart.
    assert (subscriptions.high - subscriptions.low).mean() == pytest.approx(33.3, rel=0.1)


@pytest.mark.parametrize(("width", "span"), [(0.2, 20), (1.0, 100), (0.0, 1)])
def test_intervals_of_one_width(width: float, span: int) -> None:
    boxes = replace(SMALL, width=width).subscription_boxes()
    assert (boxes.high - boxes.low == span - 1).all()
    assert (boxes.low.min(), boxes.high.max()) == (0, 99)


def test_regions_as_dicts() -> None:
    boxes = SMALL.subscription_boxes(3, 5)
    made = [
        [(int(name[1:]), low, high) for name, (low, high) in filter_.items()]
        for filter_ in SMALL.filters(3, 5)
    ]
    columns = (boxes.attribute.tolist(), boxes.low.tolist(), boxes.high.tolist())
    wanted = list(zip(*columns, strict=True))
    assert made == [wanted[:2], wanted[2:]]
    assert SMALL.schema.names == tuple(SMALL.names)


def test_random_updates_draw_from_the_whole_domain() -> None:
    made = SMALL.updates(kind="random", count=4)
    assert np.bincount(made.ravel(), minlength=100) == pytest.approx(400, rel=0.25)
    before = SMALL.publication_boxes().low.reshape(400, 25)
    for one, other in ((before, made[0]), (made[0], made[1]), (made[2], made[3])):
        assert np.mean(one == other) == pytest.approx(0.01, abs=0.006)


@pytest.mark.parametrize("values", [2, 3, 100])
def test_incremental_updates_move_by_one(values: int) -> None:
    workload = RegionWorkload(publications=200, publication_constraints=5, values=values)
    before = workload.publication_boxes().low.reshape(1, 200, 5)
    path = np.concatenate([before, workload.updates(kind="incremental", count=30)])
    steps = np.diff(path, axis=0)
    assert set(np.unique(steps)) == {-1, 1}
    assert path.min() == 0
    assert path.max() == values - 1
    inside = (path[:-1] > 0) & (path[:-1] < values - 1)
    if values > 2:
        assert (steps[inside] == 1).mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_update(kind: Literal["random", "incremental"]) -> None:
    assert SMALL.updates(3, 3, kind=kind, count=2).shape == (2, 0, 25)
    assert SMALL.updates(0, 4, kind=kind, count=0).shape == (0, 4, 25)
    bare = RegionWorkload(publications=6, publication_constraints=0)
    assert bare.updates(kind=kind).shape == (1, 6, 0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"publications": -1}, "publications must be at least 0"),
        ({"dimensions": 0}, "dimensions must be from 1"),
        ({"publication_constraints": 51}, "publication_constraints must be from 0"),
        ({"subscription_constraints": -1}, "subscription_constraints must be from 0"),
        ({"values": 1}, "values must be at least 2"),
    ],
)
def test_parameters_are_checked(parameters: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RegionWorkload(**parameters)


def test_updates_are_checked() -> None:
    with pytest.raises(ValueError, match="one of random, incremental"):
        SMALL.updates(kind="sideways")
    with pytest.raises(ValueError, match="updates -1:0 are not a range"):
        SMALL.updates(first=-1)
    with pytest.raises(ValueError, match="rows 5:4 are not a range"):
        SMALL.updates(5, 4)
