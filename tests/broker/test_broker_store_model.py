"""The store against plain Python: what is appended, acknowledged and removed, by every read."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.settings import Retention
from boxmatch.broker.store import Appended, Store, StoreTransaction
from boxmatch.broker.store.recipients import Recipients
from boxmatch.model.schema import Schema
from property_examples import examples

FEEDS = 2
SUBSCRIBERS = 3
Who = dict[int, list[str]]


class Model(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = Store.open(Path(self.folder.name), sync="normal", pace=0.0)
        self.now = 0.0
        self.next = 1
        # First number, feed, time, bodies; and what every subscriber has, by number.
        self.batches: list[tuple[int, int, float, list[bytes]]] = []
        self.inboxes: dict[int, dict[int, list[str]]] = {}
        self.cursors: dict[int, int] = {}
        self.dropped: dict[int, tuple[int, int]] = {}
        self.keys: dict[tuple[int, str], tuple[float, int, int]] = {}

    @initialize()
    def make(self) -> None:
        def change(t: StoreTransaction) -> tuple[list[int], list[int]]:
            specs = [
                FeedSpec(name=f"f{n}", spaces={f"f{n}": Schema({"a": "int"})}) for n in range(FEEDS)
            ]
            return [t.put_feed(s) for s in specs], [
                t.put_subscriber(f"o{n}") for n in range(SUBSCRIBERS)
            ]

        self.feeds, self.subscribers = self.store.write(change).result()
        for subscriber in self.subscribers:
            self.inboxes[subscriber] = {}
            self.cursors[subscriber] = 0
            self.dropped[subscriber] = (0, 0)

    @rule(
        feed=st.integers(0, FEEDS - 1),
        events=st.lists(
            st.dictionaries(
                st.integers(0, SUBSCRIBERS - 1),
                st.lists(st.sampled_from("abc"), min_size=1),
                max_size=3,
            ),
            max_size=6,
        ),
        key=st.none() | st.sampled_from(["k", "l"]),
        names=st.none() | st.lists(st.sampled_from("uvwxyz"), min_size=6, max_size=6),
        fails=st.booleans(),
    )
    def append(
        self,
        feed: int,
        events: list[Who],
        key: str | None,
        names: list[str] | None,
        fails: bool,
    ) -> None:
        number = self.feeds[feed]
        bodies = [b"%d" % (self.next + place) for place in range(len(events))]
        inboxes: dict[int, list[tuple[int, list[str]]]] = {}
        for place, who in enumerate(events):
            for subscriber, ids in who.items():
                inboxes.setdefault(self.subscribers[subscriber], []).append((place, ids))
        keys = [] if names is None else [f" {name}" for name in names[: len(events)]]

        def change(t: StoreTransaction) -> Appended:
            return t.append(number, self.now, bodies, Recipients.of(inboxes), key=key, keys=keys)

        if fails:

            def failing(t: StoreTransaction) -> None:
                change(t)
                raise ZeroDivisionError

            self.store.write(failing)
        appended = self.store.write(change).result()
        known = self.known(number)
        if key in known:
            first, last = known[key]
            assert (appended[:3], appended.size) == ((first, last, True), last - first + 1)
            return
        new = [
            place for place, one in enumerate(keys) if one not in known and one not in keys[:place]
        ]
        if keys and not new:
            numbers = {known[one][0] for one in keys}
            assert appended[:3] == (min(numbers), max(numbers), True)
            assert appended.size == len(numbers)
            return
        kept = new if keys else list(range(len(events)))
        assert appended[:3] == (self.next, self.next + len(kept) - 1, False)
        assert appended.size == len(kept)
        if key is not None:
            self.keys[number, key] = (self.now, self.next, self.next + len(kept) - 1)
        for sequence, place in enumerate(kept, self.next):
            if keys:
                self.keys[number, keys[place]] = (self.now, sequence, sequence)
            for who, ids in events[place].items():
                self.inboxes[self.subscribers[who]][sequence] = ids
        if kept:
            self.batches.append((self.next, number, self.now, [bodies[place] for place in kept]))
        self.next += len(kept)

    def known(self, feed: int) -> dict[str | None, tuple[int, int]]:
        """The keys that a feed still knows, and their numbers."""
        return {
            key: (first, last)
            for (of, key), (at, first, last) in self.keys.items()
            if of == feed and at > self.now - 24 * 3600
        }

    @rule(subscriber=st.integers(0, SUBSCRIBERS - 1), back=st.integers(-2, 12))
    def acknowledge(self, subscriber: int, back: int) -> None:
        number, sequence = self.subscribers[subscriber], self.next - 1 - back
        self.store.write(lambda t: t.move_cursor(number, sequence)).result()
        self.cursors[number] = max(self.cursors[number], min(sequence, self.next - 1))

    @rule(seconds=st.sampled_from([0.5, 30.0, 24 * 3600.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(
        seconds=st.sampled_from([0.0, 10.0, 1e9]),
        nbytes=st.integers(0, 300),
        backlog=st.integers(0, 12),
    )
    def tidy(self, seconds: float, nbytes: int, backlog: int) -> None:
        done = self.store.tidy(self.now, Retention(seconds=seconds, nbytes=nbytes, backlog=backlog))
        dropped = dict.fromkeys(self.subscribers, 0)
        total = sum(size_of(bodies) for *_, bodies in self.batches)
        gone = 0
        while self.batches:
            first, _, at, bodies = self.batches[0]
            if at >= self.now - seconds and total <= nbytes:
                break
            gone += 1
            total -= size_of(bodies)
            del self.batches[0]
            for subscriber in self.subscribers:
                dropped[subscriber] += self.drop(subscriber, range(first, first + len(bodies)))
        for subscriber in self.subscribers:
            waiting = [n for n in self.inboxes[subscriber] if n > self.cursors[subscriber]]
            dropped[subscriber] += self.drop(subscriber, waiting[: max(len(waiting) - backlog, 0)])
        assert done.batches == gone
        assert done.dropped == {subscriber: count for subscriber, count in dropped.items() if count}

    def drop(self, subscriber: int, numbers: range | list[int]) -> int:
        present = [number for number in numbers if number in self.inboxes[subscriber]]
        unread = [number for number in present if number > self.cursors[subscriber]]
        for number in present:
            del self.inboxes[subscriber][number]
        if unread:
            count, through = self.dropped[subscriber]
            self.dropped[subscriber] = (count + len(unread), max(through, unread[-1]))
        return len(unread)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = Store.open(Path(self.folder.name), sync="normal", pace=0.0)

    @invariant()
    def is_the_same(self) -> None:
        if not self.inboxes:
            return
        store = self.store
        assert store.next_sequence == self.next
        assert [row[2:] for row in store.reader.subscribers()] == [
            (self.cursors[subscriber], *self.dropped[subscriber]) for subscriber in self.subscribers
        ]
        bodies = {
            first + place: body
            for first, _, _, all_ in self.batches
            for place, body in enumerate(all_)
        }
        assert store.first_sequence() == (self.batches[0][0] if self.batches else self.next)
        for subscriber in self.subscribers:
            cursor = self.cursors[subscriber]
            # What is acknowledged may be there still; what is not must be.
            wanted = [(n, ids) for n, ids in self.inboxes[subscriber].items() if n > cursor]
            notifications = store.reader.inbox(subscriber, cursor, 1000)
            assert [
                (notification.sequence, notification.subscriptions)
                for notification in notifications
            ] == wanted
            assert all(
                notification.body == bodies[notification.sequence] for notification in notifications
            )
            assert store.reader.inbox(subscriber, cursor, 2) == notifications[:2]
            assert store.reader.backlogs([subscriber]) == {subscriber: len(wanted)}
        for feed in self.feeds:
            log = [
                n
                for first, f, _, b in self.batches
                if f == feed
                for n in range(first, first + len(b))
            ]
            events = store.reader.events(feed, 0, 1000)
            assert [event.sequence for event in events] == log
            assert all(event.body == bodies[event.sequence] for event in events)
            assert store.reader.last_events(feed, 3) == events[-3:]
            middle = self.next // 2
            assert (
                store.reader.events(feed, middle, 3)
                == [e for e in events if e.sequence > middle][:3]
            )
        assert store.reader.damage == []

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


def size_of(bodies: list[bytes]) -> int:
    return sum(4 + len(body) for body in bodies)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=examples(80), stateful_step_count=25, deadline=None)
