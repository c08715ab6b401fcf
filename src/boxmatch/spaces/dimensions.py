"""The dimensions of all spaces, and what publications and subscriptions say about them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import RegionError, RegionFilterError, SchemaError
from boxmatch.kernels.pieces import drop, pieces
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.events import EventEncoder
from boxmatch.model.ids import SubscriptionId
from boxmatch.model.interval import Interval
from boxmatch.model.schema import Attribute, Schema
from boxmatch.model.strings import AxisFullError, string_axes
from boxmatch.model.tables import ColumnTable, as_table, strings_of
from boxmatch.spaces.interval import KeyInterval, bounds_of, interval_from, keys_of
from boxmatch.spaces.members import Members
from boxmatch.spaces.moving import Targets
from boxmatch.spaces.records import CONSTRAINT, OPEN, Member, MemberBatch, Shape, pack, unpack
from boxmatch.spaces.region_filter import compile_region_filter

MOST_SPACES = 64
"""In which of them two regions can meet is one bit each."""

RegionSpec = Mapping[str, Any]
"""Dimensions with a value or a range (see `Interval`); in updates None frees one."""

ONLY_REGION = "region"
"""The name of a region that was given without one."""


class Stored(NamedTuple):
    """A publication or subscription as it is stored."""

    id: SubscriptionId
    regions: Mapping[str, RegionSpec]
    region_filter: str | None
    expires: float | None = None
    """When it goes, in the time of the clock; None is never."""


class Unchanged:
    """Stands for what an update leaves as it is."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged()


