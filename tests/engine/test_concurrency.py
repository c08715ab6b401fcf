"""Matching while others write: each answer is the answer of some moment during the call."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import boxmatch as bm
from boxmatch.engine import compaction, results, stores
from boxmatch.model import strings
from boxmatch.model.points import Points

SCHEMA = bm.Schema({"x": "int", "y": "int", "s": "string"})
SECONDS = 0.8
PATIENCE = 60.0
OVERLAPPING = "x BETWEEN 0 AND 9 OR y BETWEEN 0 AND 9 OR s >= 'a'"


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tails fill, merge and are built anew all the time; threads are switched often."""
    monkeypatch.setattr(stores, "_TAIL_ROWS", 16)
    monkeypatch.setattr(stores, "_WAITING_TAILS", 2)
    monkeypatch.setattr(compaction, "_FEW_ROWS", 8)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture(autouse=True)
def no_silent_failures(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The compaction thread logs what goes wrong in it."""
    yield
    assert [record.getMessage() for record in caplog.records] == []


def together(
    *jobs: Callable[[], None], enough: Callable[[], bool] = lambda: True, seconds: float = SECONDS
) -> None:
    """Repeat every job in a thread of its own, for some time and until it was enough, which takes
    longer on a busy machine; the first failure is raised here.
    """
    began = time.monotonic()

    def goes_on() -> bool:
        passed = time.monotonic() - began
        return passed < seconds or (passed < PATIENCE and not enough())

    failures: list[BaseException] = []

    def repeat(job: Callable[[], None]) -> None:
        try:
            while goes_on() and not failures:
                job()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=repeat, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE + 30)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


def answers(m: bm.Matcher, event: dict[str, Any]) -> Iterator[list[Any]]:
    """The event by itself and in batches."""
    yield m.match(event)
    result = m.match_batch([event] * 3, threads=1)
    ends = np.cumsum(result.counts)
    for end, count in zip(ends, result.counts, strict=True):
        yield result.subscription[end - count : end].tolist()


def crowded(kind: type = str) -> bm.Matcher:
    """A matcher with others in it, that never match."""
    m = bm.Matcher(SCHEMA)
    m.subscribe_many([{"id": kind(-n), "filter": f"x = {-n}"} for n in range(1, 600)])
    return m


def test_order_of_changes_is_kept() -> None:
    """A comes before B and goes after it: B is never there alone."""
    m = crowded()
    steps = 0

    def write() -> None:
        nonlocal steps
        m.subscribe("A", "x = 1")
        m.subscribe("B", OVERLAPPING)
        m.unsubscribe("B")
        m.unsubscribe("A")
        steps += 1

    seen: Counter[str] = Counter()

    def read() -> None:
        for found in answers(m, {"x": 1, "y": 1}):
            found.sort()
            assert found in ([], ["A"], ["A", "B"])
            seen["".join(found)] += 1

    together(write, read, read, enough=lambda: steps > 20 and len(seen) == 3)
    assert steps > 20
    assert set(seen) == {"", "A", "AB"}, "the readers saw too little to mean anything"


def test_replacing_is_one_step() -> None:
    """The subscription matches before and after, so it is there exactly once at all times."""
    m = crowded()
    filters = ["x = 1", {"x": (0, 5)}, OVERLAPPING, "TRUE", "x IN (1, 3, 5)", {"y": 1}]
    m.subscribe("A", "x = 1")
    m.subscribe("B", OVERLAPPING)
    turn = 0

    def write() -> None:
        nonlocal turn
        turn += 1
        m.subscribe("A", filters[turn % len(filters)])
        if turn % 7 == 0:
            m.subscribe_many([{"id": id, "filter": filters[turn % 5]} for id in "AB"])
        if turn % 31 == 0:
            m.compact()

    def read() -> None:
        for found in answers(m, {"x": 1, "y": 1}):
            assert sorted(found) == ["A", "B"]
        assert m.count({"x": 1, "y": 1}) == 2
        assert m.count_batch([{"x": 1, "y": 1}] * 3, threads=1).tolist() == [2, 2, 2]
        assert len(m) == 601
        assert "A" in m

    together(write, read, read, enough=lambda: turn > 50)
    assert turn > 50


def test_subscribed_when_it_returns_and_gone_when_it_returns() -> None:
    """A window of ids slides; what a reader must and may see is known at all times."""
    m = crowded(int)
    # Ids from `gone` (exclusive) to `there` are subscribed; those up to `leaving` or from
    # `coming` may be in the middle of a change.
    gone = leaving = 0
    coming = there = 0

    def write() -> None:
        nonlocal gone, leaving, coming, there
        coming += 1
        m.subscribe(coming, OVERLAPPING if coming % 5 == 0 else "x = 1")
        there = coming
        if there - gone > 40:
            leaving += 1
            m.unsubscribe(leaving)
            gone = leaving

    def read() -> None:
        for kind in range(2):
            was_gone, was_there = gone, there
            if kind:
                found = m.match({"x": 1, "y": 1})
            else:
                found = m.match_batch([{"x": 1, "y": 1}], threads=1).subscription.tolist()
            may_leave, may_come = leaving, coming
            assert len(found) == len(set(found))
            assert set(found) >= set(range(may_leave + 1, was_there + 1))
            assert set(found) <= set(range(was_gone + 1, may_come + 1))
            # One moment: what is there is an unbroken run.
            assert not found or max(found) - min(found) + 1 == len(found)

    together(write, read, read, m.compact, enough=lambda: there > 100, seconds=1.5)
    assert there > 100


def test_bulk_loads_are_one_step() -> None:
    m = crowded()
    turn = 0

    def write() -> None:
        nonlocal turn
        turn += 1
        m.subscribe_many([{"id": f"id{n}", "filter": f"x = {turn % 2}"} for n in range(10)])

    def read() -> None:
        result = m.match_batch([{"x": 0}, {"x": 1}], threads=1)
        assert sorted(result.counts.tolist()) in ([0, 0], [0, 10])
        assert m.count_batch([{"x": 0}, {"x": 1}], threads=1).sum() in (0, 10)
        assert len(m.match({"x": 0})) in (0, 10)

    together(write, read, read, enough=lambda: turn > 10)
    assert turn > 10


def test_strings_that_come_and_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """New labels beside those in use, and all of them moved, change no answer."""
    monkeypatch.setattr(strings, "_RUN", 1000)  # runs exhaust their gap
    monkeypatch.setattr(strings, "_SPREAD", 2**13)
    monkeypatch.setattr(strings, "_LOWEST", -(2**13) - 40)
    monkeypatch.setattr(strings, "_HIGHEST", 2**13 + 40)
    m = bm.Matcher(SCHEMA)
    m.subscribe("range", "s BETWEEN 'm' AND 'n'")
    m.subscribe("above", "s > 'mm'")
    m.subscribe("below", "s < 'mm'")
    m.subscribe("prefix", "s LIKE 'mm%'")
    spreads = 0
    respread = stores.Stores._respread

    def counted(self: stores.Stores) -> None:
        nonlocal spreads
        spreads += 1
        respread(self)

    monkeypatch.setattr(stores.Stores, "_respread", counted)
    turn = 0

    def write() -> None:
        nonlocal turn
        turn += 1
        m.subscribe(f"id{turn % 100}", {"s": f"mk{'0' * (turn % 60)}1", "x": 5})
        m.subscribe("stable", f"s <> 'mo{turn % 50}'")

    def read() -> None:
        for text, wanted in (
            ("mm", ["prefix", "range", "stable"]),
            ("ml", ["below", "range", "stable"]),
            ("mn", ["above", "range", "stable"]),
            ("mmm", ["above", "prefix", "range", "stable"]),
            ("a", ["below", "stable"]),
        ):
            for found in answers(m, {"s": text}):
                assert sorted(found) == wanted, text

    write()
    together(write, read, read, enough=lambda: turn > 10 and spreads > 0)
    assert turn > 10
    assert spreads


def test_writers_take_turns() -> None:
    m = crowded()
    turns = [0] * 3

    def writer(number: int) -> Callable[[], None]:
        def write() -> None:
            turns[number] += 1
            id = f"{number}-{turns[number] % 50}"
            if turns[number] % 3 == 2:
                if id in m:
                    m.unsubscribe(id)
            else:
                m.subscribe(id, f"x = {number + 1000}")
            if turns[number] % 97 == 0:
                m.subscribe_many([{"id": f"{number}-many", "filter": f"x = {number + 1000}"}])

        return write

    together(*map(writer, range(3)), m.compact)
    for number in range(3):
        there: set[str] = set()
        for turn in range(1, turns[number] + 1):
            id = f"{number}-{turn % 50}"
            if turn % 3 == 2:
                there.discard(id)
            else:
                there.add(id)
            if turn % 97 == 0:
                there.add(f"{number}-many")
        assert set(m.match({"x": number + 1000})) == there
    assert len(m) == 599 + sum(len(m.match({"x": number + 1000})) for number in range(3))


def test_looking_and_saving_while_writing(tmp_path: Any) -> None:
    m = crowded()
    m.subscribe("A", "x = 1")
    turn = 0

    def write() -> None:
        nonlocal turn
        turn += 1
        m.subscribe("A", f"x = 1 AND s > 'a{turn}'")
        m.subscribe(f"id{turn % 40}", "x = 2")

    def look() -> None:
        assert m.filter_of("A", as_written=False).startswith(("x = 1", "s > 'a"))
        assert m.explain({"x": 1, "s": "b"}, "A").matched
        assert m.memory_usage()["total"] > 0

    def save() -> None:
        m.save(tmp_path / "saved")
        loaded = bm.Matcher.load(tmp_path / "saved")
        assert loaded.match({"x": 1, "s": "b"}) == ["A"]
        assert len(loaded) == 600 + len(loaded.match({"x": 2}))

    m.subscribe("A", "x = 1 AND s > 'a'")
    together(write, look, save, enough=lambda: turn > 20)
    assert turn > 20


def test_large_batches_on_several_threads_while_writing() -> None:
    m = crowded()
    m.subscribe("A", "x = 1")
    m.subscribe("B", OVERLAPPING)
    batch = np.tile([[1.0, 1.0, np.nan]], (600, 1))
    turn = 0

    def write() -> None:
        nonlocal turn
        turn += 1
        m.subscribe("A", {"x": (0, turn % 5 + 1)})
        m.subscribe(f"id{turn % 40}", "x = 2")

    def read() -> None:
        result = m.match_batch(batch, threads=2)
        assert set(result.counts.tolist()) == {2}
        assert Counter(result.subscription.tolist()) == {"A": 600, "B": 600}

    together(write, read, read, enough=lambda: turn > 20)
    assert turn > 20


def test_batches_of_any_size_share_their_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "cores", lambda: 13)
    before = set(threading.enumerate())

    def work(points: Any) -> int:
        time.sleep(0.001)  # so that none is done with a chunk when the last is handed out
        return len(points)

    for wanted in range(2, 14):
        points = Points(np.zeros((wanted * results._SMALL, 1), np.int64))
        assert results.by_chunks(work, points, None) == [results._SMALL] * wanted
    assert len(set(threading.enumerate()) - before) <= 13


def test_an_older_snapshot_has_its_own_axes() -> None:
    """Of a tail that others have widened since."""
    m = bm.Matcher({"name": "string"})
    m.subscribe(1, "name = 'a'")
    before = m.snapshot
    m.subscribe(2, "length(name) = 1")
    assert len(before.used) == before.axes.width < m.snapshot.axes.width
    assert before.single.match({"name": "a"}, None) == [1]
