from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from boxmatch.errors import IndexTooLargeError
from boxmatch.indexes.base import Matches
from boxmatch.indexes.registry import index_class, index_names
from boxmatch.indexes.scan import ScanIndex
from boxmatch.indexes.tile.index import TileIndex
from boxmatch.workloads import RangeWorkload, write_sample_events
from boxmatch_bench.answers import MismatchError, compare, split
from boxmatch_bench.reproduce import matching, rein, runner, tables
from boxmatch_bench.reproduce.catalogue import PAPERS, choose
from boxmatch_bench.reproduce.experiment import (
    FEWEST_SUBSCRIPTIONS,
    NUMPY,
    Axis,
    Experiment,
    Extra,
    Point,
    Series,
    scaled,
    vary,
)
from boxmatch_bench.reproduce.matching import measure_index
from boxmatch_bench.reproduce.published import NAMES
from boxmatch_bench.reproduce.published import index_class as published_class
from boxmatch_bench.reproduce.quantities import (
    BATCH,
    INSERTION,
    MATCHES,
    MEMORY,
    SINGLE,
    TIME_PER_MATCH,
)
from boxmatch_bench.reproduce.runner import Options, plan
from boxmatch_bench.reproduce.subject import Setting, Subject, answers_of_scan, skipped_by
from boxmatch_bench.results import Results
from boxmatch_bench.timing import Effort, by_matches

SMALL = RangeWorkload(subscriptions=300, attributes=6, predicates=2, event_size=6, width=0.5)
TILE = Series(label="tile", index="tile")
SCAN = Series(label="scan", index="scan")
QUICK = Effort(seconds=0.02)


def experiment(**changes: Any) -> Experiment:
    """Two points of a few hundred boxes."""
    return replace(
        Experiment(
            name="small",
            paper="rein",
            figure="Figure 0",
            title="Small",
            x=Axis("Subscriptions", log=True, scaled=True),
            y=(SINGLE, BATCH),
            tabled=(MATCHES,),
            series=(TILE, SCAN),
            points=tuple(Point(x=n, workload=replace(SMALL, subscriptions=n)) for n in (200, 300)),
            events=20,
        ),
        **changes,
    )


class Watcher:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.total = self.found = self.done = 0
        self.left: float | None = None
        self.said: list[str] = []

    def start(self, measurements: int, done: int) -> None:
        self.total, self.found = measurements, done

    def doing(self, what: str) -> None:
        self.said.append(what)

    def finished(self, left: float | None = None) -> None:
        self.done += 1
        self.left = left


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Effort, "at_scale", classmethod(lambda cls, scale: QUICK))


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(path: Path, *experiments: Experiment, **options: Any) -> Watcher:
    watcher = Watcher()
    restart = options.pop("restart", False)
    runner.run(experiments, Options(**options), Results(path, restart=restart), watcher)
    return watcher