class Dimensions:
    """Dimensions by place, each once, however many spaces have it."""

    def __init__(self, spaces: Mapping[str, Schema]) -> None:
        if not spaces:
            raise SchemaError("there must be at least one space")
        if len(spaces) > MOST_SPACES:
            raise SchemaError(f"there can be {MOST_SPACES} spaces, not {len(spaces)}")
        self.attributes = _dimensions(spaces)
        self._positions = {one.name: place for place, one in enumerate(self.attributes)}
        self.spaces_of = np.zeros(len(self.attributes), np.uint64)
        for bit, schema in enumerate(spaces.values()):
            for name in schema.names:
                self.spaces_of[self._positions[name]] |= np.uint64(1 << bit)
        self._axes = string_axes(self.attributes)
        self.has_strings = bool(self._axes)
        self._encoder = EventEncoder(Schema(self.attributes), self._axes)
        # Integers are their own keys. Updates mostly name the same dimensions as others before.
        self._whole = {d for d, one in enumerate(self.attributes) if one.type == "int"}
        self._whole_places = lru_cache(maxsize=4_096)(self._find_whole_places)

    def __len__(self) -> int:
        return len(self.attributes)

    def pack(self, member: Member) -> bytes:
        """A member as bytes, from which `unpack` makes it again in other spaces like these."""
        rows = np.empty(len(member.low), CONSTRAINT)
        for name in ("dimension", "open", "low", "high"):
            rows[name] = getattr(member, name)
        texts: list[str] = []
        for d, axis in self._axes.items():
            for at in np.flatnonzero(member.dimension == d).tolist():
                for end in ("low", "high"):
                    bound = axis.bound(int(rows[end][at]))
                    if isinstance(bound, tuple):
                        # Labels change; which text it is, and which side of it, does not.
                        rows[end][at] = 4 * len(texts) + bound[1] + 1
                        texts.append(bound[0])
        lengths = tuple(np.diff(member.start).tolist())
        return pack(Shape(member.names, lengths, member.filter), rows, texts)

    def unpack(self, records: Iterable[bytes], sides: Iterable[Members]) -> MemberBatch:
        """The members that `pack` made bytes of."""
        (shapes, rows), texts, first_text = unpack(records)
        if not texts:
            return MemberBatch(shapes, rows)
        first = np.repeat(first_text, [sum(shape.lengths) for shape in shapes])
        for d, axis in self._axes.items():
            here = np.flatnonzero(rows["dimension"] == d)
            endpoints = []
            for end in ("low", "high"):
                bounded = here[(rows[end][here] != FIRST) & (rows[end][here] != LAST)]
                number, offset = np.divmod(rows[end][bounded], 4)
                named = [texts[at] for at in (first[bounded] + number).tolist()]
                endpoints.append((end, bounded, named, offset - 1))
            self._learn(d, [text for _, _, named, _ in endpoints for text in named], sides)
            for end, bounded, named, offset in endpoints:
                labels = np.fromiter(map(axis.label, named), np.int64, len(named))
                rows[end][bounded] = labels + offset
        return MemberBatch(shapes, rows)

    def batch(self, members: Mapping[SubscriptionId, Stored], which: str) -> MemberBatch:
        """Many members as columns. Strings that occur must be known (`make_room`)."""
        shapes: list[Shape] = []
        rows: list[tuple[int, int, int, int]] = []
        for member_id, member in members.items():
            try:
                regions = [self._region(name, spec, {}) for name, spec in member.regions.items()]
                shape = _shape(
                    tuple(member.regions), tuple(map(len, regions)), member.region_filter
                )
            except (RegionError, RegionFilterError) as error:
                raise RegionError(f"{which} {member_id!r}: {error}") from None
            shapes.append(shape)
            for region in regions:
                rows += [(d, keys.open, keys.low, keys.high) for d, keys in sorted(region.items())]
        columns = np.empty(len(rows), CONSTRAINT)
        for piece in pieces(len(rows)):
            columns[piece] = rows[piece]
        drop(rows)
        return MemberBatch(shapes, columns)

    def _learn(self, d: int, texts: Iterable[str], sides: Iterable[Members]) -> None:
        """Give strings their labels; without room between others, all labels are respread."""
        axis = self._axes[d]
        new = [text for text in dict.fromkeys(texts) if text not in axis]
        if not new:
            return
        try:
            axis.add(new)
        except AxisFullError:
            old_labels, new_labels = axis.respread()
            for members in sides:
                members.relabel(d, old_labels, new_labels)
            axis.add(new)

    def intervals(self, member: Member) -> dict[str, dict[str, Interval]]:
        """The regions of a member as they were given."""
        return {
            name: {
                self.attributes[d].name: interval_from(self.attributes[d], keys, self._axes.get(d))
                for d, keys in _constraints(member, place).items()
            }
            for place, name in enumerate(member.names)
        }

    def change(
        self,
        old: Member,
        region: RegionSpec | None,
        regions: Mapping[str, RegionSpec | None] | None,
        filter: str | Unchanged | None,
    ) -> Member:
        """The member after an update."""
        if region is not None and len(old.names) != 1:
            raise RegionError(f"say which region changes: {', '.join(old.names)}")
        named = dict(regions or {})
        if region is not None:
            named[old.names[0]] = region
        if isinstance(filter, Unchanged):
            filter = old.filter
        kept = {name: _constraints(old, place) for place, name in enumerate(old.names)}
        for name, spec in named.items():
            if spec is None:
                if kept.pop(name, None) is None:
                    raise RegionError(f"there is no region {name!r} to take away")
            else:
                kept[name] = self._region(name, spec, kept.get(name, {}))
        if not kept:
            raise RegionError("an update may not take away all regions")
        return self._compile(kept, filter)

    def targets(self, spec: RegionSpec | None) -> Targets | None:
        """Other endpoints for dimensions that a region constrains already; None if that is not all.

        What most updates give; so it must not cost more than it has to.
        """
        if not isinstance(spec, Mapping) or not spec:
            return None
        given = list(spec.values())
        if set(map(type, given)) == {int}:
            what = self._whole_places(tuple(spec))
            if what is not None:
                try:
                    low = np.array(given, np.int64)
                except OverflowError:
                    return None
                return None if ABSENT in given else Targets(what, low, low)
        columns = []
        for name, value in spec.items():
            d = self._positions.get(name)
            if d is None or value is None:
                return None
            keys = keys_of(self.attributes[d], value, self._axes.get(d))
            columns.append((d | keys.open << OPEN, keys.low, keys.high))
        what, low, high = np.array(columns, np.int64).reshape(-1, 3).T.copy()
        return Targets(what, low, high)

    def _find_whole_places(self, names: tuple[str, ...]) -> Int64Array | None:
        """Where these dimensions are, if all of them are integers."""
        places = list(map(self._positions.get, names))
        return np.array(places) if self._whole.issuperset(places) else None

    def points(self, values: Any, sides: Iterable[Members]) -> tuple[Int64Array, BoolArray]:
        """The keys of many points, by row and dimension, and which dimensions are freed.

        A dimension without a key (`ABSENT`) is freed if it is null, and stays as it is if the row
        does not name it.
        """
        given = list(values) if isinstance(values, Iterator) else values  # they are read twice
        keys = self._encoder.batch(given)
        if isinstance(given, np.ndarray):
            for d in self._axes:
                name = self.attributes[d].name
                column = [{name: value} for value in given[:, d].tolist()]
                self._learn(d, sorted(strings_of(column, self.attributes[d])), sides)
            if self._axes:
                keys = self._encoder.batch(given)
            return keys, keys == ABSENT
        rows = as_table(given) or list(given)
        names: Iterable[Any] = rows.names if isinstance(rows, ColumnTable) else set().union(*rows)
        freed = np.zeros(keys.shape, np.bool_)
        for name in names:
            d = self._positions.get(name, -1)
            if d < 0:
                raise RegionError(
                    f"no space has a dimension {name!r}; there are {', '.join(self._positions)}"
                )
            freed[:, d] = keys[:, d] == ABSENT
            if not isinstance(rows, ColumnTable):
                freed[:, d] &= [name in row for row in rows]
        for d in self._axes:
            self._learn(d, strings_of(rows, self.attributes[d]), sides)
        # Until they were known, some strings were alike.
        return self._encoder.batch(given) if self._axes else keys, freed

    def at_point(self, old: Member, keys: Int64Array, freed: BoolArray) -> Member:
        """A member of one region after it has moved to these keys, as far as they are given."""
        constraints = _constraints(old, 0)
        for d in np.flatnonzero(freed).tolist():
            constraints.pop(d, None)
        for d in np.flatnonzero(keys != ABSENT).tolist():
            constraints[d] = KeyInterval(int(keys[d]), int(keys[d]), 0)
        return self._compile({old.names[0]: constraints}, old.filter)

    def _region(
        self, name: str, spec: RegionSpec, before: Mapping[int, KeyInterval]
    ) -> dict[int, KeyInterval]:
        """The constraints of a region by dimension, after changes to those `before`."""
        if not isinstance(spec, Mapping):
            raise RegionError(f"region {name!r} is a mapping of dimensions, not {spec!r}")
        constraints = dict(before)
        for dimension, given in spec.items():
            d = self._positions.get(dimension)
            if d is None:
                raise RegionError(
                    f"region {name!r}: no space has a dimension {dimension!r}; there are "
                    f"{', '.join(self._positions)}"
                )
            if given is None:
                constraints.pop(d, None)
            else:
                constraints[d] = keys_of(self.attributes[d], given, self._axes.get(d))
        if not constraints:
            raise RegionError(f"region {name!r} constrains no dimension, so it is in no space")
        return constraints

    def make_room(self, specs: Collection[RegionSpec | None], sides: Iterable[Members]) -> None:
        """Let the string axes know all strings of these regions, before any of them is a key.

        Rarely, new labels do not fit between others; then all labels are respread, and the keys of
        everything that is stored change with them.
        """
        for d in self._axes:
            attribute = self.attributes[d]
            name = attribute.name
            given = [spec[name] for spec in specs if isinstance(spec, Mapping) and name in spec]
            ends = [
                {name: end}
                for one in given
                if one is not None
                for end in bounds_of(attribute, one)[:2]
            ]
            self._learn(d, sorted(strings_of(ends, attribute)), sides)

    def member(self, named: Mapping[str, RegionSpec], filter: str | None) -> Member:
        return self._compile({n: self._region(n, spec, {}) for n, spec in named.items()}, filter)

    def _compile(
        self, regions: Mapping[str, Mapping[int, KeyInterval]], filter: str | None
    ) -> Member:
        names = tuple(regions)
        code = compile_region_filter(filter, names)
        rows = [item for region in regions.values() for item in sorted(region.items())]
        start = np.zeros(len(regions) + 1, np.int64)
        np.cumsum([len(region) for region in regions.values()], out=start[1:])
        dimension = np.array([d for d, _ in rows], np.uint16)
        keys = np.array([keys for _, keys in rows], np.int64)
        return Member(
            names, start, dimension, keys[:, 0].copy(), keys[:, 1].copy(),
            keys[:, 2].astype(np.uint8),
            np.bitwise_or.reduceat(self.spaces_of[dimension], start[:-1]),
            filter, code,
        )  # fmt: skip


