"""The members of one side: publications or subscriptions, their regions and endpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from boxmatch.arrays import BoolArray, Int32Array, Int64Array, UInt64Array
from boxmatch.engine.ids import IdArray
from boxmatch.errors import DuplicateMemberError, SubscriptionIdError, UnknownMemberError
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.ids import IdKind, SubscriptionId
from boxmatch.spaces.endpoints import are_points, move_endpoints
from boxmatch.spaces.layout import describe
from boxmatch.spaces.moving import NO_ROOM, NOT_POINTS, NOT_THERE, Targets, move, move_many
from boxmatch.spaces.records import OPEN, Member, MemberBatch, Which
from boxmatch.spaces.region_filter import compile_region_filter
from boxmatch.spaces.side import DIMENSION, LENGTH, SideStore, lengths_of, spans_of

_MANY = 65_536
_ALL = np.empty(0, np.int16)
"""The code of a filter that wants a partner for every region."""
_NOBODY = (), None


class Members(SideStore):
    """Members by id. Each has a number, by which its regions are found."""

    def __init__(self, which: Which, spaces_of: UInt64Array) -> None:
        super().__init__(spaces_of)
        self.which: Which = which
        self._kind: IdKind | None = None
        self._owners: dict[SubscriptionId, int] = {}
        self._names: list[tuple[tuple[str, ...], str | None]] = []
        """By owner: the names of its regions, and the filter."""
        self._free_owners: list[int] = []
        self._free_regions: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def __iter__(self) -> Iterator[SubscriptionId]:
        return iter(self._owners)

    def owner(self, member_id: SubscriptionId) -> int:
        """The number of a member."""
        try:
            return self._owners[member_id]
        except KeyError:
            raise UnknownMemberError(self.which, member_id) from None

    def check_new(self, ids: Iterable[SubscriptionId], kind: IdKind) -> None:
        """Ids of one side are all strings or all integers, and each is there once."""
        if self._kind is not None and self._kind != kind:
            raise SubscriptionIdError(
                f"the ids of {self.which}s are of kind {self._kind}, not {kind}"
            )
        for known in filter(self._owners.__contains__, ids):
            raise DuplicateMemberError(self.which, known)

    def member(self, owner: int) -> Member:
        """What is stored for an owner, good until the next change."""
        names, text = self._names[owner]
        side = self.side
        first, number = int(side.first[owner]), int(side.number[owner])
        regions = slice(first, first + number)
        begin = int(side.header[first, 0])
        if number == 1:
            start = np.array([0, int(side.header[first, 1]) & LENGTH])
        else:
            start = np.zeros(number + 1, np.int64)
            np.cumsum(lengths_of(side.header[regions]), out=start[1:])
        code = _ALL
        if side.code_length[owner]:
            code = side.code[side.code_start[owner] :][: side.code_length[owner]]
        what, low, high = side.constraint[begin : begin + int(start[-1])].T.copy()
        return Member(
            names, start, what.astype(np.uint16), low, high, (what >> OPEN).astype(np.uint8),
            side.valid[regions], text, code,
        )  # fmt: skip

    def constrained(self, owners: Int64Array) -> BoolArray:
        """Which dimensions the first regions of some owners constrain, by row."""
        header = self.side.header[self.side.first[owners]]
        lengths = lengths_of(header)
        marks = np.zeros((len(owners), len(self._spaces_of)), np.bool_)
        rows = np.repeat(np.arange(len(owners)), lengths)
        marks[rows, self.side.constraint[spans_of(header[:, 0], lengths), 0] & DIMENSION] = True
        return marks

    def place(self, owner: int, name: str | None) -> int | None:
        """Which region has this name; without one it is the only one."""
        names, _ = self._names[owner]
        if name is None:
            return 0 if len(names) == 1 else None
        return names.index(name) if name in names else None

    # Changing

    def add(self, member_id: SubscriptionId, kind: IdKind, member: Member) -> int:
        """Store a new member; returns its number."""
        self._set_kind(kind)
        owner = self._free_owners.pop() if self._free_owners else len(self._names)
        if owner == len(self._names):
            self._names.append(_NOBODY)
            self._reserve_owners(owner + 1)
        self._owners[member_id] = owner
        self.ids[owner] = member_id
        self._put(owner, member)
        return owner

    def _set_kind(self, kind: IdKind) -> None:
        if self._kind is None:
            self._kind = kind
            self.ids = np.empty(len(self.ids), object if kind == "string" else np.int64)

    def load(self, ids: IdArray, kind: IdKind, batch: MemberBatch) -> range:
        """Store many new members; where their endpoints lie is worked out once.

        Returns their numbers.
        """
        shapes, rows = batch
        owners = range(len(self._names), len(self._names) + len(shapes))
        own = slice(owners.start, owners.stop)
        number = np.array([len(shape.lengths) for shape in shapes], np.int32)
        lengths = np.array([one for shape in shapes for one in shape.lengths], np.int64)
        first = self._append_regions(len(lengths))
        self._set_kind(kind)
        self._reserve_owners(owners.stop)
        self.side.first[own] = first + np.cumsum(number) - number
        self.side.number[own] = number
        self.side.code_length[own] = 0
        for owner, shape in zip(owners, shapes, strict=True):
            if shape.filter is not None:
                self._put_code(owner, compile_region_filter(shape.filter, shape.names))
        owner_of = np.repeat(np.array(owners), number)
        is_simple = np.repeat((number == 1) & (self.side.code_length[own] == 0), number)
        start = np.cumsum(lengths) - lengths
        self._write(
            first,
            owner_of,
            np.where(is_simple, owner_of, ~owner_of),
            np.bitwise_or.reduceat(self._spaces_of[rows["dimension"]], start),
            start,
            lengths,
            (rows["dimension"], rows["open"], rows["low"], rows["high"]),
        )
        self._names += [(shape.names, shape.filter) for shape in shapes]
        self._owners.update(zip(ids.tolist(), owners, strict=True))
        self.ids[own] = ids
        self.endpoints = self._fit_endpoints()
        return owners

    def move(
        self, owner: int, place: int, targets: Targets, others: Members
    ) -> tuple[IdArray, int] | None:
        """Give a region other endpoints.

        Returns the ids of the others that begin to match, then of those that cease to, and how
        many begin. None: nothing has changed, since the region is free in one of the dimensions.
        """
        done, found, entered = move(self.packed(), others.packed(), owner, place, *targets)
        if done == NOT_POINTS:
            self._keep_both_endpoints()
            return self.move(owner, place, targets, others)
        if done == NOT_THERE:
            return None
        if done < 2 * len(targets.low):
            self._finish_move(owner, place, targets, done)
        return found if others.ids.dtype == np.int64 else others.ids[found], entered

    def move_many(
        self,
        owners: Int64Array,
        keys: Int64Array,
        freed: BoolArray,
        others: Members,
        otherwise: Callable[[int], tuple[Int32Array, int]],
    ) -> tuple[Int32Array, Int64Array]:
        """Move the only regions of many owners to these keys, by row and dimension.

        Dimensions that are `freed` may have any value then; others without a key stay as they are.
        Returns row by row the others that begin to match, then those that cease to; and how many
        these are, n × 2. `otherwise` handles the rows that need more than other endpoints.
        """
        counts = np.zeros((len(owners), 2), np.int64)
        room = np.empty(len(others.side.first) + _MANY, np.int32)
        stops = iter([*np.flatnonzero(freed.any(axis=1)).tolist(), len(owners)])
        found, row, stop = [], 0, next(stops)
        while row < len(owners):
            if row == stop:
                used, done, stop = 0, NOT_THERE, next(stops)
            else:
                row, used, done = move_many(
                    self.packed(), others.packed(), owners[:stop], keys, row, room, counts
                )
            found.append(room[:used].copy())
            if row == stop or done == NO_ROOM:
                continue
            if done == NOT_POINTS:
                self._keep_both_endpoints()
                continue
            if done == NOT_THERE:
                changed, entered = otherwise(row)
                found.append(changed)
                counts[row] = entered, len(changed) - entered
            else:
                (what,) = np.nonzero(keys[row] != ABSENT)
                at = keys[row, what]
                self._finish_move(int(owners[row]), 0, Targets(what, at, at), done)
            row += 1
        return np.concatenate(found) if found else np.empty(0, np.int32), counts

    def _finish_move(self, owner: int, place: int, targets: Targets, done: int) -> None:
        """Move the rest of the endpoints, for which there was no room."""
        region = int(self.side.first[owner]) + place
        header, constraint = self.side.header, self.side.constraint
        begin, length = header[region, :1].copy(), lengths_of(header[region : region + 1])
        dimension = (targets.what & DIMENSION).astype(np.uint16)
        stored = constraint[spans_of(begin, length), 0] & DIMENSION
        at = begin[0] + np.searchsorted(stored, dimension)  # by dimension in ascending order
        self.endpoints = move_endpoints(
            self.endpoints, region, np.array([0, len(at)]), dimension,
            (constraint[at, 1], constraint[at, 2]), (targets.low, targets.high), done,
        )  # fmt: skip
        constraint[at] = np.stack(targets, axis=1)
        describe(header, constraint, np.array([region]), begin, length)

    def replace(self, owner: int, old: Member, new: Member) -> None:
        """Put another member in the place of one, under its id."""
        self._clear(owner, old)
        self._put(owner, new)

    def remove(self, member_id: SubscriptionId) -> None:
        """Forget a member."""
        owner = self._owners.pop(member_id)
        self._clear(owner, self.member(owner))
        self._names[owner] = _NOBODY
        if self.ids.dtype == object:
            self.ids[owner] = ""
        self._free_owners.append(owner)

    def _put(self, owner: int, member: Member) -> None:
        number = len(member.valid)
        free = self._free_regions.get(number)
        first = free.pop() if free else self._append_regions(number)
        self._put_code(owner, member.code)
        self.side.first[owner], self.side.number[owner] = first, number
        mark = owner if number == 1 and len(member.code) == 0 else ~owner
        columns = member.dimension, member.open, member.low, member.high
        start = member.start[:-1]
        self._write(first, owner, mark, member.valid, start, np.diff(member.start), columns)
        self._names[owner] = (member.names, member.filter)
        points = self.endpoints.points and are_points(member.low, member.high)
        if points != self.endpoints.points or self._constraints - self._wasted > self._fit_for:
            self.endpoints = self._fit_endpoints()
        else:
            self.endpoints = move_endpoints(
                self.endpoints, first, member.start, member.dimension, _nowhere(len(member.low)),
                (member.low, member.high),
            )  # fmt: skip

    def _clear(self, owner: int, member: Member) -> None:
        first, number = int(self.side.first[owner]), len(member.valid)
        count = len(member.low)
        self.endpoints = move_endpoints(
            self.endpoints, first, member.start, member.dimension, (member.low, member.high),
            _nowhere(count),
        )  # fmt: skip
        self._wasted += count
        self.side.header[first : first + number] = 0
        self.side.valid[first : first + number] = 0
        self.side.number[owner] = 0
        self._free_regions.setdefault(number, []).append(first)


def _nowhere(count: int) -> tuple[Int64Array, Int64Array]:
    """The ends of constraints that do not constrain."""
    return np.full(count, FIRST), np.full(count, LAST)
