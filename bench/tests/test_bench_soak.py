"""A broker under a steady load for minutes: it holds no more in the end than it did midway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from boxmatch.cli import app
from boxmatch_bench.broker.watch import thirds

SECONDS = 600.0
"""Of the soak. A third must have some samples, of which there is one a second: 20 are enough to see
that this works.
"""
LOAD = ["--subscriptions", "2000", "--subscribers", "50", "--width", "0.3", "--pool", "10000"]
LOAD += ["--batch", "10", "--publishers", "4", "--soak-rate", "500"]
LOAD += ["--seconds", "0", "--latency-seconds", "0", "--compare", "0", "--warmup", "1"]
LOAD += ["--unread", "0"]

MEMORY = 1.05, 8e6
DESCRIPTORS = 1.0, 4.0
DELIVERY_MS = 2.0, 50.0
"""The last third may have so many times what the second had, and so much more: memory that the
allocator keeps, files that SQLite opens for a checkpoint, and a machine that does other work.
"""


def check_thirds(row: dict[str, Any]) -> None:
    """The last third of a soak has no more of anything than the second, but for a margin."""
    _, second, last = row["thirds"]
    for name, before, after, (times, more) in (
        ("private bytes", second["private"], last["private"], MEMORY),
        ("open files", second["descriptors"], last["descriptors"], DESCRIPTORS),
        ("ms p99", second["delivery_ms"]["p99"], last["delivery_ms"]["p99"], DELIVERY_MS),
    ):
        assert after <= times * before + more, f"{name}: {before} midway, {after} in the end"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux tells in /proc")
def test_a_soaked_broker_does_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    arguments = ["bench", "broker", *LOAD, "--soak", str(SECONDS), "--json", str(path)]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    [row] = [
        row for row in map(json.loads, path.read_text().splitlines()) if row["phase"] == "soak"
    ]
    assert row["events"] == row["load"]["rate"] * SECONDS
    check_thirds(row)


def test_a_phase_is_parted_into_thirds() -> None:
    samples = [
        {"at": 100.0 + second, "private": size, "descriptors": 10 + second}
        for second, size in enumerate([1, 2, 3, 5, 5, 8, 9, 9, 20])
    ]
    arrived = np.array([100.0, 102.9, 103.0, 109.0])
    found = thirds(100.0, 109.0, samples, arrived, np.array([0.1, 0.3, 0.5, 0.7]))
    assert [third["private"] for third in found] == [2.0, 5.0, 9.0]
    assert [third["descriptors"] for third in found] == [12, 15, 18]
    assert [third["notifications"] for third in found] == [2, 1, 1]
    assert [third["delivery_ms"]["max"] for third in found] == pytest.approx([300, 500, 700])
    nothing = thirds(100.0, 109.0, [], arrived[:0], arrived[:0])
    empty = {"notifications": 0, "delivery_ms": None, "private": None, "descriptors": None}
    assert nothing == 3 * [empty]


def third(private: float, descriptors: int, p99: float) -> dict[str, Any]:
    return {"private": private, "descriptors": descriptors, "delivery_ms": {"p99": p99}}


@pytest.mark.parametrize(
    ("last", "complaint"),
    [
        (third(120e6, 60, 10.0), "private bytes: 100000000.0 midway"),
        (third(100e6, 70, 10.0), "open files: 60 midway, 70 in the end"),
        (third(100e6, 60, 100.0), "ms p99"),
    ],
)
def test_what_grows_is_noticed(last: dict[str, Any], complaint: str) -> None:
    first, second = third(50e6, 20, 5.0), third(100e6, 60, 10.0)
    check_thirds({"thirds": [first, second, third(101e6, 61, 12.0)]})
    with pytest.raises(AssertionError, match=complaint):
        check_thirds({"thirds": [first, second, last]})
