"""The arrays of one side of all spaces: searches through them, and room in them."""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np

from boxmatch.arrays import Int32Array, Int64Array, UInt64Array
from boxmatch.engine.ids import IdArray
from boxmatch.kernels.bit_lines import zero_lines
from boxmatch.kernels.large_pages import large_zeros
from boxmatch.model.strings import remap_bounds
from boxmatch.spaces.changes import find_changes
from boxmatch.spaces.endpoints import EndpointCells, are_points, make_endpoints
from boxmatch.spaces.layout import Scratch, Side, SideArrays, describe, pack
from boxmatch.spaces.records import OPEN, Member
from boxmatch.spaces.region_filter import Code
from boxmatch.spaces.search import find_matches

LENGTH = DIMENSION = 0xFFFF
"""The part of a word that holds it."""
_FEW = 64
_NO_NUMBERS = np.empty(0, np.int64)
_BY_OWNER: Final = ("first", "number", "code_start", "code_length")
_BY_REGION: Final = ("owner", "header", "valid")


class SideStore:
    """Regions, their constraints and endpoints, by the numbers of their owners."""

    def __init__(self, spaces_of: UInt64Array) -> None:
        self._spaces_of = spaces_of
        self.regions = 0  # in use or free
        self._constraints = 0  # places taken in the pool, some of them for nothing
        self._wasted = 0
        self._codes = 0
        self.ids: IdArray = np.empty(0, np.int64)
        """By owner."""
        self.side = Side(
            header=np.empty((0, 8), np.int64), owner=np.empty(0, np.int32),
            valid=np.empty(0, np.uint64), constraint=np.empty((0, 3), np.int64),
            first=np.empty(0, np.int32), number=np.empty(0, np.int32),
            code_start=np.empty(0, np.int32), code_length=np.empty(0, np.int32),
            code=np.empty(0, np.int16),
        )  # fmt: skip
        self.scratch = _scratch(0, 0)
        self.endpoints = self._fit_endpoints()
        self._packed: tuple[Int64Array, Side, EndpointCells, Scratch, IdArray] | None = None

    def packed(self) -> Int64Array:
        """The arrays as kernels take them, good until the next change."""
        side, endpoints, scratch, ids = self.side, self.endpoints, self.scratch, self.ids
        if self._packed is not None:
            packed, *of = self._packed
            if of[0] is side and of[1] is endpoints and of[2] is scratch and of[3] is ids:
                return packed
        numbers = cast(Int64Array, ids) if ids.dtype == np.int64 else _NO_NUMBERS
        packed = pack(SideArrays(side, endpoints, self._spaces_of, scratch, numbers))
        self._packed = packed, side, endpoints, scratch, ids
        return packed

    def find_matches(self, member: Member | None) -> Int32Array:
        """The numbers of those that match a member of the other side; nobody matches None."""
        if member is None:
            return np.empty(0, np.int32)
        count = find_matches(member.actor, self.packed(), self.regions)
        return self.scratch.found[:count].copy()

    def find_changes(self, old: Member | None, new: Member | None) -> tuple[Int32Array, int]:
        """Those that begin to match when `old` becomes `new`, then those that cease to.

        Also how many begin.
        """
        if old is not None and new is not None and old.has_shape_of(new):
            changes: tuple[Int32Array, int] = find_changes(old.actor, new.actor, self.packed())
            return changes
        entered, gone = self.find_matches(new), self.find_matches(old)
        if len(entered) and len(gone):
            entered, gone = np.setdiff1d(entered, gone), np.setdiff1d(gone, entered)
        return np.concatenate([entered, gone]), len(entered)

    def _write(
        self,
        first: int,
        owner: int | Int64Array,
        mark: int | Int64Array,
        valid: UInt64Array,
        start: Int64Array,
        lengths: Int64Array,
        columns: tuple[Any, Any, Any, Any],
    ) -> None:
        """Write regions from `first` on, except where their endpoints lie.

        By region: its owner, also as headers have it, its spaces, and where its constraints start
        and how many they are: their dimensions, which endpoints are open, low and high.
        """
        dimension, opened, low, high = columns
        begin = self._append_constraints(len(low))
        side, regions = self.side, slice(first, first + len(lengths))
        constraint = side.constraint[begin : begin + len(low)]
        constraint[:, 0] = dimension.astype(np.int64) | opened.astype(np.int64) << OPEN
        constraint[:, 1], constraint[:, 2] = low, high
        side.owner[regions], side.valid[regions] = owner, valid
        header = side.header[regions]
        header[:, 2] = valid.view(np.int64)
        header[:, 3] = mark
        numbers = np.arange(first, regions.stop)
        describe(side.header, side.constraint, numbers, begin + start, lengths)

    def relabel(self, dimension: int, old: Int64Array, new: Int64Array) -> None:
        """Strings of a dimension have new labels: move all keys along."""
        here = np.flatnonzero(self.side.constraint[: self._constraints, 0] & DIMENSION == dimension)
        for column in (1, 2):
            keys = self.side.constraint[here, column]
            self.side.constraint[here, column] = remap_bounds(keys, old, new)
        used, lengths, _ = self._in_use()
        start = self.side.header[used, 0]
        describe(self.side.header, self.side.constraint, used, start, lengths)
        self.endpoints = self._fit_endpoints()

    def _append_regions(self, number: int) -> int:
        """The first of some regions side by side, after all others."""
        self.regions += number
        self._reserve(self.regions, *_BY_REGION)
        return self.regions - number

    def _reserve_owners(self, count: int) -> None:
        self._reserve(count, *_BY_OWNER)
        if len(self.ids) < count:
            self.ids = _longer(self.ids, len(self.side.first))

    def _append_constraints(self, count: int) -> int:
        """The first of some constraints."""
        full = self._constraints + count > len(self.side.constraint)
        if full and self._wasted > self._constraints // 2:
            self._squeeze()
        self._reserve(self._constraints + count, "constraint")
        self._constraints += count
        return self._constraints - count

    def _reserve(self, count: int, *arrays: str) -> None:
        """Have room for so many items in these arrays of the side."""
        if count <= len(getattr(self.side, arrays[0])):
            return
        size = 2 * count + _FEW
        longer = {name: _longer(getattr(self.side, name), size) for name in arrays}
        self.side = self.side._replace(**longer)
        self.scratch = _scratch(len(self.side.owner), len(self.side.first))

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
        start, lengths = self.side.header[used, 0], lengths_of(self.side.header[used])
        return used, lengths, spans_of(start, lengths)

    def _put_code(self, owner: int, code: Code) -> None:
        # Filters of members that are gone stay; they are few and short.
        first, self._codes = self._codes, self._codes + len(code)
        self._reserve(self._codes, "code")
        self.side.code_start[owner], self.side.code_length[owner] = first, len(code)
        self.side.code[first : self._codes] = code

    def _keep_both_endpoints(self) -> None:
        self.endpoints = self._fit_endpoints(maybe_points=False)

    def _fit_endpoints(self, *, maybe_points: bool = True) -> EndpointCells:
        """The endpoints of all regions, in cells that fit them as they are now."""
        used, lengths, source = self._in_use()
        self._fit_for = 2 * len(source) + 1_024
        what, low, high = self.side.constraint[source].T.copy()
        slots = np.repeat(used, lengths).astype(np.int32)
        dimensions, points = len(self._spaces_of), maybe_points and are_points(low, high)
        return make_endpoints(dimensions, what & DIMENSION, slots, low, high, points=points)


def lengths_of(header: Int64Array) -> Int64Array:
    return header[:, 1] & LENGTH


def spans_of(start: Int64Array, lengths: Int64Array) -> Int64Array:
    """The numbers of spans of these lengths from each start on, one after the other."""
    begins = np.cumsum(lengths) - lengths
    numbers: Int64Array = np.arange(int(lengths.sum())) + np.repeat(start - begins, lengths)
    return numbers


def _longer(array: Any, size: int) -> Any:
    """A copy with more room; headers are each on a cache line of their own."""
    if array.shape[1:] == (8,):
        longer = zero_lines(size).view(np.int64)
    else:
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
