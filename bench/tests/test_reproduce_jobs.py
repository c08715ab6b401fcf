from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boxmatch_bench.answers import FailedError, MismatchError
from boxmatch_bench.reproduce import jobs
from boxmatch_bench.reproduce.catalogue import choose
from boxmatch_bench.reproduce.jobs import on_one_core, side_by_side
from boxmatch_bench.reproduce.runner import Options, run
from boxmatch_bench.reproduce.tables import duration, was_shared
from boxmatch_bench.results import Results
from boxmatch_bench.timing import Effort, Stage

TIMES = (
    *("build_seconds", "batch", "single", "profile", "took_seconds", "worked_seconds"),
    *("date", "jobs", "beside", "elapsed_seconds"),
)


class Silent:
    """A watcher that counts what is finished."""

    def __init__(self) -> None:
        self.done = 0
        self.left: float | None = None

    def start(self, measurements: int, done: int) -> None: ...
    def doing(self, what: str) -> None: ...
    def finished(self, left: float | None = None) -> None:
        self.done += 1
        self.left = left


def squares(item: int, stage: Stage) -> Iterator[int]:
    """Two results of an item, in a process of its own."""
    stage(f"working on {item}")
    yield item * item
    yield os.getpid()


def failing(item: int, stage: Stage) -> Iterator[int]:
    """An answer is wrong after the first result."""
    yield item
    raise MismatchError(f"item {item} is wrong")


def dying(item: int, stage: Stage) -> Iterator[int]:
    """What happens where there is no memory left."""
    os.kill(os.getpid(), signal.SIGKILL)
    yield item


def needs(item: int) -> int:
    return item


class TestSideBySide:
    def test_finds_everything_in_other_processes(self) -> None:
        said: list[str] = []
        found = list(side_by_side(squares, [3, 4], 2, needs, said.append))
        squared = sorted((item, result) for item, result, _ in found if result in (9, 16))
        assert squared == [(3, 9), (4, 16)]
        processes = {result for _, result, _ in found} - {9, 16}
        assert len(processes) == 2
        assert os.getpid() not in processes
        assert sorted(said) == ["working on 3", "working on 4"]
        # Both had been started before either was listened to.
        assert {beside for item, result, beside in found if result == item * item} == {1}

    def test_waits_for_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(jobs, "available_memory", lambda: 5)
        found = list(side_by_side(squares, [3, 4], 2, needs, lambda _: None))
        assert [item for item, _, _ in found] == [3, 3, 4, 4]
        assert {beside for _, _, beside in found} == {0}

    def test_alone_may_take_all_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(jobs, "available_memory", lambda: 1)
        found = side_by_side(squares, [7], 2, needs, lambda _: None)
        assert next(found).result == 49

    def test_one_job_stays_in_this_process(self) -> None:
        found = list(side_by_side(squares, [3], 1, needs, lambda _: None))
        assert found == [(3, 9, 0), (3, os.getpid(), 0)]

    def test_raises_what_work_raises(self) -> None:
        found = side_by_side(failing, [1], 2, needs, lambda _: None)
        assert next(found).result == 1
        with pytest.raises(MismatchError, match="item 1 is wrong"):
            next(found)

    def test_a_killed_process_is_noticed(self) -> None:
        with pytest.raises(FailedError, match="was killed"):
            list(side_by_side(dying, [1], 2, needs, lambda _: None))


class TestCores:
    @pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
    def test_one_is_used_and_all_are_given_back(self) -> None:
        before = os.sched_getaffinity(0)
        with on_one_core():
            assert len(os.sched_getaffinity(0)) == 1
        assert os.sched_getaffinity(0) == before


class TestDuration:
    @staticmethod
    def row(**fields: Any) -> dict[str, Any]:
        known = {"date": "a", "took_seconds": 60.0, "workload": {"subscriptions": 2_000}}
        return {**known, "jobs": 2, "elapsed_seconds": 90.0, "worked_seconds": 59.0, **fields}

    def test_adds_up_what_was_resumed(self) -> None:
        rows = [
            self.row(),
            self.row(elapsed_seconds=120.0, took_seconds=61.0),
            self.row(date="b", jobs=1, elapsed_seconds=60.0, took_seconds=59.0),
        ]
        assert duration(rows) == (
            "3.00 minutes in all with 2 jobs, 3.00 minutes of measuring, with up to 2,000 "
            "subscriptions"
        )

    def test_says_only_what_rows_have(self) -> None:
        old = self.row(date="b")
        del old["elapsed_seconds"], old["jobs"]
        assert duration([self.row(took_seconds=120.0), old]) == (
            "3.00 minutes of measuring, with up to 2,000 subscriptions"
        )

    def test_tells_a_machine_that_others_use(self) -> None:
        assert not was_shared([self.row(), self.row(took_seconds=61.0)])
        assert was_shared([self.row(), self.row(took_seconds=90.0)])


class TestRun:
    def test_jobs_must_be_some(self) -> None:
        with pytest.raises(ValueError, match="jobs"):
            Options(jobs=0)

    def test_rows_differ_in_times_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        quick = Effort(seconds=0.02)
        monkeypatch.setattr(Effort, "at_scale", classmethod(lambda cls, scale: quick))
        memory = choose(["rein-memory"])[0]
        some = tuple(one for one in memory.series if one.index in ("rein", "tile"))
        chosen = [replace(memory, series=some)]

        def rows(number: int) -> dict[Any, dict[str, Any]]:
            results, watcher = Results(tmp_path / f"{number}.jsonl"), Silent()
            options = Options(scale=0.001, jobs=number)
            run(chosen, options, results, watcher)
            assert watcher.left == pytest.approx(0)
            resumed = Silent()
            run(chosen, options, Results(results.path), resumed)
            assert resumed.done == 0
            made = results.of_run({})
            assert len(made) == watcher.done
            assert {row["jobs"] for row in made} == {number}
            assert all(row["elapsed_seconds"] >= row["took_seconds"] > 0 for row in made)
            return {
                (row["x"], row["series"]): {k: v for k, v in row.items() if k not in TIMES}
                for row in made
            }

        assert rows(2) == rows(1)
