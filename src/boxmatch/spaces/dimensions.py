"""The dimensions of all spaces, and what publications and subscriptions say about them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from boxmatch.errors import RegionError, SchemaError
from boxmatch.model.schema import Attribute, Schema
from boxmatch.model.strings import AxisFullError, string_axes
from boxmatch.spaces.interval import Interval, Keys, interval_from, interval_of, keys_of
from boxmatch.spaces.region_filter import MOST_REGIONS, compile_region_filter
from boxmatch.spaces.side import Member, Members

MOST_SPACES = 64
"""In which of them two regions can meet is one bit each."""

RegionSpec = Mapping[str, Any]
"""Dimensions with a value, a tuple of low and high, or an `Interval`; in updates None frees one."""

ONLY_REGION = "region"
"""The name of a region that was given without one."""


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

    def __len__(self) -> int:
        return len(self.attributes)

    def to_json(self, member: Member) -> str:
        """A member as text, from which `from_json` makes it again in other spaces like these."""
        regions = {
            name: [
                [
                    self.attributes[d].name,
                    self._end(d, keys.low),
                    self._end(d, keys.high),
                    keys.open,
                ]
                for d, keys in _constraints(member, place).items()
            ]
            for place, name in enumerate(member.names)
        }
        return json.dumps({"regions": regions, "filter": member.filter})

    def _end(self, d: int, key: int) -> Any:
        """A key that means the same whatever labels strings have."""
        axis = self._axes.get(d)
        return key if axis is None else axis.bound(key)

    def from_json(self, text: str, sides: Iterable[Members]) -> Member:
        """The member that `to_json` wrote."""
        found = json.loads(text)
        sides = tuple(sides)
        for constraints in found["regions"].values():
            for name, low, high, _ in constraints:
                d = self._positions[name]
                if d in self._axes:
                    self._learn(d, [end[0] for end in (low, high) if isinstance(end, list)], sides)
        regions = {
            name: {
                self._positions[dimension]: Keys(
                    self._key(dimension, low), self._key(dimension, high), is_open
                )
                for dimension, low, high, is_open in constraints
            }
            for name, constraints in found["regions"].items()
        }
        return self._compiled(regions, found["filter"])

    def _key(self, dimension: str, end: Any) -> int:
        if isinstance(end, list):
            return self._axes[self._positions[dimension]].label(end[0]) + int(end[1])
        key: int = end
        return key

    def _learn(self, d: int, texts: Iterable[str], sides: Iterable[Members]) -> None:
        """Give strings their labels. There may be no room for them; then all are spread anew."""
        axis = self._axes[d]
        new = [text for text in texts if text not in axis]
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

    def changed(
        self,
        old: Member,
        region: RegionSpec | None,
        regions: Mapping[str, RegionSpec | None] | None,
        filter: str | Unchanged | None,
    ) -> Member:
        if region is not None and len(old.names) != 1:
            raise RegionError(f"say which region changes: {', '.join(old.names)}")
        named = dict(regions or {})
        if region is not None:
            named[old.names[0]] = region
        if isinstance(filter, Unchanged):
            moved = self._moved(old, named)
            if moved is not None:
                return moved
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
        return self._compiled(kept, filter)

    def _moved(self, old: Member, named: Mapping[str, RegionSpec | None]) -> Member | None:
        """The member with other values in dimensions that are constrained already, if that is all.

        What most updates are; so it must not cost more than it has to.
        """
        positions: list[int] = []
        keys: list[Keys] = []
        for name, spec in named.items():
            if name not in old.names or not isinstance(spec, Mapping):
                return None
            place = old.names.index(name)
            begin, end = old.start[place : place + 2].tolist()
            at = dict(zip(old.dimension[begin:end].tolist(), range(begin, end), strict=True))
            for dimension, given in spec.items():
                d = self._positions.get(dimension)
                if d is None or given is None or d not in at:
                    return None
                positions.append(at[d])
                keys.append(keys_of(self.attributes[d], given, self._axes.get(d)))
        low, high, opened = old.low.copy(), old.high.copy(), old.open.copy()
        if keys:
            changed = np.array(keys, np.int64)
            low[positions], high[positions] = changed[:, 0], changed[:, 1]
            opened[positions] = changed[:, 2]
        return old._replace(low=low, high=high, open=opened)

    def _region(self, name: str, spec: RegionSpec, before: Mapping[int, Keys]) -> dict[int, Keys]:
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

    def make_room(self, named: Mapping[str, RegionSpec | None], sides: Iterable[Members]) -> None:
        """Let the string axes know all strings of these regions, before any of them is a key.

        New labels may not fit in between; then all of them are spread anew, and all that is
        stored moves along. Rare.
        """
        for d in self._axes:
            name = self.attributes[d].name
            given = [
                spec[name] for spec in named.values() if isinstance(spec, Mapping) and name in spec
            ]
            texts = [
                end
                for one in given
                if one is not None
                for end in (interval_of(one).low, interval_of(one).high)
                if isinstance(end, str)
            ]
            self._learn(d, texts, sides)

    def member(self, named: Mapping[str, RegionSpec], filter: str | None) -> Member:
        return self._compiled({n: self._region(n, spec, {}) for n, spec in named.items()}, filter)

    def _compiled(self, regions: Mapping[str, Mapping[int, Keys]], filter: str | None) -> Member:
        if len(regions) > MOST_REGIONS:
            raise RegionError(f"there can be {MOST_REGIONS} regions, not {len(regions)}")
        names = tuple(regions)
        rows = [item for region in regions.values() for item in sorted(region.items())]
        start = np.zeros(len(regions) + 1, np.int64)
        np.cumsum([len(region) for region in regions.values()], out=start[1:])
        dimension = np.array([d for d, _ in rows], np.uint16)
        keys = np.array([keys for _, keys in rows], np.int64)
        return Member(
            names, start, dimension, keys[:, 0].copy(), keys[:, 1].copy(),
            keys[:, 2].astype(np.uint8),
            np.bitwise_or.reduceat(self.spaces_of[dimension], start[:-1]),
            filter, np.array(compile_region_filter(filter, names), np.int16),
        )  # fmt: skip


def _constraints(member: Member, place: int) -> dict[int, Keys]:
    """The constraints of one region by dimension."""
    span = slice(*member.start[place : place + 2].tolist())
    columns = (member.low, member.high, member.open)
    keys = map(Keys, *(column[span].tolist() for column in columns))
    return dict(zip(member.dimension[span].tolist(), keys, strict=True))


def _dimensions(spaces: Mapping[str, Schema]) -> tuple[Attribute, ...]:
    """All dimensions, each once."""
    found: dict[str, tuple[Attribute, str]] = {}
    for name, schema in spaces.items():
        for attribute in schema:
            known, where = found.setdefault(attribute.name, (attribute, name))
            if known != attribute:
                raise SchemaError(
                    f"dimension {attribute.name!r} is not the same in spaces {where!r} and {name!r}"
                )
    return tuple(attribute for attribute, _ in found.values())
