"""Names in events that the schema lacks: payload, or typing errors."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, get_args

import numpy as np

from boxmatch.errors import EventError, did_you_mean
from boxmatch.model.documents import ROOT
from boxmatch.model.json_texts import read_events
from boxmatch.model.nested import DEEPEST
from boxmatch.model.schema import Attribute, Schema
from boxmatch.model.tables import as_table

Unknown = Literal["ignore", "warn", "refuse"]
"""What to do about names that the schema lacks."""

_SHOWN: Final = 8
"""Columns of a table in a message."""


class KnownNames:
    """The names that an event of some attributes may have, nested ones and those of elements
    included.
    """

    def __init__(self, attributes: Iterable[Attribute]) -> None:
        known = list(attributes)
        self._names = frozenset(one.name for one in known)
        parents: set[str] = set()
        for name in self._names:
            parts = name.split(".")
            if len(parts) <= DEEPEST:
                parents.update(".".join(parts[:end]) for end in range(1, len(parts)))
        self._parents = parents - self._names
        self._elements = {one.name: KnownNames(one.fields) for one in known if one.fields}

    def find_unknown(self, event: Mapping[str, object]) -> str | None:
        """A name in the event that is none of these, with its parents; None if there is none."""
        if not self._elements and event.keys() <= self._names:
            return None
        return self._within(event, "")

    def _within(self, mapping: Mapping[str, object], parent: str) -> str | None:
        for key in sorted(mapping, key=str):
            name = f"{parent}{key}"
            value = mapping[key]
            if name in self._names:
                found = self._in_elements(name, value)
            elif name not in self._parents:
                return name
            else:
                found = self._within(value, f"{name}.") if isinstance(value, Mapping) else None
            if found is not None:
                return found
        return None

    def _in_elements(self, name: str, value: object) -> str | None:
        known = self._elements.get(name)
        if known is None or not isinstance(value, (list, tuple)):
            return None
        for element in value:
            if isinstance(element, Mapping):
                found = known.find_unknown(element)
                if found is not None:
                    return f"{name}.{found}"
        return None

    def check_event(self, event: Mapping[str, object]) -> None:
        """`EventError` if an event has a name that is none of these."""
        unknown = self.find_unknown(event)
        if unknown is not None:
            raise EventError(f"attribute {unknown!r} is not in the schema{self._hint(unknown)}")

    def check_events(self, events: Iterable[object]) -> None:
        """The same of many events; the error has the row. What is no event is left to others."""
        for row, event in enumerate(events):
            unknown = self.find_unknown(event) if isinstance(event, Mapping) else None
            if unknown is not None:
                reason = f"attribute {unknown!r} in row {row} is not in the schema"
                raise EventError(reason + self._hint(unknown), row=row)

    def check_columns(self, names: Iterable[object]) -> None:
        """The same of the columns of a table."""
        for name in names:
            if not self._has(name):
                raise EventError(f"column {name!r} is not in the schema{self._hint(name)}")

    def check_some_column(self, names: Sequence[object]) -> None:
        """`EventError` if a table has columns, but no attribute."""
        if not names or any(map(self._has, names)):
            return
        shown = ", ".join(map(repr, names[:_SHOWN])) + ", …" * (len(names) > _SHOWN)
        hints = (self._hint(name) for name in names[:_SHOWN])
        hint = next(filter(None, hints), f"; attributes are {', '.join(map(repr, self._some()))}")
        raise EventError(f"none of the columns is an attribute of the schema: {shown}{hint}")

    def _has(self, name: object) -> bool:
        return name in self._names or name in self._parents

    def _some(self) -> list[str]:
        return sorted(self._names)[:_SHOWN]

    def _hint(self, name: object) -> str:
        return did_you_mean(name, self._names | self._parents)


class NameCheck:
    """What a matcher does about names in events that the schema lacks."""

    def __init__(self, schema: Schema, unknown: Unknown) -> None:
        if unknown not in get_args(Unknown):
            raise ValueError(f"unknown must be 'ignore', 'warn' or 'refuse', not {unknown!r}")
        self._is_open = ROOT in schema
        self.unknown: Unknown = "ignore" if self._is_open else unknown
        self._known = KnownNames(schema)

    def one(self, event: Mapping[str, object]) -> None:
        """Look at an event, unless unknown names are ignored."""
        if self.unknown != "ignore" and isinstance(event, Mapping):
            try:
                self._known.check_event(event)
            except EventError as error:
                if self.unknown == "refuse":
                    raise
                warnings.warn(str(error), stacklevel=3)  # where the event is matched

    def batch(self, events: Any, kept: Collection[str] = ()) -> Any:
        """Look at a batch of events; gives those to read, since some can be read only once.

        Columns that are `kept` may have any name.
        """
        if isinstance(events, (np.ndarray, str, bytes, Mapping)):
            return events
        table = as_table(events)
        if table is not None:
            if not self._is_open:
                self._known.check_some_column(table.names)
            events = table
        if self.unknown == "ignore":
            return events
        try:
            if table is not None:
                self._known.check_columns(name for name in table.names if name not in kept)
            elif isinstance(events, Iterable):
                events = read_events(list(events))
                self._known.check_events(events)
        except EventError as error:
            if self.unknown == "refuse":
                raise
            warnings.warn(str(error), stacklevel=3)
        return events
