"""What both sides store, the transitions that follow from it, and the operations that change it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, chain, pairwise, repeat
from typing import Any, Self

import numpy as np

from boxmatch.arrays import BoolArray, Int32Array, Int64Array
from boxmatch.engine.ids import IdArray, check_id, check_ids
from boxmatch.errors import RegionError
from boxmatch.model.axis import ABSENT
from boxmatch.model.ids import SubscriptionId
from boxmatch.spaces.dimensions import (
    ONLY_REGION,
    Dimensions,
    RegionSpec,
    Stored,
    Unchanged,
)
from boxmatch.spaces.expiry import Expiry, check_ttl
from boxmatch.spaces.journal import Journal
from boxmatch.spaces.journal_rows import MemberChange
from boxmatch.spaces.members import Members
from boxmatch.spaces.records import Member, Which
from boxmatch.spaces.transitions import (
    DELETED,
    ENTER,
    LEAVE,
    RecentTransitions,
    Transitions,
    join,
    of_rows,
    repeat_id,
)
from boxmatch.storage.group_commit import Ticket

_ONE_OR_SEVERAL = "give one region, or several by name, but not both"

Changed = tuple[Members, SubscriptionId, int | None]
"""A member that has changed: its side, its id, and its number, which is None if it is gone."""


class State:
    """Publications, subscriptions, and the sequence of transitions. Operations take turns."""

    def __init__(
        self, dimensions: Dimensions, leave: bool, remember: int, clock: Callable[[], float]
    ) -> None:
        self.dimensions = dimensions
        self.clock = clock
        self.writing = threading.RLock()
        self.publications = Members("publication", dimensions.spaces_of)
        self.subscriptions = Members("subscription", dimensions.spaces_of)
        self.expiry = Expiry()
        self.log: Journal | RecentTransitions = RecentTransitions(remember)
        self._sides = (self.publications, self.subscriptions)
        self._leave = leave
        self._sequence = 1
        self._pending: list[Transitions] = []
        """What was logged and not returned by any operation yet."""
        self._ticket: Ticket | None = None
        """Of the last change that was written."""

    def recover(self, journal: Journal) -> None:
        """Begin with what a journal holds, and write to it from now on."""
        for members in self._sides:
            stored = list(journal.members(members.which))
            if stored:
                listed, records, times = zip(*stored, strict=True)
                members.load(*check_ids(listed), self.dimensions.unpack(records, self._sides))
                self._expire_at(members, zip(listed, times, strict=True))
        self._sequence = journal.next_sequence
        self.log = journal

    def _expire_at(
        self, members: Members, times: Iterable[tuple[SubscriptionId, float | None]]
    ) -> None:
        for member_id, time in times:
            if time is not None:
                self.expiry.set_time(members.which, member_id, time)

    def operation(self) -> _Operation:
        """Everything that changes the state is done within one."""
        return _Operation(self)

    def begin(self) -> None:
        """Remove what has expired; the next operation that succeeds returns the transitions."""
        self.log.check()
        for which, member_id in self.expiry.due(self.clock()):
            members = self.publications if which == "publication" else self.subscriptions
            self._remove(members, member_id)

    def end(self) -> tuple[Transitions, Ticket | None]:
        """The transitions of an operation, and what to wait for until it is durable."""
        pending, self._pending = self._pending, []
        return join(pending) if pending else self._nothing(), self._ticket

    def add(
        self,
        members: Members,
        given_id: SubscriptionId,
        region: RegionSpec | None,
        regions: Mapping[str, RegionSpec] | None,
        filter: str | None,
        ttl: float | None,
    ) -> Transitions:
        """Store a new member, which may match others."""
        member_id, kind = check_id(given_id)
        if region is not None and regions is not None:
            raise RegionError(_ONE_OR_SEVERAL)
        named = {ONLY_REGION: region} if region is not None else dict(regions or {})
        if not named:
            raise RegionError(f"{members.which} {member_id!r} has no region")
        check_ttl(ttl)
        with self.operation() as operation:
            members.check_new([member_id], kind)
            self.dimensions.make_room(named.values(), self._sides)
            member = self.dimensions.member(named, filter)
            others = self._others(members)
            found = others.ids.take(others.find_matches(member))
            owner = members.add(member_id, kind, member)
            self.expiry.set(members.which, member_id, self.clock(), ttl)
            entered = self._notify(members, member_id, ENTER, found)
            self._record(entered, [(members, member_id, owner)])
        return operation.notified

    def update(
        self,
        members: Members,
        given_id: SubscriptionId,
        region: RegionSpec | None,
        regions: Mapping[str, RegionSpec | None] | None,
        filter: str | Unchanged | None,
        ttl: float | Unchanged | None,
    ) -> Transitions:
        """Change what is given of a member. The most frequent operation, so it must be fast."""
        member_id, _ = check_id(given_id)
        if region is not None and regions is not None:
            raise RegionError(_ONE_OR_SEVERAL)
        with self.operation() as operation:
            if self.dimensions.has_strings:
                self.dimensions.make_room([region, *(regions or {}).values()], self._sides)
            owner = members.owner(member_id)
            if not isinstance(ttl, Unchanged):
                check_ttl(ttl)
            found, entered = self._change(members, owner, region, regions, filter)
            if not isinstance(ttl, Unchanged):
                self.expiry.set(members.which, member_id, self.clock(), ttl)
            if not self._leave:
                found = found[:entered]
            changed = self._notify(members, member_id, ENTER, found)
            changed.code[entered:] = LEAVE
            self._record(changed, [(members, member_id, owner)])
        return operation.notified

    def move_publications(self, publication_ids: Any, points: Any) -> Transitions:
        """Move publications, row by row."""
        ids, _ = check_ids(publication_ids, duplicates=True)
        members = self.publications
        with self.operation() as operation:
            listed = list(map(members.owner, ids.tolist()))
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
                changes = self.subscriptions.find_changes(old, new)
                members.replace(listed[row], old, new)
                return changes

            found, counts = members.move_many(owners, keys, freed, self.subscriptions, reshape)
            if not self._leave:
                entered = np.tile([True, False], len(counts))
                found = found[np.repeat(entered, counts.reshape(-1))]
                counts[:, 1] = 0
            moved = of_rows(self._sequence, ids, self.subscriptions.ids.take(found), counts)
            self._sequence += len(moved)
            changed = zip(repeat(members), ids.tolist(), listed, strict=False)
            self._record(moved, changed, counts.sum(axis=1).tolist())
        return operation.notified

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

    def remove(self, members: Members, given_id: SubscriptionId, *, notify: bool) -> Transitions:
        """Remove a member; if `notify`, those that matched it are notified."""
        member_id, _ = check_id(given_id)
        with self.operation() as operation:
            self._remove(members, member_id, notify=notify)
        return operation.notified

    def load(self, given: Mapping[Which, Mapping[SubscriptionId, Stored]]) -> None:
        """Store new members; nobody is notified."""
        with self.operation():
            new = [(one, stored) for one in self._sides if (stored := given[one.which])]
            ids = [check_ids(list(stored)) for _, stored in new]
            for (members, _), (listed, kind) in zip(new, ids, strict=True):
                members.check_new(listed.tolist(), kind)
            for _, stored in new:
                regions = [spec for one in stored.values() for spec in one.regions.values()]
                self.dimensions.make_room(regions, self._sides)
            batches = [self.dimensions.batch(stored, members.which) for members, stored in new]
            changed: list[Iterable[Changed]] = []
            for (members, stored), known, batch in zip(new, ids, batches, strict=True):
                owners = members.load(*known, batch)
                self._expire_at(members, ((one, stored[one].expires) for one in stored))
                changed.append(zip(repeat(members), stored, owners, strict=False))
            self._record(self._nothing(), chain.from_iterable(changed), repeat(0))

    def changes_between(
        self, old: RegionSpec | Stored | None, new: RegionSpec | Stored | None
    ) -> tuple[IdArray, IdArray]:
        """Which subscriptions begin to match and which cease to, if a publication went so."""

        def member(given: RegionSpec | Stored | None) -> Member | None:
            if given is None:
                return None
            if isinstance(given, Stored):
                return self.dimensions.member(given.regions, given.region_filter)
            return self.dimensions.member({ONLY_REGION: given}, None)

        with self.writing:
            before, after = member(old), member(new)
            changed, entered = self.subscriptions.find_changes(before, after)
            ids = self.subscriptions.ids
            return ids[changed[:entered]], ids[changed[entered:]]

    def matches_of(self, members: Members, given_id: SubscriptionId) -> list[SubscriptionId]:
        """The ids of the other side that match a stored member."""
        member_id, _ = check_id(given_id)
        with self.writing:
            others = self._others(members)
            found = others.find_matches(members.member(members.owner(member_id)))
            listed: list[SubscriptionId] = others.ids[found].tolist()
            return listed

    def get(self, members: Members, given_id: SubscriptionId) -> Stored:
        """A member as it is stored now."""
        member_id, _ = check_id(given_id)
        with self.writing:
            member = members.member(members.owner(member_id))
            regions = self.dimensions.intervals(member)
            expires = self.expiry.time_of(members.which, member_id)
            return Stored(member_id, regions, member.filter, expires)

    def _others(self, members: Members) -> Members:
        return self.subscriptions if members is self.publications else self.publications

    def _change(
        self,
        members: Members,
        owner: int,
        region: RegionSpec | None,
        regions: Mapping[str, RegionSpec | None] | None,
        filter: str | Unchanged | None,
    ) -> tuple[IdArray, int]:
        """Store a change; returns who begins to match, then who ceases to, and how many begin."""
        others = self._others(members)
        if isinstance(filter, Unchanged) and (region is not None or len(regions or ()) == 1):
            name, spec = next(iter(regions.items())) if regions else (None, region)
            place, targets = members.place(owner, name), self.dimensions.targets(spec)
            if place is not None and targets is not None:
                moved = members.move(owner, place, targets, others)
                if moved is not None:
                    return moved
        old = members.member(owner)
        new = self.dimensions.change(old, region, regions, filter)
        changed, entered = others.find_changes(old, new)
        members.replace(owner, old, new)
        return others.ids.take(changed), entered

    def _remove(self, members: Members, member_id: SubscriptionId, *, notify: bool = True) -> None:
        member = members.member(members.owner(member_id))
        kind = DELETED if members is self.publications else LEAVE
        others = self._others(members)
        wanted = notify and (kind == DELETED or self._leave)
        found = others.find_matches(member if wanted else None)
        gone = self._notify(members, member_id, kind, others.ids.take(found))
        members.remove(member_id)
        self.expiry.forget(members.which, member_id)
        self._record(gone, [(members, member_id, None)])

    def _notify(
        self, members: Members, member_id: SubscriptionId, kind: int, others: IdArray
    ) -> Transitions:
        """Transitions of one kind between a member and others, under the next numbers."""
        ids = repeat_id(member_id, len(others))
        code = np.empty(len(others), np.uint8)
        code.fill(kind)
        first = self._sequence
        self._sequence += len(others)
        if members is self.publications:
            return Transitions(first, code, ids, others)
        return Transitions(first, code, others, ids)

    def _nothing(self) -> Transitions:
        ids = [members.ids[:0] for members in self._sides]
        return Transitions(self._sequence, np.empty(0, np.uint8), *ids)

    def _record(
        self, notified: Transitions, changed: Iterable[Changed], counts: Iterable[int] | None = None
    ) -> None:
        """Log changes with their transitions, of which each has so many (`counts`).

        In the order of sequence numbers; all of them are written, or none.
        """
        if isinstance(self.log, RecentTransitions):
            self.log.add(notified)
        else:
            self._ticket = self.log.write(*self._changes(notified, changed, counts))
        self._pending.append(notified)

    def _changes(
        self, notified: Transitions, changed: Iterable[Changed], counts: Iterable[int] | None
    ) -> Iterator[MemberChange]:
        ends = pairwise(accumulate((len(notified),) if counts is None else counts, initial=0))
        for (members, member_id, owner), (start, end) in zip(changed, ends, strict=False):
            body = None if owner is None else self.dimensions.pack(members.member(owner))
            expires = self.expiry.time_of(members.which, member_id)
            own = notified.cut(start, end)
            yield MemberChange(members.which, member_id, body, expires, own)


class _Operation:
    """Alone among writers, after what has expired is gone; ends when all is durable.

    If it fails, the next one returns the transitions of what has expired. It is a class since, as
    a generator, it would take twice the time, which shows in small updates.
    """

    __slots__ = ("_state", "notified")

    notified: Transitions

    def __init__(self, state: State) -> None:
        self._state = state

    def __enter__(self) -> Self:
        self._state.writing.acquire()
        try:
            self._state.begin()
        except BaseException:
            self._state.writing.release()
            raise
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        ticket = None
        try:
            if error is None:
                self.notified, ticket = self._state.end()
        finally:
            self._state.writing.release()
        if ticket is not None:
            ticket.wait()
