"""What a reader holds: an immutable view of all parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from boxmatch.adaptive.skipping import choose_skipped
from boxmatch.engine.parts import BoolArray, Part, Segment
from boxmatch.model.boxes import Int64Array
from boxmatch.model.events import EventEncoder
from boxmatch.model.strings import StringAxis


@dataclass(frozen=True)
class Snapshot:
    """A matcher at one moment.

    `encoder` reads the string axes, which may know more strings than the parts use: labels that
    are there never move (a matcher that must move them makes new axes and a new encoder).
    """

    parts: tuple[Part, ...]
    axes: Mapping[int, StringAxis]
    encoder: EventEncoder
    size: int
    _skipped: dict[float, BoolArray] = field(default_factory=dict)

    def frequency(self) -> Int64Array:
        """How many boxes constrain each attribute."""
        total = np.zeros(len(self.encoder.schema), np.int64)
        for part in self.parts:
            total += part.store.frequency
        return total

    def skipped(self, rate: float) -> BoolArray | None:
        """The attributes whose predicates may be left out at this rate of false matches."""
        if not 0 <= rate < float("inf"):
            raise ValueError(f"max_false_positive_rate must not be negative, but is {rate!r}")
        if rate == 0:
            return None
        if rate not in self._skipped:
            segments = [part.store for part in self.parts if isinstance(part.store, Segment)]
            matchability = min((segment.matchability for segment in segments), default=0.0)
            boxes = sum(part.rows for part in self.parts)
            self._skipped[rate] = choose_skipped(self.frequency(), boxes, matchability, rate)
        return self._skipped[rate]
