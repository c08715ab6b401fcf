"""One side of all spaces: publications or subscriptions, their regions, and where the endpoints
lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np

from boxmatch.arrays import BoolArray, Int32Array, Int64Array, UInt64Array
from boxmatch.engine.ids import IdArray
from boxmatch.errors import SubscriptionIdError
from boxmatch.kernels.bit_lines import zero_lines
from boxmatch.kernels.large_pages import large_zeros
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.ids import IdKind, SubscriptionId
from boxmatch.model.strings import remap_bounds
from boxmatch.spaces.endpoints import (
    Endpoints,
    are_points,
    make_endpoints,
    move_endpoints,
    with_room,
)
from boxmatch.spaces.layout import Parts, Scratch, Side, describe, pack
from boxmatch.spaces.member import OPEN, Member, what_of
from boxmatch.spaces.moving import (
    NO_ROOM,
    NOT_POINTS,
    NOT_THERE,
    Targets,
    finish_move,
    move,
    move_many,
)
from boxmatch.spaces.records import Batch
from boxmatch.spaces.region_filter import Code, compile_region_filter

_FEW = 64
_MANY = 65_536
_LENGTH = _DIMENSION = 0xFFFF
"""The part of a word that holds it."""
_NO_NUMBERS = np.empty(0, np.int64)
_ALL = np.empty(0, np.int16)
"""The code of a filter that wants a partner for every region."""


class Members:
    """Members by id, in arrays that searches read."""

    def __init__(self, what: str, spaces_of: UInt64Array) -> None:
        self._what = what
        self._spaces_of = spaces_of
        self._kind: IdKind | None = None
        self._owners: dict[SubscriptionId, int] = {}
        self._names: list[tuple[tuple[str, ...], str | None] | None] = []
        self._free_owners: list[int] = []
        self._free_regions: dict[int, list[int]] = {}
        self.regions = 0  # in use or free
        self._constraints = 0  # places taken in the pool, some of them for nothing
        self._wasted = 0
        self._codes = 0
        self.ids: IdArray = np.empty(0, np.int64)
        self.side = Side(
            header=_lines(0), owner=np.empty(0, np.int32),
            valid=np.empty(0, np.uint64), constraint=np.empty((0, 3), np.int64),
            first=np.empty(0, np.int32), number=np.empty(0, np.int32),
            code_start=np.empty(0, np.int32), code_length=np.empty(0, np.int32),
            code=np.empty(0, np.int16),
        )  # fmt: skip
        self.scratch = _scratch(0, 0)
        self.endpoints = self._fitted()
        self._packed: tuple[Int64Array, Side, Endpoints, Scratch, IdArray] | None = None

    def __len__(self) -> int:
        return len(self._owners)

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._owners

    def __iter__(self) -> Iterator[SubscriptionId]:
        return iter(self._owners)

    def owner(self, member_id: SubscriptionId) -> int | None:
        """The number of a member."""
        return self._owners.get(member_id)

    def packed(self) -> Int64Array:
        """The arrays as kernels take them, good until the next change."""
        side, endpoints, scratch, ids = self.side, self.endpoints, self.scratch, self.ids
        if self._packed is not None:
            packed, *of = self._packed
            if of[0] is side and of[1] is endpoints and of[2] is scratch and of[3] is ids:
                return packed
        numbers = cast(Int64Array, ids) if ids.dtype == np.int64 else _NO_NUMBERS
        packed = pack(Parts(side, endpoints, self._spaces_of, scratch, numbers))
        self._packed = packed, side, endpoints, scratch, ids
        return packed

    def check_kind(self, kind: IdKind) -> None:
        """Ids of one side are all strings or all integers."""
        if self._kind is not None and self._kind != kind:
            raise SubscriptionIdError(
                f"the ids of {self._what} are of kind {self._kind}, not {kind}"
            )

    def member(self, owner: int) -> Member:
        """What is stored for an owner, good until the next change."""
        names, text = self._known(owner)
        side = self.side
        first, number = int(side.first[owner]), int(side.number[owner])
        regions = slice(first, first + number)
        begin = int(side.header[first, 0])
        if number == 1:
            start = np.array([0, int(side.header[first, 1]) & _LENGTH])
        else:
            start = np.zeros(number + 1, np.int64)
            np.cumsum(_lengths(side.header[regions]), out=start[1:])
        span = slice(begin, begin + int(start[-1]))
        code = _ALL
        if side.code_length[owner]:
            code = side.code[side.code_start[owner] :][: side.code_length[owner]]
        what, low, high = side.constraint[span].T.copy()
        return Member(
            names, start, what.astype(np.uint16), low, high, (what >> OPEN).astype(np.uint8),
            side.valid[regions], text, code,
        )  # fmt: skip

    def constrained(self, owners: Int64Array) -> BoolArray:
        """Which dimensions the first regions of some owners constrain, by row."""
        header = self.side.header[self.side.first[owners]]
        lengths = _lengths(header)
        marks = np.zeros((len(owners), len(self._spaces_of)), np.bool_)
        rows = np.repeat(np.arange(len(owners)), lengths)
        marks[rows, self.side.constraint[_spans(header[:, 0], lengths), 0] & _DIMENSION] = True
        return marks

    def _known(self, owner: int) -> tuple[tuple[str, ...], str | None]:
        """Names of regions, and the filter."""
        known = self._names[owner]
        if known is None:
            raise KeyError(owner)
        return known

    # Changing

    def add(self, member_id: SubscriptionId, kind: IdKind, member: Member) -> int:
        """Store a new member; returns its number."""
        self._set_kind(kind)
        owner = self._free_owners.pop() if self._free_owners else len(self._names)
        if owner == len(self._names):
            self._names.append(None)
            self._reserve_owners(owner + 1)
        self._owners[member_id] = owner
        self.ids[owner] = member_id
        self._put(owner, member)
        return owner

    def _set_kind(self, kind: IdKind) -> None:
        if self._kind is None:
            self._kind = kind
            self.ids = np.empty(len(self.ids), object if kind == "string" else np.int64)

    def load(self, ids: IdArray, kind: IdKind, batch: Batch) -> int:
        """Store many new members; where their endpoints lie is worked out once.

        Returns the number of the first of them.
        """
        shapes, rows = batch
        owner, first = len(self._names), self.regions
        number = np.array([len(shape.lengths) for shape in shapes], np.int32)
        lengths = np.array([one for shape in shapes for one in shape.lengths], np.int64)
        self._set_kind(kind)
        self._reserve_owners(owner + len(shapes))
        self._reserve_regions(first + len(lengths))
        self._reserve_constraints(len(rows))
        begin = self._constraints
        self.regions += len(lengths)
        self._constraints += len(rows)
        side = self.side
        owners, regions = slice(owner, owner + len(shapes)), slice(first, self.regions)
        start = begin + np.cumsum(lengths) - lengths
        side.first[owners] = first + np.cumsum(number) - number
        side.number[owners] = number
        side.code_length[owners] = 0
        side.owner[regions] = np.repeat(np.arange(owner, owner + len(shapes)), number)
        spaces = self._spaces_of[rows["dimension"]]
        side.valid[regions] = np.bitwise_or.reduceat(spaces, start - begin)
        constraint = side.constraint[begin : self._constraints]
        constraint[:, 0] = what_of(rows["dimension"], rows["open"])
        constraint[:, 1], constraint[:, 2] = rows["low"], rows["high"]
        header = side.header[regions]
        header[:, 2] = side.valid[regions].view(np.int64)
        header[:, 3] = side.owner[regions]
        several = np.repeat(number > 1, number)
        header[several, 3] = ~header[several, 3]
        for at, shape in enumerate(shapes):
            if shape.filter is not None:
                code = compile_region_filter(shape.filter, shape.names)
                self._put_code(owner + at, np.array(code, np.int16))
                begin_region = int(side.first[owner + at])
                self.side.header[begin_region : begin_region + number[at], 3] = ~(owner + at)
        describe(side.header, side.constraint, np.arange(first, self.regions), start, lengths)
        self._names += [(shape.names, shape.filter) for shape in shapes]
        self._owners.update(zip(ids.tolist(), range(owner, owner + len(shapes)), strict=True))
        self.ids[owners] = ids
        self.endpoints = self._fitted()
        return owner

    def place(self, owner: int, name: str | None) -> int | None:
        """Which region has this name; without one it is the only one."""
        names, _ = self._known(owner)
        if name is None:
            return 0 if len(names) == 1 else None
        return names.index(name) if name in names else None

    def move(
        self, owner: int, place: int, targets: Targets, others: Members
    ) -> tuple[IdArray, int] | None:
        """Give a region other endpoints.

        Returns the ids of the others that come to match, then of those that cease to, and how many
        come. Or None, and nothing has changed: it is free in a dimension that it is to have
        endpoints in.
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
        """Let the only regions of many owners be at these keys, by row and dimension.

        Dimensions that are `freed` may have any value then; others without a key stay as they are.
        Returns for one row after the other the others that come to match and those that cease to;
        and how many these are, n × 2. What takes more than other endpoints, `otherwise` does for a
        row.
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
        """Move the rest of the endpoints, as far as there was no room for them."""
        region = int(self.side.first[owner]) + place
        while done < 2 * len(targets.low):
            is_high, at = divmod(done, len(targets.low))
            key = targets[1 + is_high][at]
            dimension = int(targets.what[at]) & _DIMENSION
            self.endpoints = with_room(
                self.endpoints, region, dimension, key, is_high=bool(is_high)
            )
            done = finish_move(self.packed(), region, targets, done)

    def replace(self, owner: int, old: Member, new: Member) -> None:
        """Put another member in the place of one, under its id."""
        self._clear(owner, old)
        self._put(owner, new)

    def remove(self, member_id: SubscriptionId) -> None:
        """Forget a member."""
        owner = self._owners.pop(member_id)
        self._clear(owner, self.member(owner))
        self._names[owner] = None
        if self.ids.dtype == object:
            self.ids[owner] = ""
        self._free_owners.append(owner)

    def _put(self, owner: int, member: Member) -> None:
        number, count, steps = len(member.valid), len(member.low), len(member.code)
        first = self._take_regions(number)
        self._put_code(owner, member.code)
        self._reserve_constraints(count)
        side, begin = self.side, self._constraints
        self._constraints += count
        regions, span = slice(first, first + number), slice(begin, begin + count)
        side.first[owner], side.number[owner] = first, number
        side.owner[regions] = owner
        side.valid[regions] = member.valid
        header = side.header[regions]
        header[:, 2] = member.valid.view(np.int64)
        header[:, 3] = owner if number == 1 and steps == 0 else ~owner
        constraint = side.constraint[span]
        constraint[:, 0] = what_of(member.dimension, member.open)
        constraint[:, 1], constraint[:, 2] = member.low, member.high
        start, lengths = begin + member.start[:-1], np.diff(member.start)
        describe(side.header, side.constraint, np.arange(first, first + number), start, lengths)
        self._names[owner] = (member.names, member.filter)
        points = self.endpoints.points and are_points(member.low, member.high)
        if points != self.endpoints.points or self._constraints - self._wasted > self._fit_for:
            self.endpoints = self._fitted()
        else:
            self.endpoints = move_endpoints(
                self.endpoints, first, member.start, member.dimension, _nowhere(count),
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

    def relabel(self, dimension: int, old: Int64Array, new: Int64Array) -> None:
        """Strings of a dimension have new labels: move all keys along."""
        here = np.flatnonzero(
            self.side.constraint[: self._constraints, 0] & _DIMENSION == dimension
        )
        for column in (1, 2):
            keys = self.side.constraint[here, column]
            self.side.constraint[here, column] = remap_bounds(keys, old, new)
        used, lengths, _ = self._in_use()
        start = self.side.header[used, 0]
        describe(self.side.header, self.side.constraint, used, start, lengths)
        self.endpoints = self._fitted()

    # Room

    def _take_regions(self, number: int) -> int:
        """The first of some regions side by side."""
        free = self._free_regions.get(number)
        if free:
            return free.pop()
        first = self.regions
        self.regions += number
        self._reserve_regions(self.regions)
        return first

    def _reserve_regions(self, count: int) -> None:
        if count > len(self.side.owner):
            size = 2 * count + _FEW
            side = self.side
            self.side = side._replace(
                header=_lines(size, side.header),
                owner=_longer(side.owner, size),
                valid=_longer(side.valid, size),
            )
            self.scratch = _scratch(size, len(side.first))

    def _reserve_owners(self, count: int) -> None:
        if count > len(self.side.first):
            size = 2 * count + _FEW
            self.ids = _longer(self.ids, size)
            side = self.side
            self.side = side._replace(
                first=_longer(side.first, size),
                number=_longer(side.number, size),
                code_start=_longer(side.code_start, size),
                code_length=_longer(side.code_length, size),
            )
            self.scratch = _scratch(len(side.owner), size)

    def _reserve_constraints(self, more: int) -> None:
        if self._constraints + more <= len(self.side.constraint):
            return
        if self._wasted > self._constraints // 2:
            self._squeeze()
            if self._constraints + more <= len(self.side.constraint):
                return
        size = 2 * (self._constraints + more) + _FEW
        self.side = self.side._replace(constraint=_longer(self.side.constraint, size))

    def _squeeze(self) -> None:
        """Close the gaps in the pool of constraints."""
        used, lengths, source = self._in_use()
        self.side.constraint[: len(source)] = self.side.constraint[source]
        self.side.header[used, 0] = np.cumsum(lengths) - lengths
        self._constraints, self._wasted = len(source), 0

    def _in_use(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Regions, how many constraints they have, and where these are, in order of their place."""
        used = np.flatnonzero(self.side.header[: self.regions, 1])
        used = used[np.argsort(self.side.header[used, 0])]
        start, lengths = self.side.header[used, 0], _lengths(self.side.header[used])
        return used, lengths, _spans(start, lengths)

    def _put_code(self, owner: int, code: Code) -> None:
        steps = len(code)
        if self._codes + steps > len(self.side.code):
            # Filters of members that are gone stay; they are few and short.
            size = 2 * (self._codes + steps) + _FEW
            self.side = self.side._replace(code=_longer(self.side.code, size))
        self.side.code_start[owner], self.side.code_length[owner] = self._codes, steps
        self.side.code[self._codes : self._codes + steps] = code
        self._codes += steps

    def _keep_both_endpoints(self) -> None:
        self.endpoints = self._fitted(maybe_points=False)

    def _fitted(self, *, maybe_points: bool = True) -> Endpoints:
        """The ends of all regions in cells that suit them as they are now."""
        used, lengths, source = self._in_use()
        self._fit_for = 2 * len(source) + 1_024
        what, low, high = self.side.constraint[source].T.copy()
        slots = np.repeat(used, lengths).astype(np.int32)
        dimensions, points = len(self._spaces_of), maybe_points and are_points(low, high)
        return make_endpoints(dimensions, what & _DIMENSION, slots, low, high, points=points)


def _nowhere(count: int) -> tuple[Int64Array, Int64Array]:
    """The ends of constraints that do not constrain."""
    return np.full(count, FIRST), np.full(count, LAST)


def _lengths(header: Int64Array) -> Int64Array:
    return header[:, 1] & _LENGTH


def _spans(start: Int64Array, lengths: Int64Array) -> Int64Array:
    """The numbers of spans of these lengths from each start on, one after the other."""
    begins = np.cumsum(lengths) - lengths
    numbers: Int64Array = np.arange(int(lengths.sum())) + np.repeat(start - begins, lengths)
    return numbers


def _lines(count: int, old: Int64Array | None = None) -> Int64Array:
    """Headers, each on a cache line of its own."""
    lines = zero_lines(count).view(np.int64)
    if old is not None:
        lines[: len(old)] = old
    return lines


def _longer(array: Any, size: int) -> Any:
    longer = large_zeros((size, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


def _scratch(regions: int, owners: int) -> Scratch:
    return Scratch(
        np.zeros(regions, np.uint64),
        np.zeros(regions, np.uint8),
        np.zeros(owners, np.uint64),
        np.zeros(owners, np.uint64),
        np.empty(max(regions, owners) + 1, np.int32),
    )
