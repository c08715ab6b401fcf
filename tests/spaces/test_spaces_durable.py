"""Spaces on disk: what was acknowledged survives, and nothing is told twice under a number."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from spaces_job import SPACES

import boxmatch as bm

JOB = str(Path(__file__).with_name("spaces_job.py"))


def test_killed_at_random(tmp_path: Path) -> None:
    rng = random.Random(5)
    numbers: set[int] = set()
    for round_ in range(3):
        child = subprocess.Popen(
            [sys.executable, JOB, str(tmp_path / "spaces"), str(round_)],
            stdout=subprocess.PIPE,
            text=True,
        )
        if child.stdout is None:
            raise TypeError("there is a pipe")
        first = child.stdout.readline()
        time.sleep(rng.uniform(0.05, 0.6))
        child.kill()
        lines = [first, *child.stdout.read().splitlines()]
        child.stdout.close()
        child.wait()
        acknowledged: dict[str, tuple[int, str]] = {}
        for line in lines:
            words = line.split()
            if len(words) < 4 or words[0] != "publication":
                continue  # cut short
            _, own, x, step, *told = words
            acknowledged[own] = max(acknowledged.get(own, (-1, "")), (int(step), x))
            assert not numbers & set(map(int, told))
            numbers |= set(map(int, told))
        assert acknowledged
        with bm.Spaces.open(tmp_path / "spaces") as spaces:
            told_again = [one for batch in spaces.notifications() for one in batch]
            sequence = [one.sequence for one in told_again]
            assert sequence == list(range(1, len(sequence) + 1))
            assert numbers <= set(sequence)
            # What was told adds up to what matches now.
            state: dict[tuple[object, object], str] = {}
            for one in told_again:
                state[one.publication, one.subscription] = one.kind
            matching = {pair for pair, kind in state.items() if kind == "enter"}
            assert matching == {
                (p, s) for p in spaces.publications() for s in spaces.matches_of_publication(p)
            }
            # An operation that was not acknowledged may have survived: one for each thread.
            stored = {
                own: spaces.get_publication(own).regions["region"] for own in spaces.publications()
            }
            assert all(region["name"].low == own for own, region in stored.items())
            values = {own: str(region["x"].low) for own, region in stored.items()}
            other = [own for own, (_, x) in acknowledged.items() if values.get(own, "gone") != x]
            assert len(other) <= 4


def test_what_spaces_are_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "spaces"
    with pytest.raises(bm.StorageError, match="no spaces at"):
        bm.Spaces.open(path)
    with bm.Spaces.open(path, SPACES, leave=False) as spaces:
        spaces.subscribe("s", {"x": (1, 3)})
        spaces.publish("p", {"x": 2})
        assert list(spaces.update_publication("p", {"x": 9})) == []
        with pytest.raises(bm.StorageError, match="open already"):
            bm.Spaces.open(path)
    with pytest.raises(bm.StorageError, match="other settings"):
        bm.Spaces.open(path, {"t": bm.Schema({"y": "int"})})
    with bm.Spaces.open(path) as spaces:
        assert list(spaces.update_publication("p", {"x": 1})) != []
        assert list(spaces.update_publication("p", {"x": 9})) == []
        assert spaces.schemas == SPACES
    with pytest.raises(bm.StorageError, match="in memory only"):
        bm.Spaces(SPACES).notifications()


def test_expiry_survives(tmp_path: Path) -> None:
    now = [1000.0]
    with bm.Spaces.open(tmp_path / "s", SPACES, clock=lambda: now[0]) as spaces:
        spaces.subscribe("s", {"x": (1, 3)})
        spaces.publish("p", {"x": 2}, ttl=10)
        spaces.publish("q", {"x": 2}, ttl=10)
        spaces.update_publication("q", ttl=None)
    now[0] += 11
    with bm.Spaces.open(tmp_path / "s", clock=lambda: now[0]) as spaces:
        assert [(n.kind, n.publication, n.sequence) for n in spaces.expire()] == [
            ("deleted", "p", 3)
        ]
        assert list(spaces.publications()) == ["q"]
    with bm.Spaces.open(tmp_path / "s", clock=lambda: now[0]) as spaces:
        assert list(spaces.expire()) == []
        assert [batch.first for batch in spaces.notifications(3)] == [3]
