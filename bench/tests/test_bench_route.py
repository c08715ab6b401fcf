"""`boxmatch bench route`: that everything runs, and what its rows have."""

from __future__ import annotations

import json
from pathlib import Path

from boxmatch_bench.tables import route_tables
from command_line import Command

SMALL = ("--subscriptions", "300", "--width", "0.4", "--events", "300", "--seconds", "0.5")


def test_rows_and_table(run_boxmatch: Command, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    done = run_boxmatch("bench", "route", *SMALL, "--json", str(path))
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["case"], row["workers"]) for row in rows] == [
        ("forward", 1),
        ("route", 1),
        ("route", 2),
        ("forward", 2),
        ("latency", 1),
    ]
    assert {row["events"] for row in rows[:4]} == {300}
    assert rows[1]["notifications"] == rows[2]["notifications"] > 0
    assert rows[4]["latency_ms"]["max"] >= rows[4]["latency_ms"]["p50"] > 0
    assert {"commit", "date", "machine", "packages", "python", "version"} <= set(rows[0])
    drained, paced = route_tables(rows)
    assert len(drained.rows) == 4
    assert len(paced.rows) == 1


def test_refuses_bad_options(run_boxmatch: Command) -> None:
    done = run_boxmatch("bench", "route", "--width", "2")
    assert (done.code, "width must be between 0 and 1" in done.err) == (2, True)