@lru_cache(maxsize=1_024)
def _shape(names: tuple[str, ...], lengths: tuple[int, ...], filter: str | None) -> Shape:
    """Checked, and shared: most members are of one of a few shapes."""
    compile_region_filter(filter, names)
    return Shape(names, lengths, filter)


def _constraints(member: Member, place: int) -> dict[int, KeyInterval]:
    """The constraints of one region by dimension."""
    span = slice(*member.start[place : place + 2].tolist())
    columns = (member.low, member.high, member.open)
    keys = map(KeyInterval, *(column[span].tolist() for column in columns))
    return dict(zip(member.dimension[span].tolist(), keys, strict=True))


def _dimensions(spaces: Mapping[str, Schema]) -> tuple[Attribute, ...]:
    """All dimensions, each once."""
    found: dict[str, tuple[Attribute, str]] = {}
    for name, schema in spaces.items():
        for attribute in schema:
            if attribute.repeated or attribute.type == "json":
                raise SchemaError(
                    f"dimension {attribute.name!r} of space {name!r} is a {attribute.type_name}; "
                    "a region is at one place of a dimension"
                )
            known, where = found.setdefault(attribute.name, (attribute, name))
            if known != attribute:
                raise SchemaError(
                    f"dimension {attribute.name!r} is not the same in spaces {where!r} and {name!r}"
                )
    return tuple(attribute for attribute, _ in found.values())
