"""`Spaces`: publications and subscriptions that stay and change, and who is told of it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from boxmatch.engine.ids import IdArray, IdKind, SubscriptionId, check_id, check_ids
from boxmatch.errors import DuplicateMemberError, RegionError, StorageError, UnknownMemberError
from boxmatch.indexes.base import Int32Array
from boxmatch.model.schema import Schema
from boxmatch.spaces.dimensions import (
    ONLY_REGION,
    UNCHANGED,
    Dimensions,
    RegionSpec,
    Stored,
    Unchanged,
)
from boxmatch.spaces.expiry import Expiry, Which, check_ttl
from boxmatch.spaces.journal import Journal, Ticket
from boxmatch.spaces.journal_database import Sync
from boxmatch.spaces.journal_rows import Change
from boxmatch.spaces.notifications import DELETED, ENTER, LEAVE, Notifications, Recent, join
from boxmatch.spaces.relation import changing, matching
from boxmatch.spaces.settings import agreed
from boxmatch.spaces.side import Member, Members

Given = Mapping[Any, RegionSpec | Stored]
"""Members by id, which is a string or an integer."""

_ONE_OR_SEVERAL = "give one region, or several by name, but not both"


class Spaces:
    """Named spaces with stored publications and subscriptions; people hear of transitions only.

    A dimension that several spaces have is the same one in all of them. A region is valid in the
    spaces of which it constrains a dimension, and two regions match if they overlap in a space in
    which both are valid; dimensions that a region does not constrain may have any value.

    Every operation is atomic and returns its notifications. All methods may be called from any
    thread; operations take turns.
    """

    def __init__(
        self,
        spaces: Mapping[str, Schema],
        *,
        leave: bool = True,
        remember: int = 1_000_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.schemas = dict(spaces)
        self._dimensions = Dimensions(spaces)
        self._leave = leave
        self._clock = clock
        self._sequence = 1
        self._writing = threading.RLock()
        self._publications = Members("publications", len(self._dimensions))
        self._subscriptions = Members("subscriptions", len(self._dimensions))
        self._sides = (self._publications, self._subscriptions)
        self._expiry = Expiry()
        self._recent = Recent(remember)
        self._unsaid: list[Notifications] = []
        self._journal: Journal | None = None
        self._ticket: Ticket | None = None
        """Of the last change that was written."""

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        spaces: Mapping[str, Schema] | None = None,
        *,
        leave: bool | None = None,
        sync: Sync = "full",
        clock: Callable[[], float] = time.time,
    ) -> Spaces:
        """Spaces that are kept in the directory `path`; what they are made of is given once.

        An operation that has returned survives a crash, one that has not leaves no trace, and what
        was told can be read again (`notifications`). With `sync="full"` that goes for the loss of
        power too; with `"normal"`, which is faster, the last operations may then be lost. Callers
        in several threads share the wait for the disk. If the disk fails, operations raise
        `StorageError` until the spaces are opened anew.
        """
        kept = Journal.settings_of(path)
        known = agreed(path, kept, spaces, leave)
        opened = cls(known.spaces, leave=known.leave, clock=clock)
        journal = Journal.open(path, settings=kept or known.to_json(), sync=sync)
        try:
            opened._recover(journal)
        except BaseException:
            journal.close()
            raise
        opened._journal = journal
        return opened

    def _recover(self, journal: Journal) -> None:
        everyone: tuple[Which, ...] = ("publication", "subscription")
        for which in everyone:
            stored = list(journal.members(which))
            if stored:
                listed, records, times = zip(*stored, strict=True)
                ids, kind = check_ids(listed)
                batch = self._dimensions.unpack(records, self._sides)
                self._members(which).load(ids, kind, batch, self._dimensions.spaces_of)
                for member_id, expires in zip(listed, times, strict=True):
                    if expires is not None:
                        self._expiry.set_time(which, member_id, expires)
        self._sequence = journal.next_sequence

    def close(self) -> None:
        """Wait until all is durable, and let go of the directory."""
        with self._writing:
            if self._journal is not None:
                self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def notifications(self, since: int | None = None) -> Iterator[Notifications]:
        """What was told, from sequence number `since` on, or from the first that is still known.

        In memory that is the last ones (`remember`), on disk all but those that were forgotten.
        """
        with self._writing:
            store = self._recent if self._journal is None else self._journal
            first = store.first_sequence if since is None else max(since, 1)
            if first < store.first_sequence:
                raise StorageError(
                    f"notifications up to {store.first_sequence - 1} are forgotten, from {since} on"
                )
            if self._journal is None:
                return iter(self._recent.since(first))
        return self._journal.notifications(first)

    def forget_notifications(self, before: int) -> None:
        """Let go of what was told under sequence numbers before this one."""
        with self._writing:
            if self._journal is None:
                self._recent.forget(before)
                return
        self._journal.forget_notifications(before)

    def __repr__(self) -> str:
        return (
            f"<Spaces {', '.join(self.schemas)}: {self.publication_count:,} publications, "
            f"{self.subscription_count:,} subscriptions>"
        )

    # Operations

    def publish(
        self,
        publication_id: SubscriptionId,
        region: RegionSpec | None = None,
        *,
        regions: Mapping[str, RegionSpec] | None = None,
        filter: str | None = None,
        ttl: float | None = None,
    ) -> Notifications:
        """Store a publication; subscriptions that match it are told `enter`."""
        return self._add("publication", publication_id, region, regions, filter, ttl)

    def subscribe(
        self,
        subscription_id: SubscriptionId,
        region: RegionSpec | None = None,
        *,
        regions: Mapping[str, RegionSpec] | None = None,
        filter: str | None = None,
        ttl: float | None = None,
    ) -> Notifications:
        """Store a subscription; it is told `enter` for every stored publication that matches it."""
        return self._add("subscription", subscription_id, region, regions, filter, ttl)

    def update_publication(
        self,
        publication_id: SubscriptionId,
        region: RegionSpec | None = None,
        *,
        regions: Mapping[str, RegionSpec | None] | None = None,
        filter: str | Unchanged | None = UNCHANGED,
        ttl: float | Unchanged | None = UNCHANGED,
    ) -> Notifications:
        """Change a publication; only what changes need be given.

        A dimension that is None is free from now on, a region that is None is no more, and a region
        that is not there yet is added. Subscriptions that come to match are told `enter`, those
        that cease to are told `leave`.
        """
        return self._update("publication", publication_id, region, regions, filter, ttl)

    def update_subscription(
        self,
        subscription_id: SubscriptionId,
        region: RegionSpec | None = None,
        *,
        regions: Mapping[str, RegionSpec | None] | None = None,
        filter: str | Unchanged | None = UNCHANGED,
        ttl: float | Unchanged | None = UNCHANGED,
    ) -> Notifications:
        """Change a subscription, as `update_publication` does; it is told what comes and goes."""
        return self._update("subscription", subscription_id, region, regions, filter, ttl)

    def retract(self, publication_id: SubscriptionId) -> Notifications:
        """Forget a publication; subscriptions that matched it are told `deleted`."""
        with self._operation() as told:
            known = self._known("publication", publication_id)
            gone = self._remove("publication", known)
            self._record("publication", known, None, gone)
            told.append(gone)
        return told.joined()

    def unsubscribe(self, subscription_id: SubscriptionId) -> Notifications:
        """Forget a subscription. It is told nothing; what is told is what had expired before."""
        with self._operation() as told:
            known = self._known("subscription", subscription_id)
            self._subscriptions.remove(known)
            self._expiry.forget("subscription", known)
            self._record("subscription", known, None, self._nothing())
        return told.joined()

    def expire(self) -> Notifications:
        """Forget what is past its time. Every operation does so before anything else.

        A publication that expires is `deleted`; a subscription that does `leave`s what it matched.
        """
        with self._operation() as told:
            pass
        return told.joined()

    def due(self, now: float | None = None) -> list[tuple[Which, SubscriptionId]]:
        """What is past its time now, or at another time, and goes with the next operation."""
        with self._writing:
            return self._expiry.past(self._clock() if now is None else now)

    def changes_between(
        self, old: RegionSpec | None, new: RegionSpec | None
    ) -> tuple[IdArray, IdArray]:
        """Which stored subscriptions come to match a publication, and which cease to.

        It goes from one region to another; None is no publication at all. Nothing is stored.
        """
        with self._writing:
            before, after = (
                None if spec is None else self._dimensions.member({ONLY_REGION: spec}, None)
                for spec in (old, new)
            )
            nothing = np.empty(0, np.int32)
            if before is not None and after is not None:
                changed, count = self._transitions("publication", before, after)
                entered, gone = changed[:count], changed[count:]
            else:
                entered = nothing if after is None else self._search("publication", after)
                gone = nothing if before is None else self._search("publication", before)
            ids = self._subscriptions.ids
            return ids[entered], ids[gone]

    def load(
        self,
        *,
        publications: Given | None = None,
        subscriptions: Given | None = None,
    ) -> None:
        """Store many at once: all of them, or none. Nobody is told.

        To begin with what is known already: regions, or what `get_publication` and
        `get_subscription` give. Ids must be new.
        """
        given: dict[Which, dict[SubscriptionId, Stored]] = {
            "publication": _stored(publications or {}),
            "subscription": _stored(subscriptions or {}),
        }
        with self._operation():
            ids = {which: self._new_ids(which, new) for which, new in given.items() if new}
            for members in given.values():
                regions = [one for stored in members.values() for one in stored.regions.values()]
                self._dimensions.make_room(regions, self._sides)
            batches = {which: self._dimensions.batch(given[which], which) for which in ids}
            changes = []
            for which, (listed, kind) in ids.items():
                side = self._members(which)
                owner = side.load(listed, kind, batches[which], self._dimensions.spaces_of)
                for number, (member_id, stored) in enumerate(given[which].items(), owner):
                    if stored.expires is not None:
                        self._expiry.set_time(which, member_id, stored.expires)
                    if self._journal is not None:
                        body = self._dimensions.pack(side.member(number))
                        told = self._nothing()
                        changes.append(Change(which, member_id, body, stored.expires, told))
            if self._journal is not None:
                self._ticket = self._journal.write_all(changes)

    # Looking

    @property
    def publication_count(self) -> int:
        return len(self._publications)

    @property
    def subscription_count(self) -> int:
        return len(self._subscriptions)

    def publications(self) -> Iterator[SubscriptionId]:
        """The ids of all publications, as they are now."""
        with self._writing:
            return iter(list(self._publications))

    def subscriptions(self) -> Iterator[SubscriptionId]:
        """The ids of all subscriptions, as they are now."""
        with self._writing:
            return iter(list(self._subscriptions))

    def matches_of_publication(self, publication_id: SubscriptionId) -> list[SubscriptionId]:
        """The subscriptions that match a stored publication."""
        return self._matches("publication", publication_id)

    def matches_of_subscription(self, subscription_id: SubscriptionId) -> list[SubscriptionId]:
        """The stored publications that match a subscription."""
        return self._matches("subscription", subscription_id)

    def get_publication(self, publication_id: SubscriptionId) -> Stored:
        """A publication as it is stored now."""
        return self._get("publication", publication_id)

    def get_subscription(self, subscription_id: SubscriptionId) -> Stored:
        """A subscription as it is stored now."""
        return self._get("subscription", subscription_id)

    # What publications and subscriptions have in common

    def _members(self, which: Which) -> Members:
        return self._publications if which == "publication" else self._subscriptions

    def _others(self, which: Which) -> Members:
        return self._subscriptions if which == "publication" else self._publications

    @contextmanager
    def _operation(self) -> Iterator[_Told]:
        """Alone among writers, after what is past its time has gone; ends when all is durable.

        If the operation fails, the next one tells what has gone.
        """
        with self._writing:
            if self._journal is not None:
                self._journal.check()
            for which, member_id in self._expiry.due(self._clock()):
                gone = self._remove(which, member_id)
                self._unsaid.append(gone)
                self._record(which, member_id, None, gone)
            told = _Told(self._unsaid, self._nothing)
            yield told
            self._unsaid = []
            ticket = self._ticket
        if ticket is not None:
            ticket.wait()

    def _record(
        self, which: Which, member_id: SubscriptionId, owner: int | None, told: Notifications
    ) -> None:
        """Hand a change to the journal, if there is one; in the order of sequence numbers."""
        if self._journal is None:
            self._recent.add(told)
            return
        body = None
        if owner is not None:
            body = self._dimensions.pack(self._members(which).member(owner))
        expires = self._expiry.time_of(which, member_id)
        change = Change(which, member_id, body, None if body is None else expires, told)
        self._ticket = self._journal.write(change)

    def _known(self, which: Which, given_id: SubscriptionId) -> SubscriptionId:
        member_id, _ = check_id(given_id)
        if member_id not in self._members(which):
            raise UnknownMemberError(which, member_id)
        return member_id

    def _owner(self, which: Which, member_id: SubscriptionId) -> int:
        owner = self._members(which).owner(member_id)
        if owner is None:
            raise UnknownMemberError(which, member_id)
        return owner

    def _stored(self, which: Which, member_id: SubscriptionId) -> Member:
        return self._members(which).member(self._owner(which, member_id))

    def _remove(self, which: Which, member_id: SubscriptionId) -> Notifications:
        """Forget a member of whom somebody is to be told."""
        member = self._stored(which, member_id)
        kind = DELETED if which == "publication" else LEAVE
        silent = kind == LEAVE and not self._leave
        found = np.empty(0, np.int32) if silent else self._search(which, member)
        told = self._tell(which, member_id, kind, found)
        self._members(which).remove(member_id)
        self._expiry.forget(which, member_id)
        return told

    def _add(
        self,
        which: Which,
        given_id: SubscriptionId,
        region: RegionSpec | None,
        regions: Mapping[str, RegionSpec] | None,
        filter: str | None,
        ttl: float | None,
    ) -> Notifications:
        member_id, kind = check_id(given_id)
        named = _named(region, regions)
        if not named:
            raise RegionError(f"{which} {member_id!r} has no region")
        with self._operation() as told:
            members = self._members(which)
            members.check_kind(kind)
            if member_id in members:
                raise DuplicateMemberError(which, member_id)
            self._dimensions.make_room(named.values(), self._sides)
            member = self._dimensions.member(named, filter)
            self._expiry.set(which, member_id, self._clock(), ttl)
            found = self._search(which, member)
            owner = members.add(member_id, kind, member)
            entered = self._tell(which, member_id, ENTER, found)
            self._record(which, member_id, owner, entered)
            told.append(entered)
        return told.joined()

    def _update(
        self,
        which: Which,
        given_id: SubscriptionId,
        region: RegionSpec | None,
        regions: Mapping[str, RegionSpec | None] | None,
        filter: str | Unchanged | None,
        ttl: float | Unchanged | None,
    ) -> Notifications:
        member_id, _ = check_id(given_id)
        if region is not None and regions is not None:
            raise RegionError(_ONE_OR_SEVERAL)
        with self._operation() as told:
            self._dimensions.make_room([region, *(regions or {}).values()], self._sides)
            owner = self._owner(which, member_id)
            if not isinstance(ttl, Unchanged):
                check_ttl(ttl)
            found, entered = self._change(which, owner, region, regions, filter)
            if not isinstance(ttl, Unchanged):
                self._expiry.set(which, member_id, self._clock(), ttl)
            changed = self._tell(which, member_id, ENTER, found if self._leave else found[:entered])
            changed.code[entered:] = LEAVE
            self._record(which, member_id, owner, changed)
            told.append(changed)
        return told.joined()

    def _change(
        self,
        which: Which,
        owner: int,
        region: RegionSpec | None,
        regions: Mapping[str, RegionSpec | None] | None,
        filter: str | Unchanged | None,
    ) -> tuple[Int32Array, int]:
        """Store a change; returns who comes to match, then who ceases to, and how many come."""
        members, others = self._members(which), self._others(which)
        if isinstance(filter, Unchanged) and (region is not None or len(regions or ()) == 1):
            (name, spec), *_ = regions.items() if regions else [(None, region)]
            place, targets = members.place(owner, name), self._dimensions.targets(spec)
            if place is not None and targets is not None:
                spaces_of = self._dimensions.spaces_of
                moved = members.move(owner, place, targets, others, spaces_of)
                if moved is not None:
                    return moved
        old = members.member(owner)
        new = self._dimensions.changed(old, region, regions, filter)
        changes = self._transitions(which, old, new)
        members.replace(owner, old, new)
        return changes

    def _new_ids(
        self, which: Which, given: Mapping[SubscriptionId, Stored]
    ) -> tuple[IdArray, IdKind]:
        ids, kind = check_ids(list(given))
        members = self._members(which)
        members.check_kind(kind)
        for known in filter(members.__contains__, ids.tolist()):
            raise DuplicateMemberError(which, known)
        return ids, kind

    def _search(self, which: Which, member: Member) -> Int32Array:
        """The members of the other side that match."""
        return matching(member, self._others(which), self._dimensions.spaces_of)

    def _transitions(self, which: Which, old: Member, new: Member) -> tuple[Int32Array, int]:
        """The members of the other side that come to match, then those that cease to."""
        return changing(old, new, self._others(which), self._dimensions.spaces_of)

    def _tell(
        self, which: Which, member_id: SubscriptionId, kind: int, found: Int32Array
    ) -> Notifications:
        others = self._others(which).ids.take(found)
        ids = _repeated(member_id, len(found))
        code = np.full(len(found), kind, np.uint8)
        first = self._sequence
        self._sequence += len(found)
        if which == "publication":
            return Notifications(first, code, ids, others)
        return Notifications(first, code, others, ids)

    def _nothing(self) -> Notifications:
        ids = [members.ids[:0] for members in self._sides]
        return Notifications(self._sequence, np.empty(0, np.uint8), *ids)

    def _matches(self, which: Which, given_id: SubscriptionId) -> list[SubscriptionId]:
        member_id, _ = check_id(given_id)
        with self._writing:
            member = self._stored(which, member_id)
            found = self._search(which, member)
            listed: list[SubscriptionId] = self._others(which).ids[found].tolist()
            return listed

    def _get(self, which: Which, given_id: SubscriptionId) -> Stored:
        member_id, _ = check_id(given_id)
        with self._writing:
            member = self._stored(which, member_id)
            regions = self._dimensions.intervals(member)
            expires = self._expiry.time_of(which, member_id)
            return Stored(member_id, regions, member.filter, expires)


class _Told:
    """What an operation has to tell so far."""

    def __init__(self, before: list[Notifications], nothing: Callable[[], Notifications]) -> None:
        self._batches = before.copy()
        self._nothing = nothing

    def append(self, batch: Notifications) -> None:
        self._batches.append(batch)

    def joined(self) -> Notifications:
        return join(self._batches) if self._batches else self._nothing()


def _repeated(member_id: SubscriptionId, count: int) -> IdArray:
    if isinstance(member_id, str):
        return np.full(count, member_id, object)
    # One number in memory, however many times it stands there.
    return np.ndarray(count, np.int64, np.array([member_id]), strides=(0,))


def _named(
    region: RegionSpec | None, regions: Mapping[str, RegionSpec] | None
) -> dict[str, RegionSpec]:
    if region is not None and regions is not None:
        raise RegionError(_ONE_OR_SEVERAL)
    return {ONLY_REGION: region} if region is not None else dict(regions or {})


def _stored(given: Given) -> dict[SubscriptionId, Stored]:
    return {
        member_id: one if isinstance(one, Stored) else Stored(member_id, {ONLY_REGION: one}, None)
        for member_id, one in given.items()
    }
