"""What the parts of a broker share: where things are kept, looked up, queued and handed out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakValueDictionary

from boxmatch.broker.directory import Directory, FeedEntry
from boxmatch.broker.feeds.slots import Inboxes
from boxmatch.broker.flow import Flow
from boxmatch.broker.messages import Note
from boxmatch.broker.owners import Owner
from boxmatch.broker.settings import Settings
from boxmatch.broker.store import Store, Transaction

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
    """Locks by name: changes of one owner take turns, those of different owners do not wait."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, name: str) -> asyncio.Lock:
        """Is there for as long as somebody holds it or waits for it."""
        return self._locks.setdefault(name, asyncio.Lock())


def hand_out(
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
        owner = directory.by_number.get(number)
        if owner is None:
            continue
        owner.last = first + box[-1][0]
        if owner.streams:
            notes = [
                Note(first + place, spec.name, at, ids, bodies[place], spec.kind, rate)
                for place, ids in box
            ]
            if rate > 0:
                notes = [said_rightly(note, owner) for note in notes]
            for stream in tuple(owner.streams):
                stream.offer(notes)


def said_rightly(note: Note, owner: Owner) -> Note:
    """Of an event that was matched at a rate above 0, subscriptions that want it are exact."""
    is_exact = False
    for id in note.subscriptions:
        one = owner.subscriptions.get(id)
        if one is None:
            continue
        if not one.wanted.exact:  # the usual one: an event may be for hundreds of them
            return note
        is_exact = True
    return note._replace(rate=0.0) if is_exact else note
