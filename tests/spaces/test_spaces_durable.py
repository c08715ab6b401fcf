"""Spaces on disk: what was acknowledged survives, and no number is used for two transitions."""

from __future__ import annotations

import random
import sqlite3
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
            _, own, x, step, *notified = words
            acknowledged[own] = max(acknowledged.get(own, (-1, "")), (int(step), x))
            assert not numbers & set(map(int, notified))
            numbers |= set(map(int, notified))
        assert acknowledged
        with bm.Spaces.open(tmp_path / "spaces") as spaces:
            notified_again = [one for batch in spaces.transitions() for one in batch]
            sequence = [one.sequence for one in notified_again]
            assert sequence == list(range(1, len(sequence) + 1))
            assert numbers <= set(sequence)
            # All transitions add up to what matches now.
            state: dict[tuple[object, object], str] = {}
            for one in notified_again:
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
        assert [batch.first for batch in spaces.transitions(3)] == [3]


@pytest.mark.parametrize("on_disk", [False, True])
def test_what_is_forgotten_is_not_skipped_in_silence(tmp_path: Path, on_disk: bool) -> None:
    spaces = bm.Spaces.open(tmp_path / "s", SPACES) if on_disk else bm.Spaces(SPACES)
    with spaces:
        spaces.subscribe("s", {"x": (1, 3)})
        for x in (2, 9, 3, 7):
            (spaces.publish if x == 2 else spaces.update_publication)("p", {"x": x})
        spaces.forget_transitions(3)
        assert [one.sequence for batch in spaces.transitions() for one in batch] == [3, 4]
        assert [one.sequence for batch in spaces.transitions(4) for one in batch] == [4]
        with pytest.raises(bm.StorageError, match="transitions up to 2 are forgotten"):
            spaces.transitions(2)


def test_memory_remembers_the_last_ones() -> None:
    spaces = bm.Spaces(SPACES, remember=3)
    spaces.subscribe("s", {"x": (1, 3)})
    spaces.publish("p", {"x": 2})
    for x in (9, 3, 7):
        spaces.update_publication("p", {"x": x})
    assert [one.sequence for batch in spaces.transitions() for one in batch] == [2, 3, 4]


def test_a_bad_one_among_many_leaves_nothing(tmp_path: Path) -> None:
    with bm.Spaces.open(tmp_path / "s", SPACES) as spaces:
        with pytest.raises(bm.RegionError, match="subscription 's': region 'region': no space"):
            spaces.load(publications={"p": {"x": 2}}, subscriptions={"s": {"nowhere": 2}})
        assert spaces.publication_count == spaces.subscription_count == 0
    with bm.Spaces.open(tmp_path / "s") as spaces:
        assert spaces.publication_count == 0


def test_nothing_is_stored_after_closing(tmp_path: Path) -> None:
    spaces = bm.Spaces.open(tmp_path / "s", SPACES)
    spaces.close()
    with pytest.raises(bm.StorageError, match="is closed"):
        spaces.publish("p", {"x": 2})
    with pytest.raises(bm.StorageError, match="is closed"):
        spaces.load(publications={"p": {"x": 2}})
    assert list(spaces.publications()) == []


def test_a_failed_opening_lets_go(tmp_path: Path) -> None:
    with bm.Spaces.open(tmp_path / "s", SPACES) as spaces:
        spaces.publish("p", {"x": 2})
    database = sqlite3.connect(tmp_path / "s" / "journal.sqlite")
    database.execute("UPDATE publication SET checksum = checksum + 1")
    database.commit()
    database.close()
    for _ in range(2):
        with pytest.raises(bm.StorageError, match="is damaged: publication 'p'"):
            bm.Spaces.open(tmp_path / "s")


def test_empty_notifications_have_the_columns_of_others() -> None:
    spaces = bm.Spaces(SPACES)
    spaces.subscribe(1, {"x": (1, 3)})
    full, none = spaces.publish(7, {"x": 2}), spaces.update_publication(7, {"x": 3})
    assert (len(full), len(none)) == (1, 0)
    for other in (none, spaces.expire(), spaces.unsubscribe(1)):
        assert other.to_arrow().schema == full.to_arrow().schema


@pytest.mark.parametrize("on_disk", [False, True])
def test_what_is_loaded_expires_at_its_time(tmp_path: Path, on_disk: bool) -> None:
    now = [100.0]

    def opened() -> bm.Spaces:
        if on_disk:
            return bm.Spaces.open(tmp_path / "s", SPACES, clock=lambda: now[0])
        return bm.Spaces(SPACES, clock=lambda: now[0])

    spaces = opened()
    spaces.load(
        publications={"p": bm.Stored("p", {"region": {"x": 2}}, None, expires=110.0)},
        subscriptions={"s": {"x": (1, 3)}},
    )
    if on_disk:
        spaces.close()
        spaces = opened()
    with spaces:
        assert spaces.get_publication("p").expires == 110.0
        assert spaces.get_subscription("s").expires is None
        assert spaces.due() == []
        now[0] = 111.0
        assert spaces.due() == [("publication", "p")]
        assert [(one.kind, one.publication) for one in spaces.expire()] == [("deleted", "p")]
        assert spaces.due() == []
