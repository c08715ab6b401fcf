"""What a filter compiles to: a union of boxes."""

from __future__ import annotations

from typing import NamedTuple

Bound = int | tuple[str, int]
"""One end of a closed interval.

A key for every type but string. For a string attribute `(text, offset)`: the place of `text`
itself (0), just above it (+1, as the low end of `> text`) or just below it (-1, as the high end
of `< text`); its unbounded ends are the keys `ABSENT`, `FIRST` and `LAST`.
"""

Box = tuple[tuple[int, Bound, Bound], ...]
"""Predicates `(attribute position, low, high)`, ascending by attribute, each attribute once.

An attribute that may have any value, or none, has no predicate: the empty box holds every event.
"""


class CompiledFilter(NamedTuple):
    """The union of boxes that a filter means, sorted, with no box inside another one."""

    boxes: tuple[Box, ...]
    disjoint: bool
    """No two boxes overlap, so an event lies in one box at most."""

    @property
    def never(self) -> bool:
        """No event can match."""
        return not self.boxes


NEVER = CompiledFilter((), True)
