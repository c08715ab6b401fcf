"""`boxmatch bench waits`: that a hold is seen, and every call runs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from boxmatch_bench.tables import wait_tables
from boxmatch_bench.waits.cases import CASES, Supplies
from boxmatch_bench.waits.watcher import watch
from command_line import Command


def test_sees_one_call_that_holds_the_gil() -> None:
    numbers = list(range(2_000_000, 0, -1))
    _, watched = watch(lambda: sum(numbers))  # some ten milliseconds
    assert watched.holds
    assert watched.holds[0].milliseconds <= 1e3 * watched.seconds


def test_waiting_is_no_hold() -> None:
    result, watched = watch(lambda: time.sleep(0.05) or "done")
    assert result == "done"
    assert watched.seconds >= 0.05
    assert watched.holds == []


@pytest.mark.parametrize("name", CASES)
def test_every_call_runs(name: str, tmp_path: Path) -> None:
    supplies = Supplies(tmp_path, scale=0.0005)
    call = CASES[name](supplies)
    _, watched = watch(call)
    assert watched.seconds > 0


def test_rows_and_table(run_boxmatch: Command, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    small = ("--scale", "0.0005", "--rounds", "2", "--only", "match_batch of 2,000")
    done = run_boxmatch("bench", "waits", *small, "--json", str(path))
    assert done.code == 0
    assert "longest hold" in done.out
    (row,) = map(json.loads, path.read_text().splitlines())
    assert row["call"] == "match_batch of 2,000 dicts"
    assert len(row["holds_ms"]) == 2
    assert row["hold_ms"] == min(row["holds_ms"])
    assert row["options"] == {
        "scale": 0.0005, "rounds": 2, "only": "match_batch of 2,000", "seed": 1
    }  # fmt: skip
    assert {"commit", "date", "machine", "packages", "python", "version"} <= set(row)
    (table,) = wait_tables([row])
    assert table.rows[0][0] == row["call"]


def test_refuses_bad_options(run_boxmatch: Command) -> None:
    for arguments, message in (
        (("--scale", "0"), "scale must be positive"),
        (("--rounds", "0"), "rounds must be at least 1"),
        (("--only", "nope"), "no call has 'nope' in its name"),
    ):
        done = run_boxmatch("bench", "waits", *arguments)
        assert done.code == 2
        assert message in " ".join(done.err.replace("│", " ").split())
