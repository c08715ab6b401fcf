"""Subscribers: a subscriber has subscriptions, one inbox over all feeds, and one cursor into it.

A feed has its subscriptions in slots, by a small number each, so that matches can be handled as
arrays and put together by subscriber.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from boxmatch.arrays import BoolArray, Float64Array, Int64Array
from boxmatch.broker.store.recipients import NOBODY, Recipients
from boxmatch.errors import BrokerError, StorageError
from boxmatch.wire import responses
from boxmatch.wire.requests import Wanted

if TYPE_CHECKING:
    from boxmatch.broker.delivery.notifications import NotificationStream
    from boxmatch.broker.delivery.shared_inbox import SharedInbox
    from boxmatch.broker.delivery.webhooks import Webhooks
    from boxmatch.broker.store import Store
    from boxmatch.broker.subscribers.directory import Directory

Order = Literal["busiest", "dead"]

SPANS = 4
"""Over which a backlog has to rise to be called growing. Longer than a pause between two polls."""
_FEW = 64
_FEW_MATCHES = 32
"""Matches that are faster put together one by one."""
_NOBODY = -1


@dataclass(eq=False, slots=True)
class Subscription:
    """One subscription of a subscriber; `slot` is its number in its feed."""

    subscriber: Subscriber
    id: str
    given: Wanted | bytes
    """What is wanted; as JSON until somebody asks, since of a million few are looked at."""
    created: float
    updated: float
    slot: int = -1
    slots: Slots | None = None
    checksum: int = 0
    """Of its row on disk, if its slot is to have it."""

    @property
    def feed(self) -> str:
        """The name of its feed, without a look at what is wanted."""
        return self.wanted.feed if self.slots is None else self.slots.feed

    @property
    def wanted(self) -> Wanted:
        if isinstance(self.given, bytes):
            try:
                self.given = Wanted(**orjson.loads(self.given))
            except (TypeError, ValueError) as error:
                name = f"{self.subscriber.name}/{self.id}"
                raise StorageError(f"the subscription {name} is damaged: {error}") from error
        return self.given

    def info(self) -> responses.Subscription:
        """As it is shown to its subscriber."""
        wanted = self.wanted
        return responses.Subscription(
            subscriber=self.subscriber.name,
            id=self.id,
            feed=wanted.feed,
            filter=wanted.filter,
            dialect=wanted.dialect,
            regions=wanted.regions,
            region_filter=wanted.region_filter,
            ttl=wanted.ttl,
            exact=wanted.exact,
            created=self.created,
            updated=self.updated,
            matches=0 if self.slots is None else self.slots.matches(self.slot),
        )


@dataclass(eq=False, slots=True)
class Replay:
    """Events that a subscriber gets again: those after `position`, up to `through`."""

    number: int
    feed: str | None
    """None: of all feeds."""
    subscription: str | None
    """None: matched against all that the subscriber has."""
    position: int
    """All up to there is acknowledged."""
    through: int
    begun: int = -1
    """The position at which it began, or the broker found it."""

    def __post_init__(self) -> None:
        if self.begun < 0:
            self.begun = self.position

    def info(self) -> responses.Replay:
        """As it is shown."""
        return responses.Replay(
            feed=self.feed, subscription=self.subscription, after=self.position,
            through=self.through,
        )  # fmt: skip

    @property
    def range(self) -> tuple[int, int]:
        return self.position, self.through


class Readers:
    """What is asked about all subscribers of an event at once: in arrays, by number."""

    def __init__(self) -> None:
        self._last: Int64Array = np.zeros(_FEW, np.int64)
        self._listens: BoolArray = np.zeros(_FEW, np.bool_)

    def last(self, subscriber: int) -> int:
        """The newest sequence number of which there is, or was, a notification for it."""
        return int(self._last[subscriber]) if subscriber < len(self._last) else 0

    def put(self, subscriber: int, *, last: int, listens: bool) -> None:
        """Whether somebody reads its notifications now, and the number of the newest."""
        while subscriber >= len(self._last):
            self._last = np.concatenate([self._last, np.zeros_like(self._last)])
            self._listens = np.concatenate([self._listens, np.zeros_like(self._listens)])
        if subscriber:
            self._last[subscriber], self._listens[subscriber] = last, listens

    def tell(self, recipients: Recipients, first: int) -> Recipients:
        """There are these, of events from a number on. Those of them that somebody reads."""
        if recipients.size:
            # Of one subscriber the events ascend, and the last one counts.
            self._last[recipients.subscriber] = recipients.event + first
        return recipients.only(self._listens[recipients.subscriber])


@dataclass(eq=False, slots=True)
class Subscriber:
    """A subscriber as the broker has it in memory. Used in the event loop only."""

    number: int
    name: str
    cursor: int = 0
    """All up to this sequence number is acknowledged, but for what is replayed."""
    stored: int = 0
    """The same on disk, which may lag behind."""
    dropped: int = 0
    dropped_through: int = 0
    delivered: int = 0
    backlog: int = 0
    """As of the last count."""
    lows: tuple[int, ...] = ()
    """The lowest backlog in each of the last spans, the one that goes on included."""
    dead_letters: int = 0
    """As of the last count."""
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    """To be changed by `add` and `forget`."""
    changes: int = 0
    """Of the subscriptions."""
    streams: set[NotificationStream] = field(default_factory=set)
    """To be changed by `listen` and `leave`."""
    readers: Readers = field(default_factory=Readers)
    """Of all subscribers."""
    shared: SharedInbox | None = None
    """If notifications are acknowledged one by one, who has which. Then nothing is replayed."""
    replays: dict[tuple[str | None, str | None], Replay] = field(default_factory=dict)
    """By feed and subscription."""
    floor: int = 0
    """Up to there, what was acknowledged before a replay is not delivered out of the inbox."""
    handed: int = 0
    """The last number that a reader got since a replay began."""
    replays_begun: int = 0
    """How many; what was read before the last one began is not of it."""

    @property
    def last(self) -> int:
        """The newest sequence number of which there is, or was, a notification for it."""
        return self.readers.last(self.number)

    def place(self, last: int) -> None:
        """Be known under its number."""
        self.readers.put(self.number, last=last, listens=bool(self.streams))

    def listen(self, stream: NotificationStream) -> None:
        """Have notifications offered to a stream too."""
        self.streams.add(stream)
        self.place(self.last)

    def leave(self, stream: NotificationStream) -> None:
        """Offer a stream nothing more."""
        self.streams.discard(stream)
        self.place(self.last)

    def count_backlog(self, backlog: int, *, new_span: bool) -> None:
        """So many wait now. `new_span`: the next span of time begins."""
        self.backlog = backlog
        if backlog == 0:
            self.lows = ()
        elif new_span or not self.lows:
            self.lows = (*self.lows[-SPANS + 1 :], backlog)
        else:
            self.lows = (*self.lows[:-1], min(self.lows[-1], backlog))

    @property
    def falls_behind(self) -> bool:
        """Whether the backlog grows, however large it is. Its lows tell: a backlog that is read
        in batches rises in between, and a large one that is caught up with falls.
        """
        return len(self.lows) == SPANS and all(before < low for before, low in pairwise(self.lows))

    @property
    def sessions(self) -> int:
        """How many connections get its notifications."""
        return len(self.streams if self.shared is None else self.shared.streams)

    @property
    def mode(self) -> responses.Mode:
        return "cursor" if self.shared is None else "shared"

    @property
    def in_flight(self) -> int:
        """Shared notifications that somebody has."""
        return 0 if self.shared is None else self.shared.book.in_flight

    @property
    def redelivered(self) -> int:
        """Shared notifications that were handed out again."""
        return 0 if self.shared is None else self.shared.redelivered

    @property
    def position(self) -> int:
        """All up to this number is acknowledged, of replays too."""
        if not self.replays:
            return self.cursor
        return min(self.cursor, *(one.position for one in self.replays.values()))

    @property
    def replayed_through(self) -> int:
        """The last number that is replayed; 0 if none is."""
        return max((one.through for one in self.replays.values()), default=0)

    @property
    def replayed(self) -> float | None:
        """The share of the log that replays have delivered; None if there is no replay."""
        if not self.replays:
            return None
        known = self.replays.values()
        whole = sum(one.through - one.begun for one in known)
        return sum(one.position - one.begun for one in known) / max(whole, 1)

    def count_handed(self, last: int, notifications: int, replays_begun: int) -> None:
        """A reader gets notifications up to this number, which were read when so many replays had
        begun.
        """
        self.delivered += notifications
        if replays_begun == self.replays_begun:
            self.handed = max(self.handed, last)

    def start_replay(self, replay: Replay) -> None:
        """Replay this too, instead of an earlier replay of the same."""
        self.handed = min(self.handed, replay.position) if self.replays else replay.position
        self.replays_begun += 1
        self.replays[replay.feed, replay.subscription] = replay
        self.floor = self.cursor
        self.place(max(self.last, replay.through))

    def end_replays(self, feed: str) -> None:
        """Replay nothing of this feed any more."""
        self.replays = {key: one for key, one in self.replays.items() if one.feed != feed}

    def add(self, subscriptions: Iterable[Subscription]) -> None:
        """Have these subscriptions, or these instead of others with their ids."""
        self.subscriptions.update({one.id: one for one in subscriptions})
        self.changes += 1

    def forget(self, id: str) -> None:
        """Have a subscription no more."""
        self.subscriptions.pop(id, None)
        self.changes += 1


class TopSubscriptions(NamedTuple):
    """Some subscriptions of a feed, and how many there are."""

    subscriptions: list[responses.Subscription]
    total: int
    dead: int
    """Without a match since they were made, or the broker started."""


class Slots:
    """Subscriptions to a feed by a small number, so that matches can be handled as arrays."""

    def __init__(self, feed: str) -> None:
        self.feed = feed
        self.subscriptions: list[Subscription | None] = []
        self._free: list[int] = []
        self._subscriber: Int64Array = np.full(_FEW, _NOBODY)
        self._id: npt.NDArray[np.object_] = np.empty(_FEW, object)
        self._length: Int64Array = np.zeros(_FEW, np.int64)
        """Bytes of the id."""
        self._matches: Int64Array = np.zeros(_FEW, np.int64)
        self._created: Float64Array = np.zeros(_FEW)
        self._checksum: Int64Array = np.zeros(_FEW, np.int64)

    def restore(
        self,
        subscriptions: Sequence[Subscription],
        slots: Int64Array,
        checksums: Int64Array,
        size: int,
    ) -> None:
        """Have these subscriptions in these slots, of which there are so many, and no others."""
        room = max(size, _FEW)
        self.subscriptions = [None] * size
        for one, slot in zip(subscriptions, slots.tolist(), strict=True):
            self.subscriptions[slot] = one
            one.slot, one.slots = slot, self
        self._subscriber, self._id = np.full(room, _NOBODY), np.empty(room, object)
        self._matches, self._created = np.zeros(room, np.int64), np.zeros(room)
        self._checksum = np.zeros(room, np.int64)
        numbers = (one.subscriber.number for one in subscriptions)
        self._subscriber[slots] = np.fromiter(numbers, np.int64, len(slots))
        ids = [one.id for one in subscriptions]
        self._id[slots] = np.fromiter(ids, object, len(slots))
        lengths = map(len, ids if "".join(ids).isascii() else [id.encode() for id in ids])
        self._length = np.zeros(room, np.int64)
        self._length[slots] = np.fromiter(lengths, np.int64, len(slots))
        created = (one.created for one in subscriptions)
        self._created[slots] = np.fromiter(created, np.float64, len(slots))
        self._checksum[slots] = checksums
        is_free = np.ones(size, bool)
        is_free[slots] = False
        self._free = np.flatnonzero(is_free)[::-1].tolist()

    @property
    def checksums(self) -> Int64Array:
        """By slot, that of the subscription's row on disk; 0 if it is free."""
        return self._checksum[: len(self.subscriptions)].copy()

    def __len__(self) -> int:
        return len(self.subscriptions) - len(self._free)

    @property
    def next(self) -> int:
        """The number of the one that is added next."""
        return self._free[-1] if self._free else len(self.subscriptions)

    def add(self, subscription: Subscription) -> int:
        """Give a subscription its number."""
        slot = self.next
        if self._free:
            self._free.pop()
        else:
            self.subscriptions.append(None)
            if slot == len(self._subscriber):
                self._subscriber = np.concatenate(
                    [self._subscriber, np.full_like(self._subscriber, _NOBODY)]
                )
                self._id = np.concatenate([self._id, np.empty_like(self._id)])
                self._length = np.concatenate([self._length, np.zeros_like(self._length)])
                self._matches = np.concatenate([self._matches, np.zeros_like(self._matches)])
                self._created = np.concatenate([self._created, np.zeros_like(self._created)])
                self._checksum = np.concatenate([self._checksum, np.zeros_like(self._checksum)])
        self._subscriber[slot], self._id[slot] = subscription.subscriber.number, subscription.id
        self._length[slot] = len(subscription.id.encode())
        self._matches[slot], self._created[slot] = 0, subscription.created
        self.replace(slot, subscription)
        return slot

    def replace(self, slot: int, subscription: Subscription) -> None:
        """Put a subscription of the same subscriber and id in the place of another."""
        self.subscriptions[slot] = subscription
        self._checksum[slot] = subscription.checksum
        subscription.slot, subscription.slots = slot, self

    def remove(self, slot: int) -> Subscription:
        """The number is free from now on. Which subscription had it."""
        known = self.subscriptions[slot]
        if known is None:  # freed twice, it would be given to two
            raise BrokerError(f"no subscription has slot {slot}")
        self.subscriptions[slot] = None
        self._subscriber[slot], self._id[slot], self._checksum[slot] = _NOBODY, None, 0
        self._free.append(slot)
        return known

    def in_use(self) -> list[Subscription]:
        """All subscriptions, as they are now."""
        return [one for one in self.subscriptions if one is not None]

    def count(self, slots: Int64Array) -> None:
        """Count matches of subscriptions."""
        np.add.at(self._matches, slots, 1)

    def matches(self, slot: int) -> int:
        """How often a subscription matched since it came, or the broker started."""
        return int(self._matches[slot])

    def top(
        self, subscribers: Collection[int] | None, order: Order, limit: int
    ) -> TopSubscriptions:
        """Those of some subscribers, or of all: most matches first, or without any the oldest.
        From any thread, as of about now.
        """
        subscriber, matches, created = self._subscriber, self._matches, self._created
        used = subscriber[: min(len(matches), len(created), len(self.subscriptions))]
        chosen = used != _NOBODY if subscribers is None else np.isin(used, list(subscribers))
        slots = np.flatnonzero(chosen)
        is_dead = matches[slots] == 0
        key = created if order == "dead" else -matches
        ranked = slots[is_dead if order == "dead" else ~is_dead]
        first = ranked[np.argsort(key[ranked], kind="stable")[:limit]]
        known = [self.subscriptions[slot] for slot in first.tolist()]
        # A number may have another subscriber by now.
        shown = [
            one.info()
            for one in known
            if one is not None and (subscribers is None or one.subscriber.number in subscribers)
        ]
        return TopSubscriptions(shown, len(slots), int(is_dead.sum()))

    def held_by(self, subscribers: Collection[int]) -> BoolArray:
        """By slot: does it belong to one of these subscribers? From any thread."""
        return np.isin(self._subscriber, list(subscribers))

    def recipients(self, event: Int64Array, slots: Int64Array) -> Recipients:
        """Matches (which event, which subscription), put together by subscriber and event."""
        if len(slots) == 0:
            return NOBODY
        if len(slots) <= _FEW_MATCHES:
            return self._few_recipients(event, slots)
        subscribers = self._subscriber[slots]
        order = np.lexsort((event, subscribers))
        subscribers, event, slots = subscribers[order], event[order], slots[order]
        starts = np.flatnonzero(
            (np.diff(subscribers, prepend=_NOBODY) != 0) | (np.diff(event, prepend=-1) != 0)
        )
        ids = "".join(self._id[slots].tolist()).encode()
        amount = np.diff(starts, append=len(slots))
        return Recipients(subscribers[starts], event[starts], amount, self._length[slots], ids)

    def _few_recipients(self, event: Int64Array, slots: Int64Array) -> Recipients:
        ids: dict[tuple[int, int], list[str]] = {}
        for subscriber, number, id in zip(
            self._subscriber[slots].tolist(), event.tolist(), self._id[slots].tolist(), strict=True
        ):
            ids.setdefault((subscriber, number), []).append(id)
        rows = sorted(ids.items(), key=itemgetter(0))
        return Recipients.of_rows([(*key, some) for key, some in rows])