class TestRows:
    def test_carry_everything(self, tmp_path: Path) -> None:
        watcher = run(tmp_path / "rows.jsonl", experiment(), seed=4)
        rows = rows_of(tmp_path / "rows.jsonl")
        assert [(row["x"], row["series"]) for row in rows] == [
            (n, series) for n in (200, 300) for series in ("tile", "scan", "NumPy")
        ]
        for row in rows:
            assert row["workload"] == {
                "kind": "RangeWorkload",
                **vars(replace(SMALL, subscriptions=row["x"], seed=4)),
            }
            assert {"commit", "machine", "date", "python", "packages", "version"} <= set(row)
            assert (row["scale"], row["seed"], row["event_file"]) == (1.0, 4, None)
            assert row["build_seconds"] > 0
            assert row["checked_events"] == 10
            assert row["memory"]["total"] == sum(row["memory"]["parts"].values()) > 0
            times = {"mean", "p50", "min", "max", "std", "events"}
            assert set(row["single"]) == times | {"max_matches", "min_matches"}
        assert rows[0]["parameters"] == TileIndex.parameters
        assert (watcher.total, watcher.found, watcher.done) == (6, 0, 6)
        assert watcher.left == pytest.approx(0)

    def test_matches_are_those_of_brute_force(self, tmp_path: Path) -> None:
        run(tmp_path / "rows.jsonl", experiment())
        setting = Setting(replace(SMALL, subscriptions=300), 20)
        true = np.mean([len(rows) for rows in answers_of_scan(setting.boxes, setting.points)])
        row = rows_of(tmp_path / "rows.jsonl")[3]
        assert row["matches"] == {"per_event": pytest.approx(true), "events": 20}
        np.testing.assert_array_equal(
            setting.counts, [len(r) for r in answers_of_scan(setting.boxes, setting.points)]
        )

    def test_what_two_experiments_share_is_measured_once(self, tmp_path: Path) -> None:
        again = experiment(name="again", extras=frozenset({"profile"}))
        watcher = run(tmp_path / "rows.jsonl", experiment(), again)
        rows = rows_of(tmp_path / "rows.jsonl")
        assert watcher.done == 6
        assert len(rows) == 12
        first, second = (
            next(r for r in rows if (r["experiment"], r["series"]) == (name, "tile"))
            for name in ("small", "again")
        )
        assert first["single"] == second["single"]
        assert sum(part["events"] for part in second["profile"]) == second["single"]["events"]

    def test_points_can_set_parameters(self, tmp_path: Path) -> None:
        points = tuple(
            Point(x=cells, workload=SMALL, parameters={"tile": {"cells": cells}})
            for cells in (8, 16)
        )
        watcher = run(tmp_path / "rows.jsonl", experiment(points=points))
        rows = rows_of(tmp_path / "rows.jsonl")
        assert [r["parameters"]["cells"] for r in rows if r["index"] == "tile"] == [8, 16]
        assert watcher.done == 4  # scan and NumPy have no cells: once is enough
        assert len(rows) == 6


