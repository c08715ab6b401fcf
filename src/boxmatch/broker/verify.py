"""Whether the data of a broker that is not running is sound, and how much there is."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

from boxmatch.broker.access import Keys
from boxmatch.broker.access.key_file import FILE as KEYS
from boxmatch.broker.store import Store
from boxmatch.broker.store.store import DATABASE
from boxmatch.errors import StorageError
from boxmatch.storage.folders import take_lock
from boxmatch.storage.sqlite import connect

_MOST_PROBLEMS = 20
"""Of one file; one damaged page can make thousands."""
_PAGE = 1_000


class FeedCount(NamedTuple):
    """A feed, and what of it could be read and is as it was written."""

    name: str
    kind: str
    events: int
    subscriptions: int
    publications: int


class Verification(NamedTuple):
    """What was found. Without problems, everything could be read."""

    problems: list[str]
    nbytes: dict[str, int]
    """Of the files."""
    feeds: list[FeedCount]
    subscribers: int
    waiting: int
    """Notifications that their subscribers have not acknowledged."""
    first_sequence: int
    next_sequence: int
    keys: int
    """That are not revoked."""


def verify(data: Path) -> Verification:
    """Read everything in a data folder. `StorageError`: there is no broker, or it is running."""
    if not (data / DATABASE).is_file():
        raise StorageError(f"{data} holds no broker: there is no {DATABASE}")
    problems: list[str] = []
    nbytes = {}
    for name in (DATABASE, KEYS):
        if (data / name).is_file():  # a broker for this machine only has no keys
            problems += _damage(data, name)
            nbytes[name] = sum(path.stat().st_size for path in data.glob(f"{name}*"))
    found = Verification(problems, nbytes, [], 0, 0, 0, 0, 0)
    if problems:  # to open it is to write to it
        return found
    try:
        found = _read_store(data, found)
        return found._replace(keys=_count_keys(data))
    except StorageError as error:
        problems.append(str(error))
        return found


def _read_store(data: Path, found: Verification) -> Verification:
    with Store.open(data) as store:
        reader = store.reader
        feeds = [
            FeedCount(
                spec.name,
                spec.kind,
                _count(reader.events, number),
                sum(1 for _ in reader.subscriptions(number)),
                sum(1 for _ in reader.members(number)),
            )
            for number, spec in reader.feeds()
        ]
        subscribers = reader.subscribers()
        for subscriber in subscribers:
            _count(reader.inbox, subscriber.number)
        reader.sharing()
        found.problems.extend(f"{DATABASE}: {what} is damaged" for what in reader.damage)
        return found._replace(
            feeds=feeds,
            subscribers=len(subscribers),
            waiting=sum(reader.backlogs().values()),
            first_sequence=store.first_sequence(),
            next_sequence=store.next_sequence,
        )


class _Numbered(Protocol):
    @property
    def sequence(self) -> int: ...


def _count(read: Callable[[int, int, int], Sequence[_Numbered]], of: int) -> int:
    """How many can be read of a feed or a subscriber. The store remembers what it left out."""
    count = after = 0
    while rows := read(of, after, _PAGE):
        count += len(rows)
        after = rows[-1].sequence
    return count


def _count_keys(data: Path) -> int:
    if not (data / KEYS).is_file():
        return 0
    with Keys.open(data, make=False) as keys:
        return sum(info.revoked is None for info in keys.list())


def _damage(data: Path, name: str) -> list[str]:
    """What SQLite says about a file. The lock keeps a broker from starting meanwhile."""
    try:
        lock = take_lock(data)
    except StorageError:
        raise StorageError(
            f"the broker in {data} is running: stop it first, or check a backup of it"
        ) from None
    except OSError as error:
        raise StorageError(f"cannot check {data}: {error}") from error
    try:
        # Not read-only: the last to leave a database in WAL mode has to tidy up behind itself.
        with closing(connect(data / name, "rw")) as connection:
            rows = connection.execute(f"PRAGMA integrity_check({_MOST_PROBLEMS})").fetchall()
    except sqlite3.Error as error:
        return [f"{name}: {error}"]
    finally:
        os.close(lock)
    return [f"{name}: {text}" for (text,) in rows if text != "ok"]
