"""One event at a time: the same sets as batches and as a matcher that compares every box."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import boxmatch as bm
from boxmatch.indexes.base import NO_OWNERS
from boxmatch.kernels.box_lists import once_per_owner, once_per_owner_and_point

SCHEMA = bm.Schema({"name": "string", "price": "float", "size": "int", "tags": "list of string"})
PLAIN = bm.Schema({"name": "string", "price": "float", "size": "int"})

KINDS: dict[str, Callable[[Random], str]] = {
    "boxes": lambda random: (
        f"name = 'n{random.randrange(4)}' AND price > {random.uniform(0, 9):.2f}"
        f" AND size <= {random.randrange(9)}"
    ),
    "overlapping": lambda random: (
        f"name >= 'n{random.randrange(4)}' OR price < {random.randrange(9)}"
        f" OR size BETWEEN {random.randrange(5)} AND 6"
    ),
    "expressions": lambda random: f"price * size > {random.randrange(60)}",
    "residuals": lambda random: f"NOT (name LIKE '%{random.randrange(4)}%') AND size > 2",
    "lists": lambda random: f"'t{random.randrange(4)}' = ANY(tags) AND size > 1",
}


def make_events(count: int, seed: int, *, lists: bool) -> list[dict[str, Any]]:
    random = Random(seed)
    events = []
    for _ in range(count):
        event: dict[str, Any] = {
            "name": f"n{random.randrange(6)}",
            "price": random.uniform(-1, 10),
            "size": random.randrange(-1, 10),
        }
        if lists:
            event["tags"] = [f"t{random.randrange(6)}" for _ in range(random.randrange(4))]
        for name in list(event):
            if random.random() < 0.1:
                del event[name]
        events.append(event)
    return events


def check(matcher: bm.Matcher, truth: bm.Matcher, events: list[dict[str, Any]]) -> int:
    """Compare every way to ask with the batches of another matcher; how many ids there are."""
    total = 0
    for event in events:
        # A batch of one event goes the way of a single one.
        wanted = sorted(truth.match_batch([event, {}], threads=1)[0].tolist())
        alone = matcher.match_batch([event], threads=1)
        assert sorted(alone.subscription.tolist()) == wanted
        assert alone.counts.tolist() == [len(wanted)]
        assert sorted(matcher.match(event)) == wanted
        assert matcher.count(event) == len(wanted)
        total += len(wanted)
    return total


@pytest.mark.parametrize("kinds", [[kind] for kind in KINDS] + [list(KINDS)], ids="-".join)
@pytest.mark.parametrize("as_id", [int, "id{}".format], ids=["int", "string"])
def test_all_parts_of_a_matcher(kinds: list[str], as_id: Callable[[int], Any]) -> None:
    """Two segments of each kind, a tail, and removals in all of them, against `scan`."""
    random = Random(7)
    lists = "lists" in kinds
    schema = SCHEMA if lists else PLAIN
    matcher, truth = bm.Matcher(schema), bm.Matcher(schema, index="scan")
    filters = {as_id(n): KINDS[kinds[n % len(kinds)]](random) for n in range(900)}
    names = list(filters)
    for first, end in ((0, 600), (600, 860)):
        records = [{"id": id, "filter": filters[id]} for id in names[first:end]]
        matcher.subscribe_many(records)
    for id in names[860:]:
        matcher.subscribe(id, filters[id])
    removed = {id for id in names if random.random() < 0.1}
    matcher.unsubscribe_many(sorted(removed))
    truth.subscribe_many([{"id": id, "filter": filters[id]} for id in names if id not in removed])
    snapshot = matcher._stores.snapshot
    assert len(snapshot.views) >= 3
    assert all(view.removed for view in snapshot.views)
    assert check(matcher, truth, make_events(40, 3, lists=lists)) > 100


@pytest.mark.parametrize("as_id", [int, str], ids=["int", "string"])
def test_answers_longer_than_the_buffer(as_id: Callable[[int], Any]) -> None:
    matcher = bm.Matcher(PLAIN)
    for first in (0, 2000):
        matcher.subscribe_many(
            [
                {
                    "id": as_id(n),
                    "filter": {"size": (0, n)} if n % 2 else f"size < {n} OR price > 3",
                }
                for n in range(first, first + 2000)
            ]
        )
    matcher.subscribe(as_id(4000), {"size": 7})
    for size in (0, 7, 1_000, 2_500, 3_480, 3_600):
        for price in (1.0, 4.0):
            event = {"size": size, "price": price}
            wanted = {
                as_id(n) for n in range(4000) if (size <= n if n % 2 else size < n or price > 3)
            } | ({as_id(4000)} if size == 7 else set())
            found = matcher.match(event)
            assert len(found) == len(wanted)
            assert set(found) == wanted
            assert matcher.count(event) == len(wanted)
            alone = matcher.match_batch([event]).subscription
            assert sorted(alone.tolist()) == sorted(found)


@pytest.mark.parametrize("as_id", [int, str], ids=["int", "string"])
def test_a_result_is_not_written_to_by_the_next_search(as_id: Callable[[int], Any]) -> None:
    matcher = bm.Matcher(PLAIN)
    matcher.subscribe_many([{"id": as_id(n), "filter": f"size = {n}"} for n in range(9)])
    results = [matcher.match_batch([{"size": n}]) for n in range(9)]
    assert [one.subscription.tolist() for one in results] == [[as_id(n)] for n in range(9)]


def test_nothing_of_an_event_is_left_for_the_next() -> None:
    matcher = bm.Matcher(PLAIN)
    matcher.subscribe_many([{"id": 1, "filter": "size = 5"}, {"id": 2, "filter": "size IS NULL"}])
    assert matcher.match({"name": "a", "price": -2.5, "size": 5}) == [1]
    assert matcher.match({"name": "a"}) == [2]
    with pytest.raises(bm.AttributeValueError):
        matcher.match({"size": 5, "price": "no number"})
    assert matcher.match({}) == [2]
    with pytest.raises(bm.AttributeValueError):
        matcher.count({"size": 5, "price": "no number"})
    assert matcher.count({}) == 1


def test_an_event_that_matches_another_while_it_is_read() -> None:
    matcher = bm.Matcher(PLAIN)
    matcher.subscribe_many([{"id": n, "filter": f"size = {n} AND price = 1"} for n in range(9)])
    inner: list[Any] = []

    class Event(Mapping[str, Any]):
        def __getitem__(self, name: str) -> Any:
            return {"size": 3, "price": 1.0}[name]

        def __len__(self) -> int:
            return 2

        def __iter__(self) -> Iterator[str]:
            yield "size"
            inner.append((matcher.match({"size": 7, "price": 1.0}), matcher.count({"size": 7})))
            yield "price"

    assert matcher.match(Event()) == [3]
    assert matcher.count(Event()) == 1
    assert inner == [([7], 0)] * 2


def test_threads_have_buffers_of_their_own() -> None:
    """Each asks for an event of its own while subscriptions come and go."""
    matcher = bm.Matcher(PLAIN)
    matcher.subscribe_many(
        [{"id": 10 * size + n, "filter": f"size = {size}"} for size in range(8) for n in range(9)]
    )
    failures: list[BaseException] = []
    done = threading.Event()

    def ask(size: int) -> None:
        wanted = {10 * size + n for n in range(9)}
        try:
            for _ in range(1500):
                event = {"size": size, "price": 1.0}
                assert {id for id in matcher.match(event) if id < 1000} == wanted
                alone = matcher.match_batch([event]).subscription.tolist()
                assert {id for id in alone if id < 1000} == wanted
                assert matcher.count(event) in (9, 10)
        except BaseException as failure:
            failures.append(failure)

    def change() -> None:
        turn = 0
        while not done.is_set():
            turn += 1
            matcher.subscribe(1000 + turn % 8, f"size = {turn % 8}")
            matcher.unsubscribe(1000 + turn % 8)

    writer = threading.Thread(target=change)
    readers = [threading.Thread(target=ask, args=(size,)) for size in range(8)]
    for thread in (writer, *readers):
        thread.start()
    for thread in readers:
        thread.join(60)
    done.set()
    writer.join(60)
    assert not failures, failures[0]


@pytest.mark.parametrize("rate", [None, 0.0, 0.5])
def test_a_rate_of_false_matches(rate: float | None) -> None:
    random = Random(2)
    matcher = bm.Matcher(PLAIN)
    matcher.subscribe_many([{"id": n, "filter": KINDS["boxes"](random)} for n in range(700)])
    for event in make_events(20, 5, lists=False):
        found = sorted(matcher.match(event, max_false_positive_rate=rate))
        assert matcher.count(event, max_false_positive_rate=rate) == len(found)
        assert set(matcher.match(event)) <= set(found)
    with pytest.raises(bm.IndexConfigError):
        matcher.count({}, max_false_positive_rate=1.5)


def test_a_matcher_without_subscriptions() -> None:
    matcher = bm.Matcher(PLAIN)
    assert matcher.match({"size": 1}) == []
    assert matcher.count({"size": 1}) == 0
    assert len(matcher.match_batch([{"size": 1}]).subscription) == 0
    with pytest.raises(bm.AttributeValueError):
        matcher.count({"size": "one"})
    with pytest.raises(bm.AttributeValueError) as error:
        matcher.match_batch([{"size": "one"}])
    assert error.value.row == 0


@given(
    owners=st.lists(st.integers(0, 40) | st.integers(0, 2**31 - 1), min_size=1, max_size=60),
    data=st.data(),
)
def test_one_box_of_each_owner(owners: list[int], data: st.DataObject) -> None:
    positions = data.draw(st.lists(st.integers(0, len(owners) - 1), max_size=60, unique=True))
    first = data.draw(st.integers(0, len(positions)))
    found = np.array(positions, np.int32)
    end = once_per_owner(np.array(owners, np.int32), found, first, len(positions))
    assert found[:first].tolist() == positions[:first]
    kept = found[first:end].tolist()
    wanted = {owners[position] for position in positions[first:]}
    assert len(kept) == len(wanted)
    assert {owners[position] for position in kept} == wanted
    assert set(kept) <= set(positions[first:])
    assert once_per_owner(NO_OWNERS, found, first, end) == end


@given(
    found=st.lists(st.lists(st.integers(0, 9), max_size=8, unique=True), max_size=6),
    owners=st.lists(st.integers(0, 4), min_size=10, max_size=10),
)
def test_one_box_of_each_owner_for_each_point(found: list[list[int]], owners: list[int]) -> None:
    counts = np.array([len(one) for one in found], np.int64)
    positions = np.array([position for one in found for position in one], np.int32)
    once_per_owner_and_point(np.array(owners, np.int32), counts, positions)
    ends = np.cumsum(counts)
    for one, first, end in zip(found, (ends - counts).tolist(), ends.tolist(), strict=True):
        kept = positions[first:end].tolist()
        assert set(kept) <= set(one)
        assert sorted(owners[position] for position in kept) == sorted({owners[p] for p in one})


@pytest.mark.parametrize("event", [3, None, {"size": "x"}, {"price": float("nan")}, {"name": b"n"}])
def test_errors_are_those_of_the_encoder(event: Any) -> None:
    matcher = bm.Matcher(PLAIN)
    matcher.subscribe(1, "size = 5 AND name = 'n'")
    with pytest.raises(bm.BoxmatchError) as wanted:
        matcher.snapshot.encoder.one(event, matcher.snapshot.reader)
    for look in (matcher.match, matcher.count):
        with pytest.raises(type(wanted.value)) as error:
            look(event)
        assert str(error.value) == str(wanted.value)
