"""The algorithms as published, and what papers leave open, against brute force."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from boxmatch.adaptive.adjuster import Adjuster
from boxmatch.errors import IndexConfigError, IndexTooLargeError
from boxmatch.indexes.scan import ScanIndex
from boxmatch.model.axis import ABSENT
from boxmatch.model.boxes import Boxes
from boxmatch.workloads import RangeWorkload
from boxmatch_bench.reproduce.ada_rein import elbow
from boxmatch_bench.reproduce.published import NAMES, index_class
from boxmatch_bench.reproduce.published.psam import PublishedAdjuster, skipped_as_published
from boxmatch_bench.reproduce.published.subsumption import covers
from boxmatch_bench.reproduce.published.ticks import (
    BY_MINUTE,
    MINUTES,
    fluctuation,
    ticks_by_minute,
)
from boxmatch_bench.reproduce.subject import Setting


def answers(index: Any, points: Any, alive: Any = None) -> list[set[int]]:
    found = index.match(points, alive)
    ends = np.cumsum(found.counts)[:-1]
    return [set(rows.tolist()) for rows in np.split(found.positions, ends)]


def odd_case(seed: int, values: int) -> tuple[Boxes, Any]:
    """Boxes of any number of predicates, some equal, empty, or open for absent values."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(600):
        attributes = np.sort(rng.permutation(6)[: rng.integers(0, 5)])
        ends = np.sort(rng.integers(0, values, (len(attributes), 2)), axis=1)
        rows.append((attributes, ends[:, 0], ends[:, 1]))
    sizes = [len(attributes) for attributes, _, _ in rows]
    attribute, low, high = (np.concatenate(column) for column in zip(*rows, strict=True))
    low[rng.random(len(low)) < 0.05] = ABSENT
    empty = rng.random(len(low)) < 0.02
    low[empty], high[empty] = values, 0
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    points = rng.integers(-1, values + 1, (60, 6))
    points[rng.random(points.shape) < 0.2] = ABSENT
    boxes = Boxes(
        6, start, attribute.astype(np.uint16), low.astype(np.int64), high.astype(np.int64)
    )
    return boxes, points.astype(np.int64)


def truth(boxes: Boxes, points: Any) -> list[set[int]]:
    scan = ScanIndex(boxes.dimensions)
    scan.build(boxes)
    return answers(scan, points)


class TestExact:
    @pytest.mark.parametrize("values", [3, 1_000])
    @pytest.mark.parametrize(
        ("name", "parameters"),
        [
            ("rapid-cut", {}),
            ("rapid-cut", {"cells": 1, "indexed": 1}),
            ("rapid-cut", {"cells": 7, "indexed": 3}),
            ("rein-covered", {}),
            ("rein-covered", {"compared": 1, "cells": 3}),
            ("ada-rein-published", {}),
        ],
    )
    def test_as_brute_force(self, name: str, parameters: dict[str, Any], values: int) -> None:
        boxes, points = odd_case(values, values)
        index = index_class(name)(6, **parameters)
        assert index.build(boxes) is None
        wanted = truth(boxes, points)
        assert sum(map(len, wanted)) > 200
        assert answers(index, points) == wanted
        assert index.count(points).tolist() == [len(rows) for rows in wanted]
        assert set(index.match_one(points[:1]).tolist()) == wanted[0]
        assert sum(index.nbytes.values()) > 0
        again = index_class(name).from_arrays(6, index.chosen, index.to_arrays())
        assert answers(again, points) == wanted

    @pytest.mark.parametrize("name", NAMES)
    def test_passes_over_what_is_not_alive(self, name: str) -> None:
        boxes, points = odd_case(7, 20)
        index = index_class(name)(6)
        index.build(boxes)
        alive = np.zeros((2, 8), np.uint64)
        alive[0] = np.uint64(2**64 - 1)  # the first 512
        wanted = [{row for row in rows if row < 512} for rows in truth(boxes, points)]
        assert answers(index, points, alive) == wanted


class TestSubsumption:
    def test_equal_and_covered_boxes_are_under_one(self) -> None:
        workload = RangeWorkload(
            subscriptions=2_000, attributes=3, predicates=2, event_size=3, width=0.3,
            width_spread=0.9, domain=12,
        )  # fmt: skip
        boxes = workload.boxes()
        cover = covers(boxes, 1_000)
        roots = np.flatnonzero(cover == np.arange(boxes.count))
        assert 0 < len(roots) < 400
        assert set(cover.tolist()) == set(roots.tolist())
        for row, root in enumerate(cover.tolist()):
            for mine, larger in zip(boxes.row(row), boxes.row(root), strict=True):
                assert mine[0] == larger[0]
                assert larger[1] <= mine[1] <= mine[2] <= larger[2]
        # None of the roots lies in another.
        rows = [tuple(boxes.row(root)) for root in roots.tolist()]
        for one in rows:
            assert not any(
                other != one
                and all(
                    a[0] == b[0] and b[1] <= a[1] and a[2] <= b[2]
                    for a, b in zip(one, other, strict=True)
                )
                for other in rows
            )
        index: Any = index_class("rein-covered")(3)
        index.build(boxes)
        assert index.held == len(roots) / 2_000

    def test_a_limit_only_saves_less(self) -> None:
        boxes = RangeWorkload(subscriptions=500, predicates=2, attributes=3, event_size=3).boxes()
        few, many = (len(set(covers(boxes, most).tolist())) for most in (1, 1_000))
        assert few >= many


