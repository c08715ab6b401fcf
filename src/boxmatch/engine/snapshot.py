"""What a reader holds: an immutable view of all stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import compress

import numpy as np

from boxmatch.adaptive.excess import Excess, rarest_first
from boxmatch.adaptive.selectivity import estimate_by_attribute, plausible
from boxmatch.adaptive.skipping import SkipPlan, is_rate
from boxmatch.arrays import BoolArray, Float64Array, Int64Array
from boxmatch.engine.box_stores import IndexedSegment, Row, StoreView
from boxmatch.errors import IndexConfigError
from boxmatch.model.box_kernels import count_attributes
from boxmatch.model.boxes import Boxes
from boxmatch.model.events import EventEncoder
from boxmatch.model.filters import Box, render
from boxmatch.model.strings import StringAxis


@dataclass(frozen=True)
class Snapshot:
    """A matcher at one moment.

    `encoder` reads the string axes, which may know more strings than the boxes use: labels that
    are there never move (a matcher that must move them makes new axes and a new encoder).
    """

    views: tuple[StoreView, ...]
    axes: Mapping[int, StringAxis]
    encoder: EventEncoder
    size: int

    @cached_property
    def _frequency(self) -> Int64Array:
        """How many boxes constrain each attribute."""
        total = np.zeros(len(self.encoder.schema), np.int64)
        for view in self.views:
            total += view.store.frequency
        return total

    def skipped(self, rate: float) -> BoolArray | None:
        """Marks the attributes whose predicates may be left out at this rate of false matches.

        None if there are none, so that the answer is exact: also where an index cannot do without
        its predicates, and where all is so new that no index has it.
        """
        if not is_rate(rate):
            raise IndexConfigError(
                f"max_false_positive_rate must be from 0 up to, but not, 1, not {rate!r}"
            )
        if rate == 0 or self._plan is None:
            return None
        marks = self._plan.skipped(rate)
        return marks if marks[self.used].any() else None

    def named(self, names: Collection[str]) -> BoolArray | None:
        """Marks the attributes of these names; None if none of them is used, or can be skipped."""
        position = {name: i for i, name in enumerate(self.encoder.schema.names)}
        marks = np.zeros(len(position), bool)
        for name in names:
            if name not in position:
                raise IndexConfigError(f"skipped_attributes: there is no attribute {name!r}")
            marks[position[name]] = True
        segments = [view.store for view in self.views if isinstance(view.store, IndexedSegment)]
        able = all(one.index.capabilities.approximate for one in segments)
        return marks if able and marks[self.used].any() else None

    def estimate_selectivity(self) -> Float64Array:
        """The share of events that satisfy a predicate, in each plausible case, by attribute."""
        parts = [view.store.boxes for view in self.views]
        most = max(parts, key=lambda boxes: boxes.count, default=Boxes.empty(len(self.used)))
        return plausible(estimate_by_attribute(most))

    def count_excess(
        self, selectivity: Float64Array, kept: BoolArray | None
    ) -> tuple[Int64Array, Excess]:
        """See `Matcher.count_excess`."""
        frequency = np.zeros(len(self.used), np.int64)
        parts = []
        for view in self.views:
            live = view.live_positions()
            if kept is not None:
                live = live[kept[view.store.ids[live].astype(np.int64)]]
            boxes, owners = view.store.boxes.take(live), view.store.owners
            frequency += count_attributes(boxes.attribute, boxes.dimensions)
            parts.append((boxes, None if owners is None else owners[live]))
        order = rarest_first(frequency)
        total = Excess(np.zeros(len(selectivity)), np.zeros(selectivity.shape))
        for boxes, owners in parts:
            total += Excess.of(boxes, selectivity, order, owners)
        return frequency, total

    def names(self, skipped: BoolArray | None) -> tuple[str, ...]:
        """The attributes on which predicates are left out."""
        if skipped is None:
            return ()
        return tuple(compress(self.encoder.schema.names, skipped & self.used))

    def render(self, *boxes: Row) -> str:
        """Boxes as the text of a filter."""
        return render(self.encoder.schema, [self._symbolic(box) for box in boxes])

    def _symbolic(self, box: Row) -> Box:
        """A box with strings in the place of their labels."""
        axes = self.axes
        return tuple(
            (a, axes[a].bound(low), axes[a].bound(high)) if a in axes else (a, low, high)
            for a, low, high in box
        )

    @cached_property
    def used(self) -> BoolArray:
        """Marks the attributes that boxes constrain."""
        return self._frequency > 0

    @cached_property
    def _plan(self) -> SkipPlan | None:
        segments = [view.store for view in self.views if isinstance(view.store, IndexedSegment)]
        if not segments or not all(one.index.capabilities.approximate for one in segments):
            return None
        # Too little is known of the newest boxes: most boxes speak for them.
        selectivity = max(segments, key=lambda segment: segment.rows).selectivity
        order = rarest_first(self._frequency)
        total = Excess(np.zeros(len(selectivity)), np.zeros(selectivity.shape))
        for view in self.views:
            store = view.store
            if isinstance(store, IndexedSegment):
                total += store.excess.without(view.removed_positions())
            else:
                live = view.live_positions()
                owners = None if store.owners is None else store.owners[live]
                total += Excess.of(store.boxes.take(live), selectivity, order, owners)
        return SkipPlan.of_excess(self._frequency, total)
