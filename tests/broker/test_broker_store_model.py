"""The store against plain Python: what is appended, acknowledged and tidied, seen by every read."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from boxmatch.broker.messages import FeedSpec
from boxmatch.broker.settings import Retention
from boxmatch.broker.store import Store, Transaction
from boxmatch.model.schema import Schema

FEEDS = 2
OWNERS = 3
Who = dict[int, list[str]]


class Model(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = Store.open(Path(self.folder.name), sync="normal", pace=0.0)
        self.now = 0.0
        self.next = 1
        # First number, feed, time, bodies; and what every owner has, by number.
        self.batches: list[tuple[int, int, float, list[bytes]]] = []
        self.inboxes: dict[int, dict[int, list[str]]] = {}
        self.cursors: dict[int, int] = {}
        self.dropped: dict[int, tuple[int, int]] = {}
        self.keys: dict[tuple[int, str], tuple[float, int, int]] = {}

    @initialize()
    def make(self) -> None:
        def change(t: Transaction) -> tuple[list[int], list[int]]:
            specs = [
                FeedSpec(name=f"f{n}", spaces={f"f{n}": Schema({"a": "int"})}) for n in range(FEEDS)
            ]
            return [t.put_feed(s) for s in specs], [t.put_owner(f"o{n}") for n in range(OWNERS)]

        self.feeds, self.owners = self.store.write(change).result()
        for owner in self.owners:
            self.inboxes[owner] = {}
            self.cursors[owner] = 0
            self.dropped[owner] = (0, 0)

    @rule(
        feed=st.integers(0, FEEDS - 1),
        events=st.lists(
            st.dictionaries(
                st.integers(0, OWNERS - 1), st.lists(st.sampled_from("abc"), min_size=1), max_size=3
            ),
            max_size=6,
        ),
        key=st.none() | st.sampled_from(["k", "l"]),
        fails=st.booleans(),
    )
    def append(self, feed: int, events: list[Who], key: str | None, fails: bool) -> None:
        number = self.feeds[feed]
        bodies = [b"%d" % (self.next + place) for place in range(len(events))]
        inboxes: dict[int, list[tuple[int, list[str]]]] = {}
        for place, who in enumerate(events):
            for owner, ids in who.items():
                inboxes.setdefault(self.owners[owner], []).append((place, ids))
        if fails:

            def failing(t: Transaction) -> None:
                t.append(number, self.now, bodies, inboxes, key=key)
                raise ZeroDivisionError

            self.store.write(failing)
        appended = self.store.write(
            lambda t: t.append(number, self.now, bodies, inboxes, key=key)
        ).result()
        if key is not None:
            known = self.keys.get((number, key))
            if known is not None and known[0] > self.now - 24 * 3600:
                assert appended == (*known[1:], True)
                return
            self.keys[number, key] = (self.now, self.next, self.next + len(events) - 1)
        assert appended == (self.next, self.next + len(events) - 1, False)
        if events:
            self.batches.append((self.next, number, self.now, bodies))
        for owner, notes in inboxes.items():
            self.inboxes[owner].update({self.next + place: ids for place, ids in notes})
        self.next += len(events)

    @rule(owner=st.integers(0, OWNERS - 1), back=st.integers(-2, 12))
    def acknowledge(self, owner: int, back: int) -> None:
        number, sequence = self.owners[owner], self.next - 1 - back
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
        dropped = dict.fromkeys(self.owners, 0)
        total = sum(size_of(bodies) for *_, bodies in self.batches)
        gone = 0
        while self.batches:
            first, _, at, bodies = self.batches[0]
            if at >= self.now - seconds and total <= nbytes:
                break
            gone += 1
            total -= size_of(bodies)
            del self.batches[0]
            for owner in self.owners:
                dropped[owner] += self.drop(owner, range(first, first + len(bodies)))
        for owner in self.owners:
            waiting = [n for n in self.inboxes[owner] if n > self.cursors[owner]]
            dropped[owner] += self.drop(owner, waiting[: max(len(waiting) - backlog, 0)])
        assert done.batches == gone
        assert done.dropped == {owner: count for owner, count in dropped.items() if count}

    def drop(self, owner: int, numbers: range | list[int]) -> int:
        present = [number for number in numbers if number in self.inboxes[owner]]
        unread = [number for number in present if number > self.cursors[owner]]
        for number in present:
            del self.inboxes[owner][number]
        if unread:
            count, through = self.dropped[owner]
            self.dropped[owner] = (count + len(unread), max(through, unread[-1]))
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
        assert [row[2:] for row in store.owners()] == [
            (self.cursors[owner], *self.dropped[owner]) for owner in self.owners
        ]
        bodies = {
            first + place: body
            for first, _, _, all_ in self.batches
            for place, body in enumerate(all_)
        }
        assert store.first_sequence() == (self.batches[0][0] if self.batches else self.next)
        for owner in self.owners:
            cursor = self.cursors[owner]
            # What is acknowledged may be there still; what is not must be.
            wanted = [(n, ids) for n, ids in self.inboxes[owner].items() if n > cursor]
            notes = store.inbox(owner, cursor, 1000)
            assert [(note.sequence, note.subscriptions) for note in notes] == wanted
            assert all(note.body == bodies[note.sequence] for note in notes)
            assert store.inbox(owner, cursor, 2) == notes[:2]
            assert store.backlogs([owner]) == {owner: len(wanted)}
        for feed in self.feeds:
            log = [
                n
                for first, f, _, b in self.batches
                if f == feed
                for n in range(first, first + len(b))
            ]
            events = store.events(feed, 0, 1000)
            assert [event.sequence for event in events] == log
            assert all(event.body == bodies[event.sequence] for event in events)
            assert store.last_events(feed, 3) == events[-3:]
            middle = self.next // 2
            assert store.events(feed, middle, 3) == [e for e in events if e.sequence > middle][:3]
        assert store.damage == []

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


def size_of(bodies: list[bytes]) -> int:
    return sum(4 + len(body) for body in bodies)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