@dataclass(eq=False)
class Subscribers:
    """All subscribers of a broker."""

    _store: Store
    _directory: Directory
    _webhooks: Webhooks

    def get(self, name: str) -> Subscriber:
        """A subscriber as it is in memory; an unknown one has nothing."""
        return self._directory.subscriber(name) or Subscriber(0, name)

    async def describe(self, name: str) -> responses.Subscriber:
        """A subscriber with what waits for it, which is counted on disk."""
        [info] = await self._describe([self.get(name)])
        return info

    async def list(self, *, after: str = "", limit: int = 100) -> Sequence[responses.Subscriber]:
        """Subscribers by name, a page of them."""
        return await self._describe(self._directory.subscribers(after, limit))

    async def _describe(self, subscribers: Sequence[Subscriber]) -> Sequence[responses.Subscriber]:
        reader, numbers = self._store.reader, [subscriber.number for subscriber in subscribers]
        backlogs = await asyncio.to_thread(reader.backlogs, numbers)
        letters = await asyncio.to_thread(reader.dead_letter_counts, numbers)
        feeds = await asyncio.to_thread(
            lambda all: [sorted({each.feed for each in one}) for one in all],
            [list(one.subscriptions.values()) for one in subscribers],
        )
        return [
            responses.Subscriber(
                subscriber=one.name,
                cursor=one.position,
                backlog=backlogs.get(one.number, 0),
                dropped=one.dropped,
                dropped_through=one.dropped_through,
                subscriptions=len(one.subscriptions),
                sessions=one.sessions,
                delivered=one.delivered,
                webhook=self._webhooks.describe(one.name),
                dead_letters=letters.get(one.number, 0),
                last_error=self._webhooks.last_error(one.name),
                feeds=names,
                replays=[replay.info() for replay in one.replays.values()],
                mode=one.mode,
                sharing=None if one.shared is None else one.shared.book.settings,
                in_flight=one.in_flight,
                redelivered=one.redelivered,
            )
            for one, names in zip(subscribers, feeds, strict=True)
        ]
