"""What the parts of a broker share: where things are kept, looked up, queued and handed out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakValueDictionary

from boxmatch.broker.feeds.publishing import Flow
from boxmatch.broker.feeds.slots import Inboxes
from boxmatch.broker.messages import Notification
from boxmatch.broker.settings import Settings
from boxmatch.broker.store import Store, Transaction
from boxmatch.broker.subscribers.directory import Directory, FeedEntry
from boxmatch.broker.subscribers.subscriber import Subscriber

T = TypeVar("T")


@dataclass(eq=False)
class Core:
    """Made when the broker starts, since it belongs to an event loop."""

    settings: Settings
    store: Store
    directory: Directory
    flow: Flow
    clock: Callable[[], float]

    async def write(self, change: Callable[[Transaction], T], *, frees: bool = False) -> T:
        """Carry out a change of what is stored; returns when it is durable. One that `frees` room
        is possible on a full disk too.
        """
        return await asyncio.wrap_future(self.store.write(change, frees=frees))


class Turns:
    """Locks by name: changes of one subscriber take turns, those of different subscribers do not
    wait.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, name: str) -> asyncio.Lock:
        """Is there for as long as somebody holds it or waits for it."""
        return self._locks.setdefault(name, asyncio.Lock())


def dispatch(
    directory: Directory,
    entry: FeedEntry,
    at: float,
    first: int,
    bodies: Sequence[bytes],
    inboxes: Inboxes,
    rate: float = 0.0,
) -> None:
    """What has become durable under numbers from `first` on goes to those who listen."""
    spec = entry.feed.spec
    entry.last_sequence = first + len(bodies) - 1
    for number, box in inboxes.items():
        subscriber = directory.by_number.get(number)
        if subscriber is None:
            continue
        subscriber.last = first + box[-1][0]
        if subscriber.streams:
            notifications = [
                Notification(first + place, spec.name, at, ids, bodies[place], spec.kind, rate)
                for place, ids in box
            ]
            if rate > 0:
                notifications = [
                    with_exact_rate(notification, subscriber) for notification in notifications
                ]
            for stream in tuple(subscriber.streams):
                stream.offer(notifications)


def with_exact_rate(notification: Notification, subscriber: Subscriber) -> Notification:
    """Of an event that was matched at a rate above 0, subscriptions that want it are exact."""
    is_exact = False
    for id in notification.subscriptions:
        one = subscriber.subscriptions.get(id)
        if one is None:
            continue
        if not one.wanted.exact:  # the usual one: an event may be for hundreds of them
            return notification
        is_exact = True
    return notification._replace(rate=0.0) if is_exact else notification
