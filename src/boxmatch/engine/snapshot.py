"""What a reader holds: an immutable view of all parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from boxmatch.engine.parts import BoolArray, Part
from boxmatch.model.events import EventEncoder
from boxmatch.model.strings import StringAxis


class Snapshot(NamedTuple):
    """A matcher at one moment.

    `encoder` reads the string axes, which may know more strings than the parts use: labels that
    are there never move (a matcher that must move them makes new axes and a new encoder).
    """

    parts: tuple[Part, ...]
    axes: Mapping[int, StringAxis]
    encoder: EventEncoder
    size: int

    def constrained(self, dimensions: int) -> BoolArray:
        """The attributes that some box constrains."""
        seen = np.zeros(dimensions, bool)
        for part in self.parts:
            seen |= part.store.constrained
        return seen
