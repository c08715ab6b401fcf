"""What is stored of both sides and what was told of it, and the operations that change it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from boxmatch.arrays import BoolArray, Int32Array, Int64Array
from boxmatch.engine.ids import IdArray, check_id, check_ids
from boxmatch.errors import DuplicateMemberError, RegionError, UnknownMemberError
from boxmatch.model.axis import ABSENT
from boxmatch.model.ids import IdKind, SubscriptionId
from boxmatch.spaces.dimensions import (
    ONLY_REGION,
    Dimensions,
    RegionSpec,
    Stored,
    Unchanged,
)
from boxmatch.spaces.expiry import Expiry, check_ttl
from boxmatch.spaces.journal import Journal, Ticket
from boxmatch.spaces.journal_rows import Change, Which
from boxmatch.spaces.member import Member
from boxmatch.spaces.search import changing, matching
from boxmatch.spaces.side import Members
from boxmatch.spaces.transitions import (
    DELETED,
    ENTER,
    LEAVE,
    Recent,
    Transitions,
    cut,
    join,
    of_rows,
    repeated,
)

_ONE_OR_SEVERAL = "give one region, or several by name, but not both"


class State:
    """Publications, subscriptions, and the numbers of what is told. Operations take turns."""

    def __init__(
        self, dimensions: Dimensions, leave: bool, remember: int, clock: Callable[[], float]
    ) -> None:
        self.dimensions = dimensions
        self.clock = clock
        self.writing = threading.RLock()
        self.publications = Members("publications", dimensions.spaces_of)
        self.subscriptions = Members("subscriptions", dimensions.spaces_of)
        self.expiry = Expiry()
        self.recent = Recent(remember)
        self.journal: Journal | None = None
        self._sides = (self.publications, self.subscriptions)
        self._leave = leave
        self._sequence = 1
        self._unsaid: list[Transitions] = []
        self._ticket: Ticket | None = None
        """Of the last change that was written."""

    def recover(self, journal: Journal) -> None:
        """Begin with what a journal holds, and write to it from now on."""
        everyone: tuple[Which, ...] = ("publication", "subscription")
        for which in everyone:
            stored = list(journal.members(which))
            if stored:
                listed, records, times = zip(*stored, strict=True)
                ids, kind = check_ids(listed)
                batch = self.dimensions.unpack(records, self._sides)
                self.members(which).load(ids, kind, batch)
                for member_id, expires in zip(listed, times, strict=True):
                    if expires is not None:
                        self.expiry.set_time(which, member_id, expires)
        self._sequence = journal.next_sequence
        self.journal = journal

    def operation(self) -> _Operation:
        """Everything that changes the state or tells of it is done within one."""
        return _Operation(self)

    def begin(self) -> list[Transitions]:
        """Let go of what is past its time; what has gone is told with the next operation."""
        if self.journal is not None:
            self.journal.check()
        for which, member_id in self.expiry.due(self.clock()):
            gone = self._remove(which, member_id)
            self._unsaid.append(gone)
            self._record(which, member_id, None, gone)
        return self._unsaid

    def end(self) -> Ticket | None:
        """All has been told; returns what to wait for until it is durable."""
        self._unsaid = []
        return self._ticket

    def add(
        self,
        which: Which,
        given_id: SubscriptionId,
        region: RegionSpec | None,
        regions: Mapping[str, RegionSpec] | None,
        filter: str | None,
        ttl: float | None,
    ) -> Transitions:
        """Store a new member, which may come to match others."""
        member_id, kind = check_id(given_id)
        named = _named(region, regions)
        if not named:
            raise RegionError(f"{which} {member_id!r} has no region")
        check_ttl(ttl)
        with self.operation() as told:
            members = self.members(which)
            members.check_kind(kind)
            if member_id in members:
                raise DuplicateMemberError(which, member_id)
            self.dimensions.make_room(named.values(), self._sides)
            member = self.dimensions.member(named, filter)
            found = self.others(which).ids.take(self.search(which, member))
            owner = members.add(member_id, kind, member)
            self.expiry.set(which, member_id, self.clock(), ttl)
            entered = self._tell(which, member_id, ENTER, found)
            self._record(which, member_id, owner, entered)
            told.append(entered)
        return told.joined()

    def update(
        self,
        which: Which,
        given_id: SubscriptionId,
        region: RegionSpec | None,
        regions: Mapping[str, RegionSpec | None] | None,
        filter: str | Unchanged | None,
        ttl: float | Unchanged | None,
    ) -> Transitions:
        """Change what is given of a member. What is done most often, so it must not dawdle."""
        member_id, _ = check_id(given_id)
        if region is not None and regions is not None:
            raise RegionError(_ONE_OR_SEVERAL)
        with self.operation() as told:
            if self.dimensions.has_strings:
                self.dimensions.make_room([region, *(regions or {}).values()], self._sides)
            owner = self.owner(which, member_id)
            if not isinstance(ttl, Unchanged):
                check_ttl(ttl)
            found, entered = self._change(which, owner, region, regions, filter)
            if not isinstance(ttl, Unchanged):
                self.expiry.set(which, member_id, self.clock(), ttl)
            changed = self._tell(which, member_id, ENTER, found if self._leave else found[:entered])
            changed.code[entered:] = LEAVE
            self._record(which, member_id, owner, changed)
            told.append(changed)
        return told.joined()

    def move_publications(self, publication_ids: Any, points: Any) -> Transitions:
        """Let publications be elsewhere, row by row."""
        ids, _ = check_ids(publication_ids, duplicates=True)
        members = self.publications
        with self.operation() as told:
            listed = [self.owner("publication", one) for one in ids.tolist()]
            owners = np.array(listed, np.int64)
            for one in ids[members.side.number[owners] != 1].tolist():
                raise RegionError(f"publication {one!r} has several regions, not one to move")
            keys, freed = self.dimensions.points(points, self._sides)
            if len(keys) != len(ids):
                raise RegionError(f"there are {len(ids):,} ids and {len(keys):,} rows of points")
            self._check_freed(owners, keys, freed)

            def reshape(row: int) -> tuple[Int32Array, int]:
                old = members.member(listed[row])
                new = self.dimensions.at_point(old, keys[row], freed[row])
                return self._replace("publication", listed[row], old, new)

            found, counts = members.move_many(owners, keys, freed, self.subscriptions, reshape)
            if not self._leave:
                entered = np.tile([True, False], len(counts))
                found = found[np.repeat(entered, counts.reshape(-1))]
                counts[:, 1] = 0
            moved = of_rows(self._sequence, ids, self.subscriptions.ids.take(found), counts)
            self._sequence += len(moved)
            self._record_rows("publication", listed, moved, counts)
            told.append(moved)
        return told.joined()

    def _check_freed(self, owners: Int64Array, keys: Int64Array, freed: BoolArray) -> None:
        """Leave in `freed` what may be constrained; refuse rows after which nothing would be."""
        if not freed.any():
            return
        given = keys != ABSENT
        before = self.publications.constrained(owners)
        known, number = np.unique(owners, return_inverse=True)
        ever = np.zeros((len(known), keys.shape[1]), np.bool_)
        np.logical_or.at(ever, number, before | given)
        freed &= ever[number]
        bare = freed.any(axis=1) & ~given.any(axis=1)
        left: dict[int, BoolArray] = {}
        for row in np.flatnonzero(np.isin(owners, owners[bare])).tolist():
            owner = int(owners[row])
            left[owner] = left.get(owner, before[row]) & ~freed[row] | given[row]
            if not left[owner].any():
                raise RegionError(
                    f"row {row}: publication {self.publications.ids[owner]!r} would constrain "
                    "no dimension, and so be in no space"
                )

    def retract(self, publication_id: SubscriptionId) -> Transitions:
        """Forget a publication."""
        with self.operation() as told:
            known = self._known("publication", publication_id)
            gone = self._remove("publication", known)
            self._record("publication", known, None, gone)
            told.append(gone)
        return told.joined()

    def unsubscribe(self, subscription_id: SubscriptionId) -> Transitions:
        """Forget a subscription."""
        with self.operation() as told:
            known = self._known("subscription", subscription_id)
            self.subscriptions.remove(known)
            self.expiry.forget("subscription", known)
            self._record("subscription", known, None, self.nothing())
        return told.joined()

    def load(self, given: Mapping[Which, Mapping[SubscriptionId, Stored]]) -> None:
        """Store new members; nobody is told."""
        with self.operation():
            ids = {which: self._new_ids(which, new) for which, new in given.items() if new}
            for members in given.values():
                regions = [one for stored in members.values() for one in stored.regions.values()]
                self.dimensions.make_room(regions, self._sides)
            batches = {which: self.dimensions.batch(given[which], which) for which in ids}
            changes = []
            for which, (listed, kind) in ids.items():
                side = self.members(which)
                owner = side.load(listed, kind, batches[which])
                for number, (member_id, stored) in enumerate(given[which].items(), owner):
                    if stored.expires is not None:
                        self.expiry.set_time(which, member_id, stored.expires)
                    if self.journal is not None:
                        body = self.dimensions.pack(side.member(number))
                        told = self.nothing()
                        changes.append(Change(which, member_id, body, stored.expires, told))
            if self.journal is not None:
                self._ticket = self.journal.write_all(changes)

    def changes_between(
        self, old: RegionSpec | None, new: RegionSpec | None
    ) -> tuple[IdArray, IdArray]:
        """Which subscriptions come to match and which cease to, if a publication went so."""
        with self.writing:
            before, after = (
                None if spec is None else self.dimensions.member({ONLY_REGION: spec}, None)
                for spec in (old, new)
            )
            nothing = np.empty(0, np.int32)
            if before is not None and after is not None:
                changed, count = self._transitions("publication", before, after)
                entered, gone = changed[:count], changed[count:]
            else:
                entered = nothing if after is None else self.search("publication", after)
                gone = nothing if before is None else self.search("publication", before)
            ids = self.subscriptions.ids
            return ids[entered], ids[gone]

    def search(self, which: Which, member: Member) -> Int32Array:
        """The members of the other side that match."""
        return matching(member, self.others(which))

    def stored(self, which: Which, member_id: SubscriptionId) -> Member:
        return self.members(which).member(self.owner(which, member_id))

    def owner(self, which: Which, member_id: SubscriptionId) -> int:
        owner = self.members(which).owner(member_id)
        if owner is None:
            raise UnknownMemberError(which, member_id)
        return owner

    def members(self, which: Which) -> Members:
        return self.publications if which == "publication" else self.subscriptions

    def others(self, which: Which) -> Members:
        return self.subscriptions if which == "publication" else self.publications

    def _change(
        self,
        which: Which,
        owner: int,
        region: RegionSpec | None,
        regions: Mapping[str, RegionSpec | None] | None,
        filter: str | Unchanged | None,
    ) -> tuple[IdArray, int]:
        """Store a change; returns who comes to match, then who ceases to, and how many come."""
        members, others = self.members(which), self.others(which)
        if isinstance(filter, Unchanged) and (region is not None or len(regions or ()) == 1):
            name, spec = next(iter(regions.items())) if regions else (None, region)
            place, targets = members.place(owner, name), self.dimensions.targets(spec)
            if place is not None and targets is not None:
                moved = members.move(owner, place, targets, others)
                if moved is not None:
                    return moved
        old = members.member(owner)
        new = self.dimensions.changed(old, region, regions, filter)
        changed, entered = self._replace(which, owner, old, new)
        return others.ids.take(changed), entered

    def _replace(
        self, which: Which, owner: int, old: Member, new: Member
    ) -> tuple[Int32Array, int]:
        changes = self._transitions(which, old, new)
        self.members(which).replace(owner, old, new)
        return changes

    def _remove(self, which: Which, member_id: SubscriptionId) -> Transitions:
        """Forget a member of whom somebody is to be told."""
        member = self.stored(which, member_id)
        kind = DELETED if which == "publication" else LEAVE
        silent = kind == LEAVE and not self._leave
        found = np.empty(0, np.int32) if silent else self.search(which, member)
        told = self._tell(which, member_id, kind, self.others(which).ids.take(found))
        self.members(which).remove(member_id)
        self.expiry.forget(which, member_id)
        return told

    def _transitions(self, which: Which, old: Member, new: Member) -> tuple[Int32Array, int]:
        """The members of the other side that come to match, then those that cease to."""
        return changing(old, new, self.others(which))

    def _known(self, which: Which, given_id: SubscriptionId) -> SubscriptionId:
        member_id, _ = check_id(given_id)
        if member_id not in self.members(which):
            raise UnknownMemberError(which, member_id)
        return member_id

    def _new_ids(
        self, which: Which, given: Mapping[SubscriptionId, Stored]
    ) -> tuple[IdArray, IdKind]:
        ids, kind = check_ids(list(given))
        members = self.members(which)
        members.check_kind(kind)
        for known in filter(members.__contains__, ids.tolist()):
            raise DuplicateMemberError(which, known)
        return ids, kind

    def _tell(
        self, which: Which, member_id: SubscriptionId, kind: int, others: IdArray
    ) -> Transitions:
        ids = repeated(member_id, len(others))
        code = np.empty(len(others), np.uint8)
        code.fill(kind)
        first = self._sequence
        self._sequence += len(others)
        if which == "publication":
            return Transitions(first, code, ids, others)
        return Transitions(first, code, others, ids)

    def nothing(self) -> Transitions:
        ids = [members.ids[:0] for members in self._sides]
        return Transitions(self._sequence, np.empty(0, np.uint8), *ids)

    def _record(
        self, which: Which, member_id: SubscriptionId, owner: int | None, told: Transitions
    ) -> None:
        """Hand a change to the journal, if there is one; in the order of sequence numbers."""
        if self.journal is None:
            self.recent.add(told)
        else:
            self._ticket = self.journal.write(self._written(which, member_id, owner, told))

    def _record_rows(
        self, which: Which, owners: list[int], told: Transitions, counts: Int64Array
    ) -> None:
        """The same for many changes, with how many each of them tells: all are written, or none."""
        if self.journal is None:
            self.recent.add(told)
            return
        endpoints = np.cumsum(counts.sum(axis=1)).tolist()
        ids = self.members(which).ids[owners].tolist()
        self._ticket = self.journal.write_all(
            [
                self._written(which, member_id, owner, cut(told, start, end))
                for member_id, owner, start, end in zip(
                    ids, owners, [0, *endpoints], endpoints, strict=False
                )
            ]
        )

    def _written(
        self, which: Which, member_id: SubscriptionId, owner: int | None, told: Transitions
    ) -> Change:
        if owner is None:
            return Change(which, member_id, None, None, told)
        body = self.dimensions.pack(self.members(which).member(owner))
        return Change(which, member_id, body, self.expiry.time_of(which, member_id), told)


class _Operation:
    """Alone among writers, after what is past its time has gone; endpoints when all is durable.

    If it fails, the next one tells what has gone. It is a class since, as a generator, it would
    take twice the time, which shows in small updates.
    """

    __slots__ = ("_batches", "_state")

    def __init__(self, state: State) -> None:
        self._state = state

    def __enter__(self) -> Self:
        self._state.writing.acquire()
        try:
            self._batches = self._state.begin().copy()
        except BaseException:
            self._state.writing.release()
            raise
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        ticket = None
        try:
            if error is None:
                ticket = self._state.end()
        finally:
            self._state.writing.release()
        if ticket is not None:
            ticket.wait()

    def append(self, batch: Transitions) -> None:
        self._batches.append(batch)

    def joined(self) -> Transitions:
        """What the operation has to tell."""
        return join(self._batches) if self._batches else self._state.nothing()


def _named(
    region: RegionSpec | None, regions: Mapping[str, RegionSpec] | None
) -> dict[str, RegionSpec]:
    if region is not None and regions is not None:
        raise RegionError(_ONE_OR_SEVERAL)
    return {ONLY_REGION: region} if region is not None else dict(regions or {})
