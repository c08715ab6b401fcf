"""A state feed against plain Python: whatever fails or expires, all hear what they should."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import boxmatch as bm
from boxmatch.broker.broker import Broker
from boxmatch.broker.feeds import state_feed
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.settings import Settings
from boxmatch.broker.store import Store, StoreTransaction
from boxmatch.model.schema import Schema
from boxmatch.wire.requests import Wanted

SPEC = FeedSpec(name="s", kind="state", spaces={"s": Schema({"x": "int"})})
SUBSCRIBERS = ("ann", "bob")

Key = tuple[str, str]
Interval = tuple[int, int]
subscribers = st.sampled_from(SUBSCRIBERS)
ids = st.sampled_from("abc")
intervals = st.tuples(st.integers(0, 9), st.integers(0, 5)).map(lambda one: (one[0], sum(one)))
lifetimes = st.none() | st.integers(1, 4)


@dataclass
class Member:
    x: Interval
    expires: float | None

    def meets(self, other: Member) -> bool:
        return self.x[0] <= other.x[1] and other.x[0] <= self.x[1]


class Model(RuleBasedStateMachine):
    loop: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.now = 1_000.0
        self.ticks = count(1)
        self.publications: dict[str, Member] = {}
        self.subscriptions: dict[Key, Member] = {}
        self.told: Counter[tuple[str, str, str, str, str]] = Counter()
        """Subscriber, kind, publication with what it was, and subscription."""
        self.refuse = False
        self.start()
        self.run(self.broker.feeds.create(SPEC))

    def start(self) -> None:
        store = Store.open(Path(self.folder.name), sync="normal", pace=0.0)
        self.broker = Broker(Settings(data=Path(self.folder.name)), store, clock=lambda: self.now)
        self.broker.directory.load(self.broker.startup)
        self.run(self.broker.start())
        for task in self.broker.housekeeping.tasks:  # what expires does so when we say so
            task.cancel()

    def run(self, work: Any) -> Any:
        return self.loop.run(work)

    def teardown(self) -> None:
        self.run(self.broker.stop())
        self.folder.cleanup()

    # What should be

    def tell(self, kind: str, publication: str, was: Member, key: Key) -> None:
        self.told[key[0], kind, publication, str(was.x), key[1]] += 1

    def expire(self) -> None:
        """In the order of the times, which are all different. With every operation that gets as
        far as the feed, unless nothing can be stored.
        """
        going: list[tuple[float | None, str, Key | None]] = [
            (one.expires, id, None) for id, one in self.publications.items()
        ]
        going += [(one.expires, "", key) for key, one in self.subscriptions.items()]
        due = [one for one in going if one[0] is not None and one[0] <= self.now]
        for _, id, key in sorted(due, key=lambda one: one[0] or 0.0):
            if key is None:
                self.forget_publication(id)
            else:
                gone = self.subscriptions.pop(key)
                for publication, one in self.publications.items():
                    if one.meets(gone):
                        self.tell("leave", publication, one, key)

    def forget_publication(self, id: str) -> None:
        gone = self.publications.pop(id)
        for key, one in self.subscriptions.items():
            if one.meets(gone):
                self.tell("deleted", id, gone, key)

    def moved(self, publication: str, one: Member, was: bool, now: bool, key: Key) -> None:
        if was != now:
            self.tell("enter" if now else "leave", publication, one, key)

    def end_of(self, ttl: int | None) -> tuple[float | None, float | None]:
        """A time to live such that no two end at once, and when that is."""
        if ttl is None:
            return None, None
        lifetime = ttl + next(self.ticks) / 4096
        return lifetime, self.now + lifetime

    # What is done

    @rule(subscriber=subscribers, id=ids, x=intervals, ttl=lifetimes)
    def put_subscription(self, subscriber: str, id: str, x: Interval, ttl: int | None) -> None:
        lifetime, expires = self.end_of(ttl)
        wanted = Wanted(feed="s", regions={"region": {"x": list(x)}}, ttl=lifetime)
        if not self.do(self.broker.subscriptions.put(subscriber, id, wanted)):
            return
        before, new = self.subscriptions.get((subscriber, id)), Member(x, expires)
        for publication, one in self.publications.items():
            was = before is not None and before.meets(one)
            self.moved(publication, one, was, new.meets(one), (subscriber, id))
        self.subscriptions[subscriber, id] = new

    @rule(subscriber=subscribers, id=ids)
    def delete_subscription(self, subscriber: str, id: str) -> None:
        work = self.broker.subscriptions.delete(subscriber, id)
        if (subscriber, id) not in self.subscriptions:
            with pytest.raises(bm.UnknownSubscriptionError):
                self.run(work)
        elif self.do(work, lambda: (subscriber, id) in self.subscriptions):
            del self.subscriptions[subscriber, id]

    @rule(id=ids, x=intervals, ttl=lifetimes)
    def put_publication(self, id: str, x: Interval, ttl: int | None) -> None:
        lifetime, expires = self.end_of(ttl)
        regions = {"region": {"x": x}}
        if not self.do(self.broker.state.put_publication("s", id, regions=regions, ttl=lifetime)):
            return
        before, new = self.publications.get(id), Member(x, expires)
        for key, one in self.subscriptions.items():
            was = before is not None and before.meets(one)
            self.moved(id, new, was, new.meets(one), key)
        self.publications[id] = new

    @rule(id=ids)
    def retract(self, id: str) -> None:
        if self.do(self.broker.state.retract("s", id), lambda: id in self.publications):
            self.forget_publication(id)

    @rule(regions=st.sampled_from([{"y": 1}, {"x": (2, 1)}, {}]))
    def ask_for_what_cannot_be(self, regions: dict[str, Any]) -> None:
        work = self.broker.state.put_publication("s", "p", regions={"region": regions}, ttl=-1.0)
        self.do(work, lambda: False)

    @rule()
    def let_expire(self) -> None:
        self.do(self.broker.state.expire())

    @rule(seconds=st.integers(1, 3))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @precondition(lambda self: not self.refuse)
    @rule()
    def set_the_clock_back(self) -> None:
        self.let_expire()
        self.now -= 1

    @rule()
    def start_again(self) -> None:
        self.run(self.broker.stop())
        self.start()

    @rule()
    def have_no_room(self) -> None:
        """Nothing can be stored until this comes again."""
        self.refuse = not self.refuse

    def do(self, work: Any, is_possible: Callable[[], bool] = lambda: True) -> bool:
        """Whether it was done."""
        if self.refuse:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(StoreTransaction, "execute", no_room)
                with suppress(bm.BoxmatchError):
                    self.run(work)
                self.settle()
            return False
        self.expire()
        if is_possible():
            self.run(work)
            return True
        with pytest.raises((bm.UnknownMemberError, bm.UnknownSubscriptionError, bm.RegionError)):
            self.run(work)
        self.settle()
        return False

    def settle(self) -> None:
        """What has expired may be stored, or undone, after the operation was refused."""
        self.run(self.broker.store.commit(lambda transaction: None))
        self.run(self.broker.pipeline.call(self.broker.state.feed("s"), lambda: None))
        self.run(asyncio.sleep(0))

    @invariant()
    def all_are_told(self) -> None:
        assert self.heard() == self.told
        for subscriber in SUBSCRIBERS:
            known = {one.id for one in self.broker.subscriptions.list(subscriber)}
            assert known == {id for name, id in self.subscriptions if name == subscriber}
        info = self.broker.feeds.get("s")
        assert info.subscriptions == len(self.subscriptions)
        assert info.publications == len(self.publications)

    def heard(self) -> Counter[tuple[str, str, str, str, str]]:
        heard: Counter[tuple[str, str, str, str, str]] = Counter()
        for subscriber in SUBSCRIBERS:
            for notification in self.run(
                self.broker.notifications.poll(subscriber, after=0, limit=100_000)
            ):
                change = orjson.loads(notification.body)
                x = change["regions"]["region"]["x"]
                was = tuple(x) if isinstance(x, list) else (x, x)
                for id in notification.subscriptions:
                    heard[subscriber, change["kind"], change["publication"], str(was), id] += 1
        return heard


def no_room(*_: Any, **__: Any) -> Any:
    raise bm.StorageError("the disk is full")


def test_a_state_feed_tells_what_it_should() -> None:
    state_feed.warm_up()
    chosen = settings(max_examples=30, stateful_step_count=30, deadline=None)
    with asyncio.Runner() as Model.loop:
        run_state_machine_as_test(Model, settings=chosen)
