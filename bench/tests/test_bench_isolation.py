"""`boxmatch bench isolation`: that everything runs, and what its rows have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boxmatch_bench.tables import isolation_tables
from command_line import Command

SMALL = ("--subscriptions", "600", "--events", "400", "--seconds", "0.1")


def measured(run_boxmatch: Command, path: Path, *options: str) -> list[dict[str, Any]]:
    """The rows of a run, whose tables show the same cases; the last two are the starts."""
    done = run_boxmatch("bench", "isolation", *SMALL, *options, "--json", str(path))
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows[:-2]:
        assert row["requests"] > 0
        assert row["answer_ms"]["max"] >= row["answer_ms"]["p50"] > 0
    assert {"commit", "date", "machine", "packages", "python", "version"} <= set(rows[0])
    cases = [row["case"] for row in rows]
    beside, starts = isolation_tables(rows)
    assert [row[0] for row in beside.rows] == cases[:-2]
    assert [row[0] for row in starts.rows] == cases[-2:]
    return rows


def test_rows_and_table(run_boxmatch: Command, tmp_path: Path) -> None:
    rows = measured(run_boxmatch, tmp_path / "out.jsonl", "--only", "the")
    assert [(row["case"], row.get("subscriptions")) for row in rows] == [
        ("extend the schema", None),
        ("read the log", None),
        ("start with the files of indexes", 600),
        ("start without them", 600),
    ]


@pytest.mark.slow
def test_all_kinds_of_work(run_boxmatch: Command, tmp_path: Path) -> None:
    rows = measured(run_boxmatch, tmp_path / "out.jsonl")
    cases = [row["case"] for row in rows]
    assert cases[0] == "nothing"
    assert "extend the schema" in cases
    assert [row["subscriptions"] for row in rows[-2:]] == [900, 900]


def test_refuses_bad_options(run_boxmatch: Command) -> None:
    done = run_boxmatch("bench", "isolation", "--subscriptions", "1")
    assert (done.code, "subscriptions must be at least 2" in done.err) == (2, True)
