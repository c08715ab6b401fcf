"""Arrays of recipients against lists, and what subscribers find who were away for long."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.settings import Retention
from boxmatch.broker.store import Store, StoreTransaction, recipient_rows, waiting
from boxmatch.broker.store.recent import Recent
from boxmatch.broker.store.recipients import (
    NOBODY,
    Inboxes,
    Recipients,
    join,
    pack,
    unpack,
    unpack_addressees,
    unpack_details,
    within,
)
from boxmatch.broker.subscribers import subscribers as by_slot
from boxmatch.broker.subscribers.subscribers import Slots, Subscriber, Subscription
from boxmatch.model.schema import Schema

EVENTS = 6
Lists = dict[int, list[tuple[int, list[str]]]]

IDS = st.lists(st.text(st.characters(codec="utf-8"), max_size=3), min_size=1, max_size=3)
INBOXES = st.dictionaries(
    st.sampled_from([1, 2, 3, 255, 256, 70_000]),
    st.dictionaries(st.integers(0, EVENTS - 1), IDS, min_size=1).map(
        lambda box: sorted(box.items())
    ),
    max_size=4,
)


def lists(recipients: Recipients) -> Lists:
    return dict(recipients.boxes())


def wanted(inboxes: Inboxes, move: int = 0) -> Lists:
    return {
        subscriber: [(event + move, list(ids)) for event, ids in box]
        for subscriber, box in sorted(inboxes.items())
        if box
    }


def packed_bytes(recipients: Recipients) -> int:
    """Without the fixed beginnings of both columns."""
    empty = sum(map(len, pack(NOBODY, 0)))
    first = int(recipients.event.min(initial=0))
    return sum(map(len, pack(recipients, first))) - empty if recipients.size else 0


@settings(deadline=None)
@given(inboxes=INBOXES, first=st.sampled_from([0, 1, 250, 2**33, 2**62]))
def test_what_is_packed_is_unpacked(inboxes: Inboxes, first: int) -> None:
    recipients = Recipients.of(inboxes)
    recipients = recipients._replace(event=recipients.event + first)
    addressees, details = pack(recipients, first)
    assert lists(unpack(addressees, details, first)) == wanted(inboxes, first)
    half, other = unpack_addressees(addressees, first), unpack_details(details)
    for subscriber in (0, 1, 2, 255, 256, 257, 70_000, 10**9):
        for after in (-1, first - 1, first, first + 2, 2**62 + 10):
            places = half.of_subscriber(subscriber, after)
            box = wanted(inboxes, first).get(subscriber, [])
            assert other.names(places) == [ids for event, ids in box if event > after]


@settings(deadline=None)
@given(parts=st.lists(INBOXES, max_size=4), most=st.integers(1, 150))
def test_parts_are_put_together_and_cut(parts: list[Inboxes], most: int) -> None:
    moved = [Recipients.of(part) for part in parts]
    moved = [one._replace(event=one.event + EVENTS * n) for n, one in enumerate(moved)]
    together = join(moved)
    expected: Lists = {}
    for number, part in enumerate(parts):
        for subscriber, box in wanted(part, EVENTS * number).items():
            expected.setdefault(subscriber, []).extend(box)
    assert lists(together) == expected
    pieces = list(together.pieces(most))
    assert lists(join(pieces)) == expected
    ends = [(int(one.event.min()), int(one.event.max())) for one in pieces]
    assert all(one[1] < other[0] for one, other in pairwise(ends))
    for piece in pieces:
        assert packed_bytes(piece.only(piece.event < piece.event.max())) <= most


@given(inboxes=INBOXES, positions=st.lists(st.integers(0, EVENTS - 1), unique=True).map(sorted))
def test_some_events_are_chosen(inboxes: Inboxes, positions: list[int]) -> None:
    found = Recipients.of(inboxes).select(positions)
    expected = {
        subscriber: [
            (positions.index(event), list(ids)) for event, ids in box if event in positions
        ]
        for subscriber, box in sorted(inboxes.items())
    }
    assert lists(found) == {subscriber: box for subscriber, box in expected.items() if box}
    assert lists(found.only(np.zeros(found.size, np.bool_))) == {} == lists(NOBODY)


@given(
    pairs=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 11)), max_size=80),
    turned=st.booleans(),
)
def test_matches_are_put_together(pairs: list[tuple[int, int]], turned: bool) -> None:
    """Few and many, in the order of events or not: the same."""
    slots = Slots("f")
    people = [Subscriber(number, f"s{number}") for number in (3, 1, 2)]
    names = [f"{number}é" * (number % 3 + 1) for number in range(12)]
    for number, name in enumerate(names):
        slots.add(Subscription(people[number % 3], name, b"", 0.0, 0.0))
    pairs = pairs if turned else sorted(pairs)
    expected: Lists = {}
    for event in range(5):
        for number in (1, 2, 3):
            some = [
                names[slot]
                for at, slot in pairs
                if at == event and people[slot % 3].number == number
            ]
            if some:
                expected.setdefault(number, []).append((event, some))
    events, chosen = (np.array([pair[n] for pair in pairs], np.int64) for n in (0, 1))
    for few in (0, 1_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(by_slot, "_FEW_MATCHES", few)
            found = slots.recipients(events, chosen)
        assert lists(found) == expected
        assert np.array_equal(found.subscriber, np.sort(found.subscriber))


@given(
    events=st.lists(st.integers(0, 30)),
    cuts=st.lists(st.integers(0, 30), unique=True).map(sorted),
)
def test_events_within_ranges(events: list[int], cuts: list[int]) -> None:
    ranges = list(zip(cuts[::2], cuts[1::2], strict=False))
    found = within(np.array(events, np.int64), ranges)
    assert found.tolist() == [any(low <= one <= high for low, high in ranges) for one in events]


def test_what_was_read_last_is_kept_up_to_so_many_bytes() -> None:
    recent: Recent[str, int] = Recent(5_500)
    for name, nbytes in (("a", 40), ("b", 40), ("a", 40), ("c", 10)):
        recent.put(name, ord(name), nbytes)
    assert recent.get("a") == ord("a")
    recent.put("d", ord("d"), 500)
    recent.put("e", ord("e"), 30)
    assert [recent.get(name) for name in "abcde"] == [ord("a"), None, *map(ord, "cde")]
    recent.put("f", ord("f"), 5_000)
    assert [recent.get(name) for name in "acdef"] == [None] * 5
    for name in "ghi":
        recent.put(name, ord(name), 10)
    recent.retain({"h", "z"})
    assert [recent.get(name) for name in "ghi"] == [None, ord("h"), None]
    recent.put("j", ord("j"), 2_200)
    assert [recent.get(name) for name in "hj"] == [ord("h"), ord("j")]
    recent.clear()
    recent.put("k", ord("k"), 4_000)
    assert [recent.get(name) for name in "hjk"] == [None, None, ord("k")]


def make(store: Store, feeds: int, subscribers: int) -> tuple[list[int], list[int]]:
    def change(t: StoreTransaction) -> tuple[list[int], list[int]]:
        specs = [
            FeedSpec(name=f"f{n}", spaces={f"f{n}": Schema({"a": "int"})}) for n in range(feeds)
        ]
        return [t.put_feed(one) for one in specs], [
            t.put_subscriber(f"s{n}") for n in range(subscribers)
        ]

    return store.write(change).result()


def test_who_was_away_for_long_finds_all_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others read on, rows are put together again and again, and the broker starts anew."""
    for module in (recipient_rows, waiting):
        monkeypatch.setattr(module, "MOST_BYTES", 4000)
    monkeypatch.setattr(waiting, "_BYTES_AT_ONCE", 8000)
    chance = random.Random(5)
    expected: dict[int, dict[int, list[str]]] = {}
    cursors: dict[int, int] = {}
    with Store.open(tmp_path, sync="normal", pace=0.0) as store:
        feeds, subscribers = make(store, 3, 40)
    expected = {subscriber: {} for subscriber in subscribers}
    cursors = dict.fromkeys(subscribers, 0)
    for _ in range(3):
        with Store.open(tmp_path, sync="normal", pace=0.0) as store:
            for turn in range(150):
                size = chance.choice([1, 1, 5])
                inboxes: Lists = {}
                for subscriber in chance.sample(subscribers, 4):
                    some = sorted(chance.sample(range(size), chance.randint(1, size)))
                    inboxes[subscriber] = [(place, [f"t{turn}", "é"]) for place in some]
                feed, bodies = chance.choice(feeds), [b"%d" % n for n in range(size)]
                recipients = Recipients.of(inboxes)
                first = (
                    store.write(lambda t, f=feed, b=bodies, r=recipients: t.append(f, 0.0, b, r))
                    .result()
                    .first
                )
                for subscriber, box in inboxes.items():
                    expected[subscriber] |= {first + place: ids for place, ids in box}
                for subscriber in subscribers[:20]:
                    if chance.random() < 0.2:
                        cursors[subscriber] = reached = store.next_sequence - 1
                        store.write(lambda t, s=subscriber, n=reached: t.move_cursor(s, n))
                if turn % 20 == 19:
                    store.tidy(0.0, Retention())
            store.write(lambda t: None).result()  # and with it what came before
            assert store.reader.sizes().inbox_rows < 60
            backlogs = store.reader.backlogs()
            for subscriber in subscribers:
                left = {n: i for n, i in expected[subscriber].items() if n > cursors[subscriber]}
                found = store.reader.inbox(subscriber, cursors[subscriber], 10**6)
                assert {one.sequence: one.subscriptions for one in found} == left
                assert [one.sequence for one in found] == sorted(left)
                assert backlogs[subscriber] == len(left)
                assert store.reader.backlogs([subscriber]) == {subscriber: len(left)}
                if left:
                    middle = sorted(left)[len(left) // 2]
                    some = store.reader.inbox(subscriber, middle - 1, 10**6, through=middle)
                    assert [one.sequence for one in some] == [middle]
            assert store.reader.damage == []


def test_a_drop_that_was_cut_short_ends_later(tmp_path: Path) -> None:
    with Store.open(tmp_path, pace=0.0) as store:
        [one, other], [ann, bob] = make(store, 2, 2)
        for feed in (one, other, one, other):
            both = Recipients.of({ann: [(0, ["s"])], bob: [(1, ["s"])]})
            store.write(lambda t, f=feed, r=both: t.append(f, 0.0, [b"1", b"2"], r, key=f"{f}"))
            key = f"again {store.write(lambda t: t.next_sequence).result()}"
            store.write(lambda t, f=feed, r=both, k=key: t.append(f, 0.0, [b"1", b"2"], r, key=k))
            store.write(lambda t, f=feed: t.put_subscription(ann, f"s{f}", f, b"{}", 0.0))
            store.write(lambda t, f=feed: t.put_member(f, "m", b"{}", None)).result()
        kept = [event.sequence for event in store.reader.events(other, 0, 99)]
        store.write(lambda t: t.drop_feed(one)).result()
    with Store.open(tmp_path, pace=0.0) as store:
        reader = store.reader
        gone = set(range(1, store.next_sequence)) - set(kept)
        assert [found.sequence for found in reader.inbox(ann, 0, 99)] == kept[::2]
        assert [found.sequence for found in reader.inbox(bob, 0, 99)] == kept[1::2]
        assert all(reader.event(number) is None for number in gone)
        assert all(reader.event(number) is not None for number in kept)
        assert store.tidy(0.0, Retention()).dropped == {}
        assert reader.backlogs() == {ann: len(kept) // 2, bob: len(kept) // 2}
        assert [row.dropped for row in reader.subscribers()] == [0, 0]
        with reader.connection() as connection:
            for table in ("batch", "subscription", "member", "repeat"):
                rows = connection.execute(f"SELECT DISTINCT feed FROM {table}").fetchall()
                assert rows == [(other,)]
        assert reader.damage == []


@pytest.mark.parametrize(
    ("ranges", "inside", "others"),
    [
        ([(1, 4), (5, 9)], [1, 6], []),
        ([(5, 9), (1, 4)], [1, 6], []),
        ([(1, 4), (6, 9)], [6], [1]),
        ([(1, 8)], [1], [6]),
        ([(2, 20)], [6, 11], [1]),
        ([(1, 20)], [1, 6, 11], []),
        ([(3, 3), (5, 5), (7, 8), (10, 10)], [], [1, 6]),
        ([], [], []),
    ],
)
def test_rows_that_overlap_ranges(
    ranges: list[tuple[int, int]],
    inside: list[int],
    others: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        recipient_rows, "_OVERLAPPING", recipient_rows._OVERLAPPING.replace("256", "2")
    )
    monkeypatch.setattr(recipient_rows, "_KEYS_AT_ONCE", 2)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(recipient_rows.TABLE)
        for first, last in ((1, 5), (6, 9), (11, 11)):
            events = sorted({first, last})
            of_row = Recipients.of_rows([(1, event, ["a"]) for event in events])
            recipient_rows.put(connection, of_row)
        rows = list(recipient_rows.overlapping(connection, ranges))
        assert [row.key.first for row in rows if row.is_inside] == inside
        assert [row.key.first for row in rows if not row.is_inside] == others
        assert [row.key.first for row in rows] == sorted(inside + others)
        read = recipient_rows.contents(connection, [row.key for row in rows])
        assert [first for first, _ in read] == sorted(inside + others)
        for row, (_, recipients) in zip(rows, read, strict=True):
            assert row.nbytes == sum(map(len, pack(recipients, row.key.first)))


@pytest.mark.parametrize("counted", [False, True])
def test_notifications_are_dropped_in_short_transactions(
    counted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one of two feeds, whose events are in the same rows, beside rows of its own."""
    monkeypatch.setattr(recipient_rows, "MOST_BYTES", 300)
    monkeypatch.setattr(waiting, "MOST_BYTES", 300)
    monkeypatch.setattr(waiting, "_BYTES_AT_ONCE", 600)
    chance = random.Random(6)
    gone: Lists = {}
    kept: Lists = {}
    with Store.open(tmp_path, sync="normal", pace=0.0) as store:
        [one, other], subscribers = make(store, 2, 5)
        for turn in range(60):
            feed, size = (one, 40) if turn % 10 == 9 else (chance.choice([one, other]), 2)
            some = {
                subscriber: [(place, [f"t{turn}"] * 3) for place in range(size)]
                for subscriber in chance.sample(subscribers, 3)
            }
            bodies, recipients = [b"{}"] * size, Recipients.of(some)
            at = 0.0 if feed == one else 1e9
            first = (
                store.write(lambda t, f=feed, a=at, b=bodies, r=recipients: t.append(f, a, b, r))
                .result()
                .first
            )
            for subscriber, box in some.items():
                boxes = (gone if feed == one else kept).setdefault(subscriber, [])
                boxes += [(first + place, ids) for place, ids in box]
        store.tidy(0.0, Retention())  # puts rows together
        steps: list[int] = []
        drop_some = waiting._drop_some

        def counting(transaction: StoreTransaction, **arguments: Any) -> Any:
            before = size_of(transaction)
            result = drop_some(transaction, **arguments)
            steps.append(before - size_of(transaction))
            return result

        monkeypatch.setattr(waiting, "_drop_some", counting)
        if counted:
            removed = store.tidy(1e9, Retention(seconds=1e6))
            assert removed.dropped == {subscriber: len(box) for subscriber, box in gone.items()}
        else:
            store.drop_feed(one)
        assert len(steps) > 4
        most = 600 if counted else 600 * waiting._UNREAD
        assert max(steps) <= most
        for subscriber in subscribers:
            found = store.reader.inbox(subscriber, 0, 10**6)
            assert [(e.sequence, e.subscriptions) for e in found] == kept.get(subscriber, [])
        assert store.reader.backlogs() == {n: len(kept.get(n, [])) for n in subscribers}
        assert store.reader.damage == []


def size_of(transaction: StoreTransaction) -> int:
    return sum(row.nbytes for row in transaction.overlapping([(0, 10**9)]))
