"""The axes of a matcher: those of its schema, and those of the expressions its filters compare.

Axes of expressions come and go with the subscriptions that use them. A position is given to
another axis only after no box names it any more; whoever searches boxes of an earlier moment has
the axes of that moment with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from boxmatch.arrays import BoolArray
from boxmatch.errors import FilterTooLargeError
from boxmatch.model.axis import ABSENT, FIRST
from boxmatch.model.expressions.functions import call
from boxmatch.model.expressions.nodes import Column
from boxmatch.model.filters.scope import DerivedAxis, type_of
from boxmatch.model.schema import MAX_ATTRIBUTES, Schema
from boxmatch.model.strings import StringAxis, string_axes

if TYPE_CHECKING:
    from boxmatch.model.expressions.finders import NeedleFinder, RegexFinder

MOST_EXPRESSIONS: Final = 1_024
"""Axes of expressions of one matcher: each of them is worked out for every event."""

_SHOWN: Final = 80
"""Characters of an expression in a message."""

Finder: TypeAlias = "NeedleFinder | RegexFinder"


class Axes(NamedTuple):
    """All axes at one moment, by position; those of expressions follow the schema's."""

    schema: Schema
    derived: tuple[DerivedAxis | None, ...]
    """None where a position is free."""
    strings: Mapping[int, StringAxis]
    """Of the axes that have labels for keys."""
    finders: Mapping[int, Finder]
    """Of the axes of needles and regular expressions: what finds their strings in texts."""

    @property
    def width(self) -> int:
        """Number of positions."""
        return len(self.schema) + len(self.derived)


class AxisTable:
    """The axes of a matcher while they change. One writer at a time."""

    def __init__(
        self,
        schema: Schema,
        derived: Iterable[DerivedAxis | None] = (),
        strings: Mapping[int, StringAxis] | None = None,
    ) -> None:
        self.schema = schema
        self._derived = list(derived)
        first = len(schema)
        self.positions = {
            axis: first + place for place, axis in enumerate(self._derived) if axis is not None
        }
        self.strings = dict(string_axes(schema)) if strings is None else dict(strings)
        self._finders = {
            position: _finder(axis) for axis, position in self.positions.items() if axis.has_finder
        }
        self._latest: Axes | None = None

    @property
    def width(self) -> int:
        return len(self.schema) + len(self._derived)

    @property
    def never(self) -> tuple[tuple[int, int, int]]:
        """The box of a subscription that no event can match: it still has an id and a place.

        Its upper end is right below its lower one, the only kind of empty interval that an index
        must support.
        """
        # Not every index takes lists.
        names = enumerate(self.schema)
        place = next((i for i, attribute in names if not attribute.repeated), None)
        if place is None:
            first = self.schema.attributes[0]
            size = call("cardinality", Column(first.name, type_of(first)))
            place = self.position(DerivedAxis("value", size))
        return ((place, FIRST, ABSENT),)

    def latest(self) -> Axes:
        """The axes of this moment; the same object until they change."""
        if self._latest is None:
            self._latest = Axes(
                self.schema, tuple(self._derived), dict(self.strings), dict(self._finders)
            )
        return self._latest

    def check_room(self, axes: Iterable[DerivedAxis]) -> None:
        """`FilterTooLargeError` if not all of these could be added."""
        new = [axis for axis in dict.fromkeys(axes) if axis not in self.positions]
        most = min(MOST_EXPRESSIONS, MAX_ATTRIBUTES - len(self.schema))
        if len(self.positions) + len(new) > most:
            text = new[-1].text
            shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
            raise FilterTooLargeError(
                f"subscriptions can compare {most:,} different expressions, and {shown} would be "
                "one more: each of them is worked out for every event"
            )

    def position(self, axis: DerivedAxis) -> int:
        """The position of an expression's axis, which is added if it is new."""
        found = self.positions.get(axis)
        if found is not None:
            return found
        self.check_room([axis])
        place = self._derived.index(None) if None in self._derived else len(self._derived)
        found = len(self.schema) + place
        self._derived[place : place + 1] = [axis]
        self.positions[axis] = found
        if axis.attribute.labelled:
            self.strings[found] = StringAxis()
        if axis.has_finder:
            self._finders[found] = _finder(axis)
        self._latest = None
        return found

    def forget_unused(self, used: BoolArray) -> None:
        """Free the positions that are not marked."""
        for axis, position in list(self.positions.items()):
            if position >= len(used) or not used[position]:
                del self.positions[axis]
                self._derived[position - len(self.schema)] = None
                self.strings.pop(position, None)
                self._finders.pop(position, None)
                self._latest = None


def _finder(axis: DerivedAxis) -> Finder:
    from boxmatch.model.expressions.finders import NeedleFinder, RegexFinder

    return NeedleFinder() if axis.kind == "needles" else RegexFinder()