class TestCutSpace:
    def test_refuses_what_would_be_too_large(self) -> None:
        boxes = RangeWorkload(subscriptions=500).boxes()
        index = index_class("rapid-cut")(20, memory_limit=10_000)
        with pytest.raises(IndexTooLargeError, match="copies of 500 boxes"):
            index.build(boxes)


class TestTheorem1:
    def test_is_algorithm_1(self) -> None:
        """Line by line, as the paper has it."""
        rng = np.random.default_rng(4)
        frequency = rng.zipf(1.5, 200).clip(max=400)
        n, w = 500, 0.5
        k = frequency.sum() / n
        for rate in (0.0001, 0.01, 0.3):
            skip, total, gone = np.zeros(200, bool), frequency.sum(), 0
            for a in np.argsort(frequency, kind="stable"):
                gone += frequency[a]
                if (total - gone) / n < k + np.log(rate + 1) / np.log(w):
                    break
                skip[a] = True
            np.testing.assert_array_equal(skipped_as_published(frequency, n, w, rate), skip)
        assert not skipped_as_published(frequency, n, w, 0.0).any()

    def test_does_not_bound_the_rate(self) -> None:
        """Why the package does not skip so: `boxmatch.adaptive.skipping`."""
        workload = RangeWorkload(
            subscriptions=20_000, attributes=200, predicates=5, event_size=200, width=0.5,
            attribute_choice="zipf", attribute_alpha=2.0,
        )  # fmt: skip
        setting = Setting(workload, 400)
        measured = {}
        for name in ("ada-rein", "ada-rein-published"):
            index = index_class(name)(200, rate=0.1, selectivity=0.5)
            index.build(setting.boxes)
            found = int(index.count(setting.points).sum())
            measured[name] = found / int(setting.counts.sum()) - 1
        assert measured["ada-rein"] <= 0.1 < measured["ada-rein-published"]

    def test_selectivity_has_to_be_known(self) -> None:
        index = index_class("ada-rein-published")(20, rate=0.1, selectivity=None)
        boxes = replace(RangeWorkload(), subscriptions=50).boxes()
        index.build(boxes)
        with pytest.raises(IndexConfigError, match="selectivity must be given"):
            index.match(np.ones((1, 20), np.int64))


class TestElbow:
    def test_is_where_a_curve_bends(self) -> None:
        assert elbow([0.01, 0.1, 1, 10], [0, 9, 10, 11]) == 0.1
        # The paper's own columns R1 and R2 lead to its 0.1 %.
        rates = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.03, 0.05]
        assert elbow(rates, [17.74, 21.33, 22.87, 24.78, 25.41, 26.68, 27.74]) == 0.001
        assert elbow(rates, [19.69, 23.46, 25.13, 27.74, 29.18, 30.31, 32.91]) == 0.001

    def test_takes_three_points(self) -> None:
        with pytest.raises(ValueError, match="three rates"):
            elbow([1, 2], [3, 4])


class TestPada:
    def test_is_algorithm_3(self) -> None:
        published = PublishedAdjuster()
        waited = (0.001, 0.006, 0.008, 0.007, 0.009, 0.004, 0.002, 0.002)
        rates = [published.decide(seconds) for seconds in waited]
        assert rates == pytest.approx([0, 0.0001, 0.0002, 0.0002, 0.0003, 0.0002, 0.0001, 0.0001])
        for _ in range(40):
            published.decide(0.1)
        assert published.decide(0.1) == 0.001

    def test_stays_up_where_nothing_waits_longer_or_shorter(self) -> None:
        """Which is one of the things that the package's adjuster adds to it."""
        ours, published = Adjuster(), PublishedAdjuster()
        for _ in range(5):
            ours.decide(0.01), published.decide(0.01)
        for _ in range(20):
            last = ours.decide(0.001), published.decide(0.001)
        assert last[0] == 0 < last[1]


class TestTicks:
    def test_fluctuate_as_figure_1_says(self) -> None:
        for seed in range(3):
            minutes = ticks_by_minute(seed)
            assert len(minutes) == MINUTES
            assert fluctuation(minutes) == pytest.approx(BY_MINUTE)
            assert minutes.mean() == pytest.approx(1)
            # A session begins and ends busily.
            ends, middle = minutes[:10].mean() + minutes[110:120].mean(), minutes[55:65].mean()
            assert ends / 2 > middle
