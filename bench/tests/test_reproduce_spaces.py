from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxmatch.spaces.spaces import Spaces
from boxmatch.spaces.transitions import Transitions
from boxmatch.workloads import RangeWorkload, RegionWorkload
from boxmatch_bench.answers import MismatchError
from boxmatch_bench.reproduce import operations, subject_spaces
from boxmatch_bench.reproduce.claims import AGREES, DIFFERS, UNMEASURED, Verdict, judge
from boxmatch_bench.reproduce.counts import counts_of
from boxmatch_bench.reproduce.experiment import (
    FEWEST_SUBSCRIPTIONS,
    NUMPY,
    Experiment,
    Extra,
    Series,
    scaled,
)
from boxmatch_bench.reproduce.quantities import REMOVING, SUBSCRIBING
from boxmatch_bench.reproduce.regions import PublicationColumns, Regions, Walk, check
from boxmatch_bench.reproduce.runner import METHODS, Options, plan
from boxmatch_bench.reproduce.tables import Grid
from boxmatch_bench.timing import Effort
from command_line import Command

SMALL = RegionWorkload(
    publications=40, subscriptions=60, dimensions=8, publication_constraints=5, values=12
)
QUICK = Effort(seconds=0.02)
SIZE = {"subscriptions": 100_000}
SPACES = Series(label="spaces", index="spaces")
EVERYTHING: frozenset[Extra] = frozenset({"adding", "moves", "profile"})


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


@pytest.fixture
def command(run_boxmatch: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    monkeypatch.setattr(Effort, "at_scale", classmethod(lambda cls, scale: QUICK))
    options = ("--scale", "0.0001", "--out", str(tmp_path))
    return partial(run_boxmatch, "bench", "reproduce", *options)


class TestCommand:
    def test_draws_operations_and_updates_on_disk(self, command: Command, tmp_path: Path) -> None:
        done = command("subject-spaces-matches", "subject-spaces-durable")
        assert done.code == 0, done.err
        assert "Figure 14" in done.out
        assert "Updates (per second)" in done.out
        assert "tile is the fastest" not in done.out
        rows = rows_of(tmp_path)
        updates = [row for row in rows if row["experiment"] == "subject-spaces-durable"]
        assert len(rows) == 2 + len(updates) == 2 + 3 * 6
        for row in rows:
            assert {"commit", "machine", "seed", "scale", "checked_operations"} <= set(row)
            assert row["workload"]["publications"] == FEWEST_SUBSCRIPTIONS
            assert row["workload"]["kind"] == "RegionWorkload"
        for row in updates:
            found = row["durable"]
            assert found["updates"] >= row["asked"]["parameters"]["threads"] == row["x"]
            assert found["per_second"] == pytest.approx(found["updates"] / found["seconds"])
        page = (tmp_path / "report.html").read_text()
        assert "Transitions compared with brute force" in page
        assert "operations of each thread" in page
        # What was on disk is gone.
        assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "results.jsonl"]
        command("subject-spaces-matches", "subject-spaces-durable")
        assert rows_of(tmp_path) == rows

    def test_wrong_notifications_fail(
        self, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Spaces, "update_publication", forgetful(Spaces.update_publication))
        done = command("subject-spaces-matches")
        assert done.code == 1
        assert "wrong answer: subject-spaces-matches at 100000: 100,000 pub" in done.err
        assert not (tmp_path / "results.jsonl").exists()


@pytest.mark.slow
def test_every_figure_at_a_small_scale(run_boxmatch: Command, tmp_path: Path) -> None:
    done = run_boxmatch(
        "bench", "reproduce", "subject-spaces", "--scale", "0.01", "--out", str(tmp_path)
    )
    assert done.code == 0, done.err
    wanted = {
        (e.name, point.x, series.label)
        for e in subject_spaces.PAPER.experiments
        for point in e.points
        for series in e.measured
    }
    rows = rows_of(tmp_path)
    assert {(row["experiment"], row["x"], row["series"]) for row in rows} == wanted
    for experiment in subject_spaces.PAPER.experiments:
        grid = Grid(experiment, [row for row in rows if row["experiment"] == experiment.name])
        for quantity in experiment.y:
            # Brute force neither stores subscriptions nor forgets publications.
            of_spaces = quantity in (SUBSCRIBING, REMOVING)
            rows = [row for row in grid.rows if row["index"] != "numpy" or not of_spaces]
            found = [quantity.curve_of(row) if quantity.curve else quantity.of(row) for row in rows]
            assert all(found)


def forgetful(operation: Any) -> Any:
    """The operation, which leaves out one of those whom it should tell."""

    def run(*arguments: Any, **options: Any) -> Transitions:
        told = operation(*arguments, **options)
        columns = (told.code, told.publication, told.subscription)
        return Transitions(told.first, *(column[1:] for column in columns))

    return run


