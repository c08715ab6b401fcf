"""`boxmatch bench spark` at a tiny scale: that figures are there and answers are checked."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from boxmatch.cli import app
from boxmatch.errors import SparkError
from boxmatch.spaces.transitions import Transitions
from boxmatch.workloads import RegionWorkload
from boxmatch_bench.answers import FailedError, MismatchError
from boxmatch_bench.options import SparkOptions
from boxmatch_bench.reproduce.experiment import Series
from boxmatch_bench.reproduce.regions import Regions
from boxmatch_bench.settings import SWEEPS, Movement, SparkSetting, choose_movement, choose_sweeps
from boxmatch_bench.spark import engine, measure, memory
from boxmatch_bench.spark.engine import Digest, Files, pairs_of
from boxmatch_bench.spark.estimate import Rates, Target, growth, needs
from boxmatch_bench.spark.measure import run_apart
from boxmatch_bench.spark.transitions import Jobs, Told, in_spaces
from boxmatch_bench.timing import Effort, Figures

TINY = ["--subscriptions", "3000", "--events", "2000", "--repeats", "1", "--sql-sample", "4"]


# One run for all of them: they go to the same process.


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], Path]:
    """What one run printed, its JSON line, and where that is."""
    folder = tmp_path_factory.mktemp("bench")
    path = folder / "rows.jsonl"
    arguments = ["bench", "spark", *TINY, "--check", "10", "--shards", "2"]
    arguments += ["--sql-subscriptions", "1000", "--json", str(path), "--scratch", str(folder)]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
            patch.delenv(name, raising=False)  # of a session that other tests have
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (line,) = path.read_text().splitlines()
    assert [entry.name for entry in folder.iterdir()] == ["rows.jsonl"]
    return done.output, json.loads(line), path


@pytest.mark.slow
def test_a_row_has_all_figures(run: tuple[str, dict[str, Any], Path]) -> None:
    _, row, _ = run
    assert row["parameters"]["subscriptions"] == 3_000
    assert row["events"] == 2_000
    assert row["prepare"]["shards"] == 2
    assert row["prepare"]["index_bytes"] > 0
    assert row["options"]["cores"] == 2
    assert row["checked_events"] == 10
    assert {"commit", "machine", "packages", "date"} <= row.keys()
    pairs = row["spark"]["pairs"]
    assert pairs > 0
    assert pairs == row["engine"]["shards"]["pairs"] == row["engine"]["whole"]["pairs"]
    assert row["overhead"] == pytest.approx(
        row["spark"]["seconds"] / row["engine"][row["engine"]["faster"]]["seconds"]
    )


@pytest.mark.slow
def test_the_join_in_sql_says_what_it_is(run: tuple[str, dict[str, Any], Path]) -> None:
    joined = run[1]["sql"]
    assert joined["operator"] == "BroadcastNestedLoopJoin"
    assert (joined["events"], joined["subscriptions"]) == (4, 1_000)
    assert joined["scaled"] == 3.0
    assert "(scaled)" in run[0]


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux tells in /proc")
@pytest.mark.slow
def test_workers_were_watched(run: tuple[str, dict[str, Any], Path]) -> None:
    held, index = run[1]["memory"], run[1]["prepare"]["index_bytes"]
    assert held["workers"]
    for worker in held["workers"]:
        assert worker["resident"] >= worker["proportional"] >= worker["private"] > 0
        assert worker["resident"] == worker["shared"] + worker["private"]
    pages = 4096 * 200  # files are mapped by pages, and there are many small ones
    assert 0 < held["index_proportional"] <= index + pages


@pytest.mark.slow
def test_an_estimate_from_the_row(run: tuple[str, dict[str, Any], Path]) -> None:
    done = CliRunner().invoke(app, ["bench", "spark", "--estimate", "--json", str(run[2])])
    assert done.exit_code == 0, done.output
    assert "1,000,000,000 subscriptions" in done.output
    assert "replicated" in done.output
    assert "sharded" in done.output


def _row(subscriptions: int, seconds: float) -> dict[str, Any]:
    return {
        "parameters": {"subscriptions": subscriptions, "attributes": 9},
        "events": 1_000_000,
        "options": {"cores": 2},
        "prepare": {"build_seconds": 5.0, "index_bytes": 100 * subscriptions},
        "spark": {"seconds": seconds, "pairs": 2 * subscriptions},
        "engine": {"shards": {"match_seconds": seconds - 1}},
    }


def test_estimates_by_hand() -> None:
    rates = Rates.of(_row(10**6, 11.0))
    # 2 cores × 11 s for a million events, of which 1 s is not matching
    assert rates.event_microseconds == pytest.approx(22)
    assert rates.row_microseconds == pytest.approx(2)
    assert rates.build_microseconds == pytest.approx(10)
    assert rates.event_bytes == 80
    target = Target(machine_cores=100, machine_bytes=40 * 10**9, index_share=0.75, busy=0.5)
    replicated, sharded = needs(rates, None, target)
    # a thousand times the subscriptions: 20,000 µs of matching, and 2 µs for the event itself
    assert replicated.cores == replicated.cores_if_growth_holds == pytest.approx(2 * 20_002)
    assert replicated.machines == 401
    assert replicated.memory == pytest.approx(100e9)
    assert not replicated.fits
    # 100 GB in shares of 30 GB
    assert (sharded.shards, sharded.fits) == (4, True)
    assert sharded.cores == pytest.approx(2 * 20_008)
    assert sharded.event_rows == 4e6
    assert sharded.events_network == pytest.approx(4e6 * 80)


def test_growth_is_fitted() -> None:
    assert growth([_row(10**6, 11.0)]) is None
    rows = [_row(n, 1 + 2 * n**0.5) for n in (10**4, 10**5, 10**6)]
    rows.append({**_row(10**5, 1e6), "events": 10})  # another number of events
    exponent = growth(rows)
    assert exponent == pytest.approx(0.5)
    replicated, _ = needs(Rates.of(rows[2]), exponent, Target())
    assert replicated.cores_if_growth_holds < replicated.cores / 10


def test_sweeps() -> None:
    (default,) = choose_sweeps([], None, None, 1)
    assert (default.preset, default.workload.subscriptions, default.events) == (
        "default", 10**6, 10**6,
    )  # fmt: skip
    both = choose_sweeps(["subscriptions", "events"], 5, 7, 3)
    assert [s.workload.subscriptions for s in both] == [*SWEEPS["subscriptions"], 5, 5, 5, 5]
    assert [s.events for s in both] == [7, 7, 7, 7, 7, *SWEEPS["events"]]
    assert {s.workload.seed for s in both} == {3}
    with pytest.raises(ValueError, match="no sweep 'width'"):
        choose_sweeps(["width"], None, None, 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"master": "local[*]"}, "must say how many cores"),
        ({"master": "local[0]"}, "at least one core"),
        ({"plan": "fast"}, "plan is one of"),
        ({"shards": 0}, "shards must be at least 1"),
        ({"repeats": 0}, "repeats must be at least 1"),
        ({"sql_sample": -1}, "sql_sample must not be negative"),
    ],
)
def test_wrong_options(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparkOptions(**wrong)


def test_cores_of_a_master() -> None:
    assert SparkOptions(master="local[3]").cores == 3
    assert SparkOptions(master="local-cluster[2,4,1024]").cores == 8


def _write(folder: Path, pairs: list[tuple[int, int]], name: str = "one") -> None:
    folder.mkdir(exist_ok=True)
    events, subscriptions = zip(*pairs, strict=True)
    columns = {"event_id": pa.array(events), "subscription_id": pa.array(subscriptions)}
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def test_a_digest_knows_pairs_and_not_their_order(tmp_path: Path) -> None:
    pairs = [(1, 2), (2, 1), (5, -7), (9, 9)]
    _write(tmp_path / "a", pairs)
    _write(tmp_path / "b", pairs[2:])
    _write(tmp_path / "b", pairs[:2], "two")
    assert Digest.of(tmp_path / "a") == Digest.of(tmp_path / "b")
    for other in ([*pairs[:3], (9, 8)], [(2, 2), (1, 1), *pairs[2:]], [*pairs, (9, 9)], pairs[1:]):
        _write(tmp_path / "c", other)
        assert Digest.of(tmp_path / "c") != Digest.of(tmp_path / "a")
    found = pairs_of(tmp_path / "b", np.array([1, 9]), 9)
    assert found.tolist() == [[1, 2]]


def test_wrong_pairs_are_found(tmp_path: Path) -> None:
    (setting,) = choose_sweeps([], 30_000, 50, 1)
    files = Files(tmp_path)
    found = engine._matcher(setting).match_batch(setting.workload.events(0, 50))
    pairs = list(zip(found.event.tolist(), np.asarray(found.subscription).tolist(), strict=True))
    assert len(pairs) > 1
    _write(files.pairs("spark"), pairs)
    options = SparkOptions(check=50)
    assert engine.check(setting, options, files) == 50
    assert engine.check(setting, replace(options, check=0), files) == 0
    _write(files.pairs("spark"), [*pairs[1:], (49, 29_999)])
    with pytest.raises(MismatchError, match=r"Spark differs from scan.* 1 too many .* 1 missing"):
        engine.check(setting, options, files)


def test_a_join_that_differs_is_found(tmp_path: Path) -> None:
    (setting,) = choose_sweeps([], 10, 10, 1)
    files = Files(tmp_path)
    _write(files.pairs("spark"), [(0, 3), (0, 7), (5, 1)])
    _write(files.pairs("sql"), [(0, 3)])
    engine.check_join(setting, files, 2, 5)
    with pytest.raises(MismatchError, match="join in SQL"):
        engine.check_join(setting, files, 2, 10)


def test_a_checksum_that_differs_is_an_error() -> None:
    with pytest.raises(MismatchError, match=r"alone: 3 pairs .* for 3 pairs"):
        measure._same(
            "Spark differs from the engine alone",
            {"pairs": 3, "checksum": 1},
            {"pairs": 3, "checksum": 2},
        )


def test_functions_apart(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    assert run_apart(log, os.getpid) != os.getpid()
    run_apart(log, print, "printed")
    assert log.read_text() == "printed\n"
    with pytest.raises(FailedError, match="loads failed: JSONDecodeError"):
        run_apart(log, json.loads, "nothing")
    with pytest.raises(SparkError, match="on purpose"):
        run_apart(log, _refuse)


def _refuse() -> None:
    raise SparkError("on purpose")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux tells in /proc")
def test_mapped_files_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "array.npy"
    np.save(path, np.ones(1_000_000))
    before = memory.held(os.getpid(), str(tmp_path))
    assert before["index_resident"] == 0
    mapped = np.load(path, mmap_mode="r")
    assert mapped.sum() == 1_000_000
    after = memory.held(os.getpid(), str(tmp_path))
    assert 8_000_000 <= after["index_resident"] <= 8_100_000
    assert after["resident"] >= after["index_resident"]
    assert memory.held(2**22 + 1, "/")["resident"] == 0  # no such process


def test_nothing_to_measure() -> None:
    (setting,) = choose_sweeps([], 1, 1, 1)
    with pytest.raises(ValueError, match="at least one"):
        SparkSetting(preset="", workload=setting.workload, events=0)
    for arguments in (["--estimate"], ["--sweep", "width"], ["--master", "yarn"]):
        assert CliRunner().invoke(app, ["bench", "spark", *arguments]).exit_code == 2


@pytest.mark.slow
def test_tables_of_a_row_without_join_and_memory(run: tuple[str, dict[str, Any], Path]) -> None:
    from boxmatch_bench.tables import console_table, spark_tables

    row = {**run[1], "sql": None, "sql_slower": None, "memory": None}
    console = Console(width=200, record=True, quiet=True)
    shown = spark_tables([row])
    assert len(shown) == 2
    for table in shown:
        console.print(console_table(table))


MOVED = Movement(
    workload=RegionWorkload(publications=30, subscriptions=200, publication_constraints=25), last=2
)


def _measure_jobs(extras: frozenset[Any]) -> dict[str, Figures]:
    made = Jobs(MOVED.workload, 20)
    every = (Series("Spark", "spark"), Series("alone", "spaces"))
    return {one.index: made.measure(one, extras, Effort(), str) for one in every}


class TestTransitions:
    @pytest.mark.slow
    def test_a_row(self, tmp_path: Path) -> None:
        """Which is there only if Spark and spaces tell the same."""
        path = tmp_path / "rows.jsonl"
        arguments = ["--transitions", "--updates", "600", "--subscriptions", "3000"]
        arguments += ["--repeats", "1", "--json", str(path), "--scratch", str(tmp_path)]
        done = CliRunner().invoke(app, ["bench", "spark", *arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        row = json.loads(path.read_text())
        assert (row["updates"], row["parameters"]["publications"]) == (600, 60)
        assert row["transitions"] == pytest.approx(600 * 3000 * 0.02**2 * 1.9, rel=0.3)
        assert row["spark"]["cpu_seconds"] > 0
        assert row["spark"]["per_second"] * row["spark"]["seconds"] == pytest.approx(600)
        assert row["ratio"] == pytest.approx(row["spark"]["seconds"] / row["spaces"]["seconds"])
        assert {"commit", "machine", "packages", "date"} <= row.keys()
        assert f"{row['transitions']:,} transitions equal those" in done.output
        assert [entry.name for entry in tmp_path.iterdir()] == ["rows.jsonl"]

    @pytest.mark.slow
    def test_jobs_of_an_experiment(self, tmp_path: Path) -> None:
        extras = frozenset({"adding", "moves", "profile"})
        found = run_apart(tmp_path / "log.txt", _measure_jobs, extras)
        for figures in found.values():
            assert figures["publications"] == 20
            assert figures["adding"]["operations"] == 20
            assert figures["random"]["operations"] == figures["incremental"]["operations"] == 80
            assert figures["random"]["transitions"] > figures["incremental"]["transitions"] > 0
            matches = [part["matches"] for part in figures["profile"]]
            assert len(matches) == 5
            assert matches == sorted(matches)
            assert figures["profile"][-1]["microseconds"] == figures["random"]["mean"] > 0
        assert found["spark"]["random"]["mean"] != found["spaces"]["random"]["mean"]

    def test_differences_are_seen(self) -> None:
        """Also where ids, kinds or numbers of updates are exchanged."""

        def told(publication: list[int], code: list[int], sequence: int = 1) -> Told:
            ids = np.array(publication), np.array([7, 8])
            return Told(0, 0).and_by(Transitions(1, np.array(code, np.uint8), *ids), sequence)

        right = told([1, 2], [0, 1])
        assert right.transitions == 2
        assert right not in (told([2, 1], [0, 1]), told([1, 2], [1, 0]), told([1, 2], [0, 1], 2))

    def test_spaces_tell_what_brute_force_finds(self) -> None:
        _, told = in_spaces(MOVED)
        regions = Regions(MOVED.workload)
        walk = MOVED.workload.updates(kind=MOVED.kind, count=MOVED.last)
        boxes = MOVED.workload.publication_boxes()
        dimension = boxes.attribute.astype(np.int64).reshape(30, 25)
        expected, before = Told(0, 0), [None] * 30
        for sequence, values in enumerate([boxes.low.reshape(30, 25), *walk]):
            for row in range(30):
                step = regions.step(row, dimension[row], before[row], values[row])
                expected = expected.and_by(regions.columns.told(step), sequence)
            before = list(values)
        assert told == expected

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--updates", "100"], "--updates is for --transitions"),
            (["--transitions", "--events", "5"], "no events: give --updates"),
            (["--transitions", "--sweep", "events"], "has no sweeps"),
            (["--transitions", "--plan", "auto"], "--repeats only"),
            (["--transitions", "--updates", "105"], "105 is not a multiple"),
        ],
    )
    def test_nothing_is_ignored(self, arguments: list[str], message: str) -> None:
        done = CliRunner().invoke(app, ["bench", "spark", *arguments], env={"COLUMNS": "200"})
        assert done.exit_code == 2
        assert message in done.output

    def test_about_fifteen_transitions_an_update(self) -> None:
        movement = choose_movement(None, None, 1)
        assert movement.rows == 300_000
        assert movement.workload.subscriptions == 20_000
        _, told = in_spaces(choose_movement(None, 2_000, 1))
        assert told.transitions / 2_000 == pytest.approx(15, abs=1.5)
