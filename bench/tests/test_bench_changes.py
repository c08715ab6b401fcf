"""`boxmatch bench changes`: changes are made beside matches, and answers are checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boxmatch import Matcher
from boxmatch_bench.answers import MismatchError
from boxmatch_bench.changes import measure_changes
from boxmatch_bench.options import ChangeOptions
from command_line import Command


def test_rows_and_table(run_boxmatch: Command, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    small = ("--subscriptions", "500", "--rate", "200", "--seconds", "0.2")
    done = run_boxmatch("bench", "changes", *small, "--json", str(path))
    assert done.code == 0
    assert "match, beside changes" in done.out
    (row,) = map(json.loads, path.read_text().splitlines())
    assert row["options"] == {"subscriptions": 500, "rate": 200.0, "seconds": 0.2}
    assert 1 <= row["pairs_made"] <= row["pairs_planned"] == 40
    assert row["quiet_ms"]["p50"] > 0
    assert {"commit", "date", "machine", "packages", "python", "version"} <= set(row)


def test_notices_a_change_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Matcher, "subscribe", lambda *_: None)
    monkeypatch.setattr(Matcher, "unsubscribe", lambda *_: None)
    with pytest.raises(MismatchError, match="after the changes"):
        measure_changes(ChangeOptions(subscriptions=3_000, rate=10_000.0, seconds=0.3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rate", "0"), "rate must be positive"),
        (("--seconds", "inf"), "seconds must be positive"),
        (("--subscriptions", "5"), "fewer subscriptions than would be removed"),
    ],
)
def test_refuses_bad_options(
    run_boxmatch: Command, arguments: tuple[str, ...], message: str
) -> None:
    done = run_boxmatch("bench", "changes", *arguments)
    assert done.code == 2
    assert message in " ".join(done.err.split())