class TestOperations:
    @pytest.mark.parametrize("series", [SPACES, NUMPY], ids=["spaces", "numpy"])
    def test_figures(self, series: Series) -> None:
        stages: list[str] = []
        figures = operations.measure(
            Regions(SMALL), 80, series, EVERYTHING, Effort(5.0), stages.append
        )
        for kind in ("adding", "random", "incremental"):
            assert figures[kind]["operations"] == 80
            assert figures[kind]["min"] <= figures[kind]["mean"] <= figures[kind]["max"]
        for kind in ("random", "incremental") if series is SPACES else ():
            assert figures[f"{kind}_together"]["together"] == 80
            found = figures[f"{kind}_together"]["transitions"] / figures[kind]["transitions"]
            assert 0.5 < found < 2
        assert figures["incremental"]["transitions"] < figures["random"]["transitions"]
        assert sum(part["events"] for part in figures["profile"]) == 80
        assert set(figures["line"]) == {"fixed", "each", "correlation"}
        assert figures["checked_operations"] == 2 * operations.CHECKED
        assert "updates" in stages

    def test_spaces_and_numpy_are_told_the_same(self) -> None:
        regions = Regions(SMALL)
        ours, numpy = (
            operations.measure(regions, 50, series, EVERYTHING, Effort(5.0))
            for series in (SPACES, NUMPY)
        )
        for kind in ("adding", "random", "incremental"):
            assert ours[kind]["transitions"] == numpy[kind]["transitions"]

    def test_only_what_is_asked_for(self) -> None:
        figures = operations.measure(Regions(SMALL), 5, SPACES, frozenset({"adding"}), QUICK)
        assert "adding" in figures
        assert not {"random", "incremental", "profile", "line"} & set(figures)

    def test_slow_ones_are_cut_short(self) -> None:
        figures = operations.measure(Regions(SMALL), 500, SPACES, frozenset({"moves"}), Effort(0.0))
        assert figures["random"]["operations"] == operations.AT_ONCE * operations.TURNS

    def test_publications_that_were_added_go_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        counts: list[int] = []
        publish = Spaces.publish

        def counted(spaces: Spaces, *arguments: Any) -> Transitions:
            told = publish(spaces, *arguments)
            counts.append(spaces.publication_count)
            return told

        monkeypatch.setattr(Spaces, "publish", counted)
        many = replace(SMALL, publications=500)
        operations.measure(Regions(many), 60, SPACES, frozenset({"adding"}), Effort(5.0))
        assert max(counts) == 505

    @pytest.mark.parametrize("name", ["publish", "update_publication"])
    def test_wrong_notifications_are_caught(
        self, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.setattr(Spaces, name, forgetful(getattr(Spaces, name)))
        with pytest.raises(MismatchError, match=r"publication \d+: .* and 1 missing"):
            operations.measure(Regions(SMALL), 5, SPACES, EVERYTHING, QUICK)

    def test_no_line_through_one_number(self) -> None:
        assert operations._line(np.array([5, 7]), np.array([3, 3])) == {}
        line = operations._line(np.array([2_000, 3_000, 4_000]), np.array([0, 10, 20]))
        assert line == {
            "fixed": pytest.approx(2),
            "each": pytest.approx(100),
            "correlation": pytest.approx(1),
        }


class TestRegions:
    def test_brute_force_is_right(self) -> None:
        regions = Regions(SMALL)
        subscriptions = SMALL.subscription_boxes()

        def matching(place: Any) -> set[int]:
            return {
                row
                for row in range(SMALL.subscriptions)
                if all(
                    low <= place[1][d] and place[0][d] <= high
                    for d, low, high in subscriptions.row(row)
                )
            }

        for step in islice(Walk(regions).steps("random"), 30):
            assert step.old is not None
            before, after = matching(step.old), matching(step.new)
            told = regions.columns.told(step)
            assert {(n.kind, n.subscription) for n in told} == {
                *(("enter", row) for row in after - before),
                *(("leave", row) for row in before - after),
            }
        arrived = next(regions.arrivals())
        assert arrived.publication == SMALL.publications
        told = regions.columns.told(arrived)
        assert {n.subscription for n in told} == matching(arrived.new)

    @pytest.mark.parametrize(
        "change",
        [
            lambda told: Transitions(1, 1 - told.code, told.publication, told.subscription),
            lambda told: Transitions(1, told.code, told.publication + 1, told.subscription),
            lambda told: Transitions(1, *(np.repeat(c, 2) for c in columns_of(told))),
        ],
        ids=["kind", "publication", "twice"],
    )
    def test_every_difference_counts(self, change: Any) -> None:
        regions = Regions(SMALL)
        step = next(s for s in regions.arrivals() if len(regions.columns.told(s)))
        told = regions.columns.told(step)
        check(step, told, regions.columns)
        with pytest.raises(MismatchError):
            check(step, change(told), regions.columns)

    def test_walks_go_on_from_where_they_are(self) -> None:
        regions = Regions(SMALL)
        walk = Walk(regions, 10)
        at: dict[int, Any] = {}
        lengths = set()
        for steps, most in (
            (walk.steps("incremental"), 35),
            (walk.mixed_steps(), 60),
            (walk.steps("random"), 35),
            (walk.steps("incremental"), 35),
        ):
            for step in islice(steps, most):
                assert step.old is not None
                if step.publication in at:
                    np.testing.assert_array_equal(step.old, at[step.publication])
                at[step.publication] = step.new
                lengths.add(int(np.count_nonzero(step.old[0] != step.new[0])))
        assert {1, 2, 4, 5} <= lengths
        assert len(at) == 10
        again = Walk(regions, 10)
        for _ in range(2):  # nobody stays where it is
            for step in islice(again.steps("random"), 10):
                assert np.any(step.old != step.new)

    def test_incremental_steps_are_by_one(self) -> None:
        for there, back in Walk(Regions(SMALL), 20).there_and_back():
            assert there.old is not None
            constrained = there.old[0] >= 0
            assert constrained.sum() == SMALL.publication_constraints
            assert (abs(there.new - there.old)[:, constrained] == 1).all()
            np.testing.assert_array_equal(back.old, there.new)
            np.testing.assert_array_equal(back.new, there.old)
        for step in islice(Walk(Regions(SMALL), 20).steps("incremental"), 500):
            assert step.old is not None
            constrained = step.old[0] >= 0
            assert (abs(step.new - step.old)[:, constrained] == 1).all()
            assert step.new[0, constrained].min() >= 0
            assert step.new[0, constrained].max() < SMALL.values


def columns_of(told: Transitions) -> tuple[Any, Any, Any]:
    return told.code, told.publication, told.subscription


class TestDurable:
    @pytest.mark.parametrize("sync", ["full", "normal", None])
    def test_figures(self, tmp_path: Path, sync: str | None) -> None:
        series = Series(label="x", index="spaces", parameters={"sync": sync, "threads": 3})
        with operations.Disk(Regions(SMALL), 30, tmp_path) as disk:
            first = disk.measure(series, QUICK, lambda _: None)
            again = disk.measure(series, QUICK, lambda _: None)  # goes on from there
        for figures in (first, again):
            assert figures["durable"]["updates"] >= 3
            assert figures["disk"]["syncs_per_second"] > 0
            assert figures["checked_operations"] >= 1
        assert list(tmp_path.iterdir()) == []

    def test_wrong_notifications_are_caught(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Spaces, "update_publication", forgetful(Spaces.update_publication))
        series = Series(label="x", index="spaces", parameters={"sync": "normal", "threads": 2})
        with (
            operations.Disk(Regions(SMALL), 30, tmp_path) as disk,
            pytest.raises(MismatchError, match=r"x: publication \d+"),
        ):
            disk.measure(series, Effort(0.2), lambda _: None)


class TestPlan:
    def test_publications_shrink_too(self) -> None:
        workload = RegionWorkload(publications=100_000, subscriptions=100)
        fewer = scaled(workload, 0.01)
        assert (fewer.publications, fewer.subscriptions) == (1_000, 100)

    def test_each_line_has_its_own_workload(self) -> None:
        groups = plan([subject_spaces.RANDOM, subject_spaces.INCREMENTAL], Options())
        sizes = {(g.workload.publications, g.workload.subscriptions) for g in groups}  # type: ignore[attr-defined]
        assert len(groups) == len(sizes) == 4 * 5
        # Both figures come from the same measurements, and NumPy is measured once.
        tasks = [task for group in groups for task in group.tasks.values()]
        assert all(len(task.places) == 2 for task in tasks)
        assert len(tasks) == 4 * 5 + 5

    @pytest.mark.parametrize(
        ("method", "workload", "lacks"),
        [
            ("matching", SMALL, "events"),
            ("operations", RangeWorkload(), "publications"),
            ("durable", RangeWorkload(), "publications"),
            ("spark", RangeWorkload(), "publications"),
        ],
    )
    def test_methods_need_their_workloads(
        self, tmp_path: Path, method: Any, workload: Any, lacks: str
    ) -> None:
        with (
            pytest.raises(TypeError, match=f"has no {lacks}"),
            METHODS[method](workload, 5, tmp_path),
        ):
            pass


class TestAims:
    def found(self, experiment: Experiment, scale: float = 1.0, **figures: Any) -> list[Verdict]:
        """Verdicts on our own aims, from rows that are the same at all places."""
        series = experiment.series[0].label
        rows: list[Any] = [
            {"series": series, "x": point.x, "scale": scale, **figures, "workload": SIZE}
            for point in experiment.points
        ]
        grid = Grid(experiment, rows)
        return [judge(c, grid) for c in experiment.claims if c.where == "our aim"]

    def test_are_judged(self) -> None:
        for adding, moving, rate, word in (
            (1_500.0, (150.0, 1_600.0, 70.0, 800.0), 2_500.0, AGREES),
            (2_100.0, (250.0, 2_400.0, 90.0, 800.0), 1_999.0, DIFFERS),
        ):
            slow, random, together, at_random = moving
            verdicts = [
                *self.found(subject_spaces.INSERTION, adding={"mean": adding}),
                *self.found(
                    subject_spaces.INCREMENTAL,
                    incremental={"mean": slow},
                    random={"mean": random},
                    incremental_together={"mean": together},
                    random_together={"mean": at_random},
                ),
                *self.found(subject_spaces.DURABLE, durable={"per_second": rate}),
            ]
            assert [verdict.word for verdict in verdicts] == 5 * [word]

    def test_are_for_the_full_size(self) -> None:
        (small,) = self.found(subject_spaces.INSERTION, 0.1, adding={"mean": 1.0})
        assert small.word == UNMEASURED


class TestOthers:
    def test_subscriptions_come_and_publications_go(self) -> None:
        extras: frozenset[Any] = frozenset({"others"})
        figures = operations.measure(Regions(SMALL), 40, SPACES, extras, Effort(5.0))
        assert set(figures) == {"load_seconds", "checked_operations", "subscribing", "removing"}
        for kind in ("subscribing", "removing"):
            assert figures[kind]["operations"] == 40
            assert figures[kind]["transitions"] > 0

    @pytest.mark.parametrize("name", ["subscribe", "retract"])
    def test_wrong_notifications_are_caught(
        self, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.setattr(Spaces, name, forgetful(getattr(Spaces, name)))
        with pytest.raises(MismatchError, match=r"is told of|and left"):
            operations.measure(Regions(SMALL), 40, SPACES, frozenset({"others"}), QUICK)

    def test_subscriptions_are_compared_as_whole_sets(self) -> None:
        regions = Regions(SMALL)
        columns = PublicationColumns(SMALL)
        spaces = Spaces(regions.schemas)
        regions.store(spaces)
        some = list(islice(regions.subscribing(), 20))
        told = [spaces.subscribe(step.publication, step.spec) for step in some]
        for step, heard in zip(some, told, strict=True):
            columns.check(step, heard)
        swapped = next(i for i in range(1, 20) if len(told[i]) != len(told[0]))
        with pytest.raises(MismatchError, match="overlap it"):
            columns.check(some[0], told[swapped])


class TestCounts:
    def test_as_counted_one_by_one(self) -> None:
        """Ends and candidates by the definitions of Figures 7 and 9."""
        regions = Regions(SMALL)
        boxes = SMALL.subscription_boxes()
        found = counts_of(regions, 15)

        def ends(dimension: int) -> list[tuple[int, int, int]]:
            return [
                (row, low, high)
                for row in range(boxes.count)
                for d, low, high in boxes.row(row)
                if d == dimension
            ]

        traversed, candidates, satisfied = 0, 0, 0
        for step in islice(regions.arrivals(), 15):
            missed = set()
            for d in np.flatnonzero(step.new[0] == step.new[1]).tolist():
                value = int(step.new[0, d])
                for row, low, high in ends(d):
                    traversed += low > value
                    traversed += high < value
                    satisfied += low <= value <= high
                    if low > value or high < value:
                        missed.add(row)
            candidates += boxes.count - len(missed)
        assert found["adding"] == {
            "traversed": pytest.approx(traversed / 15),
            "candidates": pytest.approx(candidates / 15),
        }
        assert found["table"]["counting"] == pytest.approx(satisfied / 15 * boxes.count)
        assert found["table"]["naïve"] == 2 * boxes.count
        for kind in ("random", "incremental"):
            traversed, candidates = 0, 0
            for step in islice(Walk(regions).steps(kind), 15):  # type: ignore[arg-type]
                assert step.old is not None
                crossed = set()
                for d in np.flatnonzero(step.new[0] == step.new[1]).tolist():
                    old, new = int(step.old[0, d]), int(step.new[0, d])
                    for row, low, high in ends(d):
                        # Begins in between on the way up, or ends there on the way down.
                        entered = old < low <= new or new <= high < old
                        traversed += entered
                        if entered:
                            crossed.add(row)
                candidates += len(crossed)
            assert found[kind] == {
                "traversed": pytest.approx(traversed / 15),
                "candidates": pytest.approx(candidates / 15),
            }