class TestResuming:
    def test_a_second_run_measures_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        run(path, experiment())
        text = path.read_text()
        watcher = run(path, experiment())
        assert (watcher.total, watcher.found, watcher.done) == (6, 6, 0)
        assert path.read_text() == text

    def test_a_cut_run_goes_on(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        run(path, experiment())
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:2]) + lines[2][:50])  # killed while it wrote
        watcher = run(path, experiment())
        assert (watcher.found, watcher.done) == (2, 4)
        assert [(r["x"], r["series"]) for r in rows_of(path)] == [
            (n, series) for n in (200, 300) for series in ("tile", "scan", "NumPy")
        ]

    @pytest.mark.parametrize(
        "other",
        [{"seed": 2}, {"scale": 2.0}],
        ids=["seed", "scale"],
    )
    def test_another_seed_or_scale_is_another_run(
        self, tmp_path: Path, other: dict[str, Any]
    ) -> None:
        path = tmp_path / "rows.jsonl"
        run(path, experiment())
        assert run(path, experiment(), **other).done == 6
        assert len(Results(path).of_run(Options(**other).identity)) == 6

    def test_another_commit_is_another_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "rows.jsonl"
        run(path, experiment())
        origin = runner.provenance()
        monkeypatch.setattr(runner, "provenance", lambda: {**origin, "commit": "other"})
        assert run(path, experiment()).done == 6

    def test_other_parameters_are_measured(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        run(path, experiment())
        coarse = replace(TILE, parameters={"cells": 8})
        assert run(path, experiment(series=(coarse, SCAN))).done == 2

    def test_restart_forgets(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        run(path, experiment())
        assert run(path, experiment(), restart=True).done == 6
        assert len(rows_of(path)) == 6

    def test_a_file_of_something_else_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        path.write_text('{"preset": "width"}\n')
        with pytest.raises(ValueError, match="line 1 is not a result"):
            Results(path)


class TestScale:
    @pytest.mark.parametrize(
        ("subscriptions", "scale", "wanted"),
        [
            (1_000_000, 1.0, 1_000_000),
            (1_000_000, 0.02, 20_000),
            (200_000, 0.001, FEWEST_SUBSCRIPTIONS),
            (500, 0.02, 500),
            (1_000, 3.0, 3_000),
        ],
    )
    def test_shrinks_subscriptions_only(
        self, subscriptions: int, scale: float, wanted: int
    ) -> None:
        workload = replace(SMALL, subscriptions=subscriptions)
        assert scaled(workload, scale) == replace(workload, subscriptions=wanted)

    @pytest.mark.parametrize("scale", [0.0, -1.0, 11.0, float("nan")])
    def test_must_make_sense(self, scale: float) -> None:
        with pytest.raises(ValueError, match="scale"):
            Options(scale=scale)


class TestWrongAnswers:
    @pytest.mark.parametrize(
        ("lie", "message"),
        [
            ("match", "differs from scan at event .* missing"),
            ("match_one", "single events differ from a batch"),
            ("count", "count differs from match"),
        ],
    )
    def test_are_caught(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str, message: str
    ) -> None:
        class Liar(TileIndex):
            def match(self, *arguments: Any, **options: Any) -> Matches:
                counts, positions = super().match(*arguments, **options)
                if lie != "match":
                    return Matches(counts, positions)
                counts[np.flatnonzero(counts)[0]] -= 1
                return Matches(counts, positions[1:])

            def match_one(self, *arguments: Any, **options: Any) -> Any:
                found = super().match_one(*arguments, **options)
                return found[1:] if lie == "match_one" else found

            def count(self, *arguments: Any, **options: Any) -> Any:
                return super().count(*arguments, **options) + (lie == "count")

        pretend(monkeypatch, "tile", Liar)
        path = tmp_path / "rows.jsonl"
        with pytest.raises(MismatchError, match=f"small at 200: tile.*{message}"):
            run(path, experiment())
        assert not path.exists()

    def test_more_is_allowed_where_predicates_are_skipped(self) -> None:
        wanted = [np.array([1, 5])]
        compare("x", [np.array([1, 3, 5])], wanted, exact=False)
        with pytest.raises(MismatchError, match="1 boxes too many"):
            compare("x", [np.array([1, 3, 5])], wanted)
        with pytest.raises(MismatchError, match="1 missing"):
            compare("x", [np.array([1, 3])], wanted, exact=False)
        with pytest.raises(MismatchError, match="1 more than once"):
            compare("x", [np.array([1, 5, 5])], wanted, exact=False)

    def test_lost_updates_are_caught(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Forgetful(index_class("rein")):  # type: ignore[misc]
            def remove(self, positions: Any) -> None:
                pass

        pretend(monkeypatch, "rein", Forgetful)
        everything = replace(SMALL, predicates=0)  # matches every event, so removals show
        series = Series(label="REIN", index="rein")
        with pytest.raises(MismatchError, match="after updates"):
            measure_index(Setting(everything, 20), series, frozenset({"updates"}), QUICK)


def pretend(monkeypatch: pytest.MonkeyPatch, name: str, index: type) -> None:
    """Let measurements use another class for one of the names."""
    from boxmatch_bench.reproduce import subject

    monkeypatch.setattr(
        subject, "index_class", lambda wanted: index if wanted == name else index_class(wanted)
    )


class TestRefusals:
    def test_a_row_says_so(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class Greedy(ScanIndex):
            def build(self, boxes: Any) -> None:
                raise IndexTooLargeError("would take 55 GB")

        pretend(monkeypatch, "scan", Greedy)
        path = tmp_path / "rows.jsonl"
        run(path, experiment())
        refused = [row for row in rows_of(path) if "refused" in row]
        assert [row["series"] for row in refused] == ["scan", "scan"]
        assert all(row["refused"] == "would take 55 GB" for row in refused)
        assert run(path, experiment()).done == 0

    def test_updates_alone_may_be_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Cramped(index_class("rein")):  # type: ignore[misc]
            def add(self, boxes: Any) -> Any:
                if self.boxes.count < 1_000:  # lets itself be compiled
                    return super().add(boxes)
                raise IndexTooLargeError("no room to grow")

        pretend(monkeypatch, "rein", Cramped)
        setting = Setting(replace(SMALL, subscriptions=2_000), 20)
        series = Series(label="REIN", index="rein")
        figures = measure_index(setting, series, frozenset({"updates"}), QUICK)
        assert figures["updates_refused"] == "no room to grow"
        assert "insertion" not in figures
        assert figures["single"]["mean"] > 0
        assert tables.refusal(figures, INSERTION) == "no room to grow"
        assert tables.refusal(figures, SINGLE) is None

    def test_numpy_refuses_columns_that_do_not_fit(self) -> None:
        setting = Setting(SMALL, 20)
        wide = setting.boxes._replace(dimensions=2**19)
        setting.boxes = wide
        found = measure_index(setting, NUMPY, frozenset(), QUICK)
        assert "GB" in found["refused"]


class TestMeasures:
    @pytest.mark.parametrize("index", ["rein", "tile"])
    def test_updates(self, index: str) -> None:
        workload = replace(SMALL, subscriptions=3_000)
        series = Series(label=index, index=index)
        extras: frozenset[Extra] = frozenset({"updates"})
        figures = measure_index(Setting(workload, 20), series, extras, QUICK)
        for part in ("insertion", "deletion"):
            assert figures[part]["one"] > 0
            assert figures[part]["many"] > 0
            assert figures[part]["through"] == ("matcher" if index == "tile" else "index")
            assert 3 <= figures[part]["ones"] <= 1_000
        assert 1 <= figures["insertion"]["batches"] <= 5
        assert figures["insertion"]["first"] > 0
        assert 10 <= figures["deletion"]["together"] <= 1_000

    def test_the_first_insertion_is_not_in_the_mean(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = []

        def took(call: Callable[..., object], *arguments: object, **_: object) -> float:
            """Five seconds for the first update, a tenth of a millisecond for the others."""
            call(*arguments)
            if not arguments:  # else it is built
                calls.append(call)
            return 5.0 if len(calls) == 1 else 1e-4

        monkeypatch.setattr(matching, "took", took)
        setting = Setting(replace(SMALL, subscriptions=3_000), 20)
        series = Series(label="REIN", index="rein")
        insertion = measure_index(setting, series, frozenset({"updates"}), QUICK)["insertion"]
        assert insertion["first"] == 5e6
        assert insertion["one"] == pytest.approx(100)
        assert insertion["ones"] > 3  # the first one did not use up the time of the others

    def test_marks(self) -> None:
        extras: frozenset[Extra] = frozenset({"marks"})
        setting = Setting(replace(SMALL, subscriptions=2_000), 50)
        avoided = []
        for groups in (2, 8):
            series = Series(label="HEM", index="hem", parameters={"groups": groups})
            marks = measure_index(setting, series, extras, QUICK)["marks"]
            assert marks["per_event"] < marks["without"]
            avoided.append(marks["avoided"])
        assert avoided[0] < avoided[1] < 1

    def test_unsatisfied_predicates_are_counted(self) -> None:
        setting = Setting(SMALL, 15)
        attribute, low, high = setting.boxes[2:]
        failed = [
            np.count_nonzero((point[attribute] < low) | (point[attribute] > high))
            for point in setting.points
        ]
        assert setting.unsatisfied == pytest.approx(np.mean(failed))

    def test_times_by_matches(self) -> None:
        taken = np.array([1_000, 3_000, 5_000, 8_000])
        profile = by_matches(taken, np.array([0, 4, 4, 64]))
        assert profile == [
            {"matches": 0.0, "events": 1, "microseconds": 1.0},
            {"matches": 4.0, "events": 2, "microseconds": 4.0},
            {"matches": 64.0, "events": 1, "microseconds": 8.0},
        ]
        row = {"profile": profile}
        assert TIME_PER_MATCH.of(row) is None
        assert TIME_PER_MATCH.curve_of(row) == [(4.0, 1.0), (64.0, 0.125)]

    @pytest.mark.parametrize("index", ["ada-rein", "tile"])
    def test_skipping(self, index: str) -> None:
        workload = replace(
            SMALL, attributes=30, event_size=30, attribute_choice="zipf", attribute_alpha=2.0
        )
        setting = Setting(replace(workload, subscriptions=3_000), 200)
        by_argument = Series(label=index, index=index, skipping=0.1, exact=False)
        by_rate = Series(
            label=index, index=index, parameters={"rate": 0.1, "selectivity": 0.5}, exact=False
        )
        series = by_argument if index == "tile" else by_rate
        errors = measure_index(setting, series, frozenset({"errors"}), QUICK)["errors"]
        assert errors["rate"] == 0.1
        assert errors["events"] == 200
        assert 0 < errors["attributes"] < 30
        assert 0 < errors["predicates"] < errors["attributes"] * 3_000
        assert errors["measured"] == errors["false"] / errors["true"] <= 0.1
        assert -1 < errors["gain"] < 1
        if index == "ada-rein":
            assert errors["measured"] > 0
            assert 0 < errors["improvement"] < 1

    def test_what_skipping_saves_is_measured_by_turns(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A clock that stands still but for searches, which take as long as predicates are many."""
        now = 0
        asked: list[bool] = []

        class Index:
            dimensions = 4

            def match_one(self, point: Any, skipped: Any) -> None:
                nonlocal now
                asked.append(bool(len(skipped)))
                now += 600 if len(skipped) else 800
                now += 10_000 if len(asked) % 7 == 0 else 0  # somebody else's turn

        monkeypatch.setattr(matching, "thread_time_ns", lambda: now)
        monkeypatch.setattr(matching, "skipped_by", lambda subject: np.ones(4, bool))
        subject: Any = SimpleNamespace(index=Index())
        points = np.zeros((5, 4), np.int64)
        assert matching.saved(subject, points, 10.0) == pytest.approx(0.25)
        assert asked[:4] == [False, True] * 2
        assert asked[10:14] == [True, False] * 2

    def test_skipped_attributes_are_those_of_the_index(self) -> None:
        workload = replace(SMALL, attributes=30, event_size=30, attribute_choice="zipf")
        setting = Setting(workload, 100)
        for selectivity in (0.5, None):
            parameters = {"rate": 0.3, "selectivity": selectivity}
            series = Series(label="x", index="ada-rein", parameters=parameters, exact=False)
            ada_rein = Subject(series, 30)
            ada_rein.build(setting.boxes)
            scan = ScanIndex(30)
            scan.build(setting.boxes)
            skipped = skipped_by(ada_rein)
            assert skipped.any()
            wanted = scan.match(setting.points, skipped=skipped)
            compare("x", split(*ada_rein.match(setting.points)), split(*wanted))

    def test_less_effort_at_a_smaller_scale(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        seconds = [Effort.at_scale(scale).seconds for scale in (0.001, 0.02, 1.0, 4.0)]
        assert 0 < seconds[0] < seconds[1] < seconds[2] == seconds[3] == Effort().seconds


class TestEventFiles:
    def test_are_used_where_they_have_enough_columns(self, tmp_path: Path) -> None:
        file = tmp_path / "events.csv"
        write_sample_events(file)  # twelve columns
        wide = replace(SMALL, attributes=13, event_size=13)
        points = tuple(Point(x=w.attributes, workload=w) for w in (SMALL, wide))
        real = experiment(points=points, real_events=True)
        made_up = experiment(points=points, name="made up")
        files = {
            (place.experiment.name, place.point.x): place.workload.event_file  # type: ignore[attr-defined]
            for group in plan([real, made_up], Options(event_file=file))
            for task in group.tasks.values()
            for place in task.places
        }
        assert files == {
            ("small", 6): str(file),
            ("small", 13): None,
            ("made up", 6): None,
            ("made up", 13): None,
        }

    def test_belong_to_the_run(self, tmp_path: Path) -> None:
        file = tmp_path / "events.csv"
        write_sample_events(file)
        path = tmp_path / "rows.jsonl"
        run(path, experiment(real_events=True))
        watcher = run(path, experiment(real_events=True), event_file=file)
        assert watcher.done == 6
        assert len(Results(path).of_run({"event_file": str(file)})) == 6


class TestFull:
    def test_what_is_always_measured_stays_so(self) -> None:
        points = vary(SMALL, (200, 400), "subscriptions", full=(300, 400, 500))
        assert [(point.x, point.full) for point in points] == [
            (200, False),
            (300, True),
            (400, False),
            (500, True),
        ]

    def test_has_the_sizes_that_are_left_out(self) -> None:
        chosen = choose(["hem-subscriptions", "rein-constraints"])
        some, every = (
            {group.workload.subscriptions for group in plan(chosen, Options(full=full))}
            for full in (False, True)
        )
        assert some == {300_000, 1_000_000, 3_000_000}
        assert every - some == {5_000_000, 7_000_000, 9_000_000}

    def test_goes_on_from_a_run_without_them(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        more = experiment(
            points=tuple(
                Point(x=n, workload=replace(SMALL, subscriptions=n), full=n == 300)
                for n in (200, 300)
            )
        )
        assert run(path, more).done == 3
        watcher = run(path, more, full=True)
        assert (watcher.found, watcher.done) == (3, 3)


class TestForecast:
    def test_is_what_was_taken_for_what_is_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = 100.0
        monkeypatch.setattr(runner, "perf_counter", lambda: now)
        forecast = runner.Forecast(10.0)
        now = 106.0
        assert forecast.after(2.0) == pytest.approx(24)
        now = 112.0
        assert forecast.after(2.0) == pytest.approx(18)

    def test_larger_workloads_take_longer(self) -> None:
        small, large, queue = (
            min(runner.weight(group) for group in plan(choose([name]), Options()))
            for name in ("rapidmatch-alpha", "rein-buckets", "ada-rein-latency")
        )
        assert small < large < queue


class TestCatalogue:
    def test_names(self) -> None:
        names = [e.name for paper in PAPERS.values() for e in paper.experiments]
        assert len(names) == len(set(names))
        for name, paper in PAPERS.items():
            assert [e.name for e in choose([name])] == [e.name for e in paper.experiments]
            assert all(e.paper == name for e in paper.experiments)
        on_spark = [e.name for e in choose(["subject-spaces-spark"])]  # not part of all
        assert [e.name for e in choose(["all", "rein"])] + on_spark == names
        assert [e.name for e in choose(["rein-width", "rein-width"])] == ["rein-width"]
        with pytest.raises(ValueError, match="no paper or experiment is called 'nope'"):
            choose(["nope"])

    @pytest.mark.parametrize(
        "chosen", choose(["all", "subject-spaces-spark"]), ids=lambda e: e.name
    )
    def test_experiments_are_sound(self, chosen: Experiment) -> None:
        places = [point.x for point in chosen.points]
        assert len(places) == len(set(places))
        labels = {series.label for series in chosen.series}
        matching = chosen.method == "matching"
        about_one = {"hem-marking", "hem-theorem", "hem-rein-parts"}
        of_theirs = {"rein-insertion-width", "rapidmatch-most-ones"}
        assert "tile" in labels or chosen.name in about_one | of_theirs or not matching
        drawn = {*chosen.y, *chosen.tabled}
        for figure in chosen.published:
            assert figure.x in places
            assert figure.series in labels or chosen.paper == "hem"
            assert figure.quantity in drawn
            assert figure.value >= 0
        for series in chosen.series if matching else ():
            assert series.index in {*index_names(), *NAMES}
            for point in chosen.points:
                here = point.series(series)
                published_class(here.index)(4, **here.parameters)  # complains about wrong ones

    def test_published_matches_are_what_the_workloads_expect(self) -> None:
        """The papers drew other random numbers, so our settings are theirs if these agree."""
        for chosen in rein.PAPER.experiments:
            for figure in chosen.published:
                if figure.quantity.path == MATCHES.path and figure.value > 1_000:
                    (point,) = (p for p in chosen.points if p.x == figure.x)
                    assert isinstance(point.workload, RangeWorkload)
                    expected = 400 * point.workload.expected_matches
                    assert figure.value == pytest.approx(expected, rel=0.15)

    def test_memory_by_formula(self) -> None:
        (memory,) = choose(["rein-memory"])
        at = {(p.series, p.x): p.value for p in memory.published if p.quantity == MEMORY}
        assert at["REIN", 2_000_000] == pytest.approx(320.008)
        assert at["H-TREE", 200_000] == pytest.approx(583.57, abs=0.01)
