"""A subscriber that shares its notifications against plain Python, with restarts and crashes."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from boxmatch.broker.broker import Broker
from boxmatch.broker.delivery.shared_inbox import SharedStream
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.settings import Settings
from boxmatch.broker.store import Store
from boxmatch.model.schema import Schema
from boxmatch.wire.event_bodies import Events
from boxmatch.wire.requests import Sharing, Wanted
from property_examples import examples

T = TypeVar("T")
MOST, ROOM, WINDOW, SECONDS = 3, 8, 4, 10.0
PLACES = st.integers(0, 2)
SEQUENCES = st.lists(st.integers(1, 30), min_size=1, max_size=5)


@dataclass
class Known:
    """A notification that was handed out, and is neither done nor dead."""

    deliveries: int
    place: int | None
    deadline: float


class Model(RuleBasedStateMachine):
    """Three connections of one subscriber, which come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.now = 0.0
        self.published = self.position = self.starts = 0
        self.known: dict[int, Known] = {}
        self.done: set[int] = set()
        self.dead: set[int] = set()
        self.streams: list[SharedStream | None] = [None, None, None]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 20))

    @initialize()
    def begin(self) -> None:
        self.start(self.folder / "0")
        schema = Schema({"n": "int"})
        self.run(self.broker.feeds.create(FeedSpec(name="f", spaces={"f": schema})))
        self.run(self.broker.subscriptions.put("ann", "s", Wanted(feed="f", filter="n > 0")))
        sharing = Sharing(ack_seconds=SECONDS, max_deliveries=MOST, max_in_flight=ROOM)
        self.run(self.broker.shared.share("ann", sharing))

    def start(self, data: Path) -> None:
        store = Store.open(data, sync="normal", pace=0.0)
        self.data = data
        self.broker = Broker(Settings(data=data), store, monotonic=lambda: self.now)
        self.broker.directory.load(self.broker.startup)
        self.run(self.broker.start())
        for task in self.broker.housekeeping.tasks:  # it is done here, by the rules
            task.cancel()

    @rule(count=st.integers(1, 6))
    def publish(self, count: int) -> None:
        rows = [{"n": 1}] * count
        events = Events(rows, [orjson.dumps(row) for row in rows])
        self.run(self.broker.pipeline.publish("f", events))
        self.published += count

    @rule(place=PLACES, most=st.integers(1, 5))
    def take(self, place: int, most: int) -> None:
        stream = self.streams[place]
        if stream is None:
            stream = self.streams[place] = self.broker.shared.get("ann").stream(window=WINDOW)
            self.run(stream.__aenter__())
        taken = self.run(stream.take_now(most))
        had = sum(one.place == place for one in self.known.values())
        again = sorted(
            (one.deadline, n)
            for n, one in self.known.items()
            if one.place is None and one.deadline <= self.now and one.deliveries < MOST
        )
        room = min(most, WINDOW - had)
        expected = [n for _, n in again][:room]
        if not expected:  # what is new comes when nothing else waits
            new = min(room, ROOM - len(self.known), self.published - self.position)
            expected = list(range(self.position + 1, self.position + 1 + max(new, 0)))
            self.position += len(expected)
        assert [one.sequence for one in taken] == expected
        for one in taken:
            known = self.known.setdefault(one.sequence, Known(0, None, 0.0))
            assert known.place is None  # never to two at a time
            known.deliveries += 1
            assert one.deliveries == known.deliveries <= MOST
            known.place, known.deadline = place, self.now + SECONDS

    @rule(sequences=SEQUENCES)
    def acknowledge(self, sequences: list[int]) -> None:
        found = set(sequences) & self.known.keys()
        assert self.run(self.broker.shared.acknowledge("ann", sequences)) == len(found)
        for sequence in found:
            del self.known[sequence]
        self.done |= found

    @rule(sequences=SEQUENCES, delay=st.sampled_from([0.0, 4.0]))
    def reject(self, sequences: list[int], delay: float) -> None:
        held = [n for n, one in self.known.items() if n in sequences and one.place is not None]
        assert self.broker.shared.get("ann").reject(sequences, "no", delay) == len(held)
        for sequence in held:
            self.give_up(sequence, self.now + delay if delay else 0.0)

    @rule(place=PLACES)
    def disconnect(self, place: int) -> None:
        stream, self.streams[place] = self.streams[place], None
        if stream is not None:
            stream.close()
        for sequence, one in self.known.items():
            if one.place == place:
                self.give_up(sequence, 0.0)

    @rule(seconds=st.sampled_from([1.0, 5.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for sequence, one in self.known.items():
            if one.place is not None and one.deadline <= self.now:
                self.give_up(sequence, 0.0)
        self.sweep()

    @rule()
    def sweep(self) -> None:
        self.run(self.broker.shared.sweep())
        exhausted = {
            n for n, one in self.known.items() if one.place is None and one.deliveries >= MOST
        }
        for sequence in exhausted:
            del self.known[sequence]
        self.dead |= exhausted

    def give_up(self, sequence: int, ready: float) -> None:
        self.known[sequence].place, self.known[sequence].deadline = None, ready

    @rule()
    def restart(self) -> None:
        self.run(self.broker.stop())
        self.reopen(self.data)

    @rule(swept=st.booleans())
    def crash(self, swept: bool) -> None:
        """The data as they are on disk are opened, whatever the broker had in mind still."""
        if swept:
            self.sweep()
        self.starts += 1
        crashed = self.folder / str(self.starts)
        shutil.copytree(self.data, crashed)
        self.run(self.broker.stop())
        self.reopen(crashed, crashed=not swept)

    def reopen(self, data: Path, *, crashed: bool = False) -> None:
        self.streams = [None, None, None]
        self.start(data)
        book = self.broker.shared.get("ann").book
        if crashed:
            # Deliveries since the last write are forgotten, and nothing else.
            self.position = book.position
            self.known = {n: one for n, one in self.known.items() if n <= self.position}
            for sequence, deliveries in book.progress.outstanding.items():
                assert deliveries <= self.known[sequence].deliveries
                self.known[sequence].deliveries = deliveries
        for sequence in self.known:
            self.give_up(sequence, 0.0)
        self.sweep()

    @invariant()
    def nothing_is_lost(self) -> None:
        if not self.published:
            return
        inbox = self.broker.shared.get("ann")
        left = {sequence: one.deliveries for sequence, one in self.known.items()}
        assert inbox.book.progress == (self.position, left)
        settled = self.done | self.dead
        assert settled | left.keys() == set(range(1, self.position + 1))
        assert not settled & left.keys()
        undone = min(left, default=self.position + 1)
        assert inbox.subscriber.cursor == inbox.book.cursor == undone - 1
        letters = self.run(self.broker.webhooks.dead_letters("ann", 0, 1000))
        assert sorted(one.first for one in letters) == sorted(self.dead)

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.run(self.broker.stop())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self.folder)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=examples(50), stateful_step_count=30, deadline=None)
