"""What a reader holds: an immutable view of all stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np

from boxmatch.adaptive.excess import Excess, rarest_first
from boxmatch.adaptive.selectivity import estimate_by_attribute, plausible
from boxmatch.adaptive.skipping import SkipPlan, is_rate
from boxmatch.arrays import BoolArray, Float64Array, Int64Array
from boxmatch.engine.box_stores import IndexedSegment, Row, StoreView
from boxmatch.engine.residuals import Residual
from boxmatch.engine.single import SingleSearch
from boxmatch.errors import IndexConfigError
from boxmatch.model.axis_table import Axes
from boxmatch.model.box_kernels import count_attributes
from boxmatch.model.boxes import Boxes
from boxmatch.model.document_reader import DocumentReader
from boxmatch.model.expressions.nodes import Node
from boxmatch.model.filters import Box, render
from boxmatch.model.point_encoder import PointBatch, PointEncoder


@dataclass(frozen=True)
class Snapshot:
    """A matcher at one moment.

    `encoder` reads the string axes, which may know more strings than the boxes use: labels that
    are there never move (a matcher that must move them makes new axes and a new encoder).
    """

    views: tuple[StoreView, ...]
    axes: Axes
    encoder: PointEncoder
    size: int

    @cached_property
    def is_plain(self) -> bool:
        """Whether keys of the schema's attributes are all that matching needs of an event."""
        return self.encoder.is_plain and all(view.residuals is None for view in self.views)

    @cached_property
    def single(self) -> SingleSearch:
        """What finds the subscriptions that want one event."""
        reader = None if self.is_plain else self.reader
        return SingleSearch(self.views, self.encoder, reader, self.used)

    @cached_property
    def reader(self) -> DocumentReader:
        """What reads documents for these subscriptions."""
        return self.encoder.reader(self.used, self.tests)

    @property
    def tests(self) -> list[Node]:
        """What is evaluated for events in boxes, of all subscriptions."""
        residuals = [view.residuals for view in self.views if view.residuals is not None]
        return [node for one in residuals for each in one.distinct for node in each.nodes]

    def batch(self, events: Any, *, lazy: bool = False) -> PointBatch:
        """Many events, with what is needed of them; see `PointEncoder.batch`."""
        return self.encoder.batch(events, self.used, self.reader, lazy=lazy)

    def takes_floats(self, events: Any, skipped: BoolArray | None) -> bool:
        """Whether some store could do with an array of floats as it is."""
        return (
            isinstance(events, np.ndarray)
            and skipped is None
            and any(view.takes_floats(len(events)) for view in self.views)
        )

    @cached_property
    def read(self) -> frozenset[str]:
        """The attributes whose values expressions need."""
        first = len(self.axes.schema)
        names: set[str] = set()
        for position, axis in enumerate(self.axes.derived, first):
            if axis is not None and self.used[position]:
                names |= axis.columns
        for view in self.views:
            if view.residuals is not None:
                names.update(*(one.columns for one in view.residuals.distinct))
        return frozenset(names)

    def columns_at(self, position: int) -> frozenset[str]:
        """The attributes that the axis at a position reads."""
        first = len(self.axes.schema)
        if position < first:
            return frozenset((self.axes.schema.names[position],))
        axis = self.axes.derived[position - first]
        return frozenset() if axis is None else axis.columns

    @cached_property
    def _frequency(self) -> Int64Array:
        """How many boxes constrain each axis."""
        total = np.zeros(self.axes.width, np.int64)
        for view in self.views:
            frequency = view.store.frequency[: len(total)]  # a tail may have more axes by now
            total[: len(frequency)] += frequency
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
        marks = self._only_attributes(self._plan.skipped(rate))
        return marks if marks[self.used].any() else None

    def _only_attributes(self, marks: BoolArray) -> BoolArray:
        """The marks without those of expressions and lists, whose predicates are always checked."""
        marks = marks.copy()
        marks[len(self.axes.schema) :] = False
        for position, attribute in enumerate(self.axes.schema):
            if attribute.repeated:
                marks[position] = False
        return marks

    def named(self, names: Collection[str]) -> BoolArray | None:
        """Marks the attributes of these names; None if none of them is used, or can be skipped."""
        position = {name: i for i, name in enumerate(self.encoder.schema.names)}
        marks = np.zeros(self.axes.width, bool)
        for name in names:
            if name not in position:
                raise IndexConfigError(f"skipped_attributes: there is no attribute {name!r}")
            marks[position[name]] = True
        segments = [view.store for view in self.views if isinstance(view.store, IndexedSegment)]
        able = all(one.index.capabilities.approximate for one in segments)
        marks = self._only_attributes(marks)
        return marks if able and marks[self.used].any() else None

    def estimate_selectivity(self) -> Float64Array:
        """The share of events that satisfy a predicate, in each plausible case, by attribute."""
        parts = [view.store.boxes for view in self.views]
        most = max(parts, key=lambda boxes: boxes.count, default=Boxes.empty(0))
        estimate = estimate_by_attribute(self._whole(most))
        return plausible(estimate[: len(self.axes.schema)])

    def _whole(self, boxes: Boxes) -> Boxes:
        """The boxes, which may know of fewer axes, over all of them."""
        return boxes._replace(dimensions=self.axes.width)

    def count_excess(
        self, selectivity: Float64Array, kept: BoolArray | None
    ) -> tuple[Int64Array, Excess]:
        """See `Matcher.count_excess`: predicates of the schema's attributes alone."""
        width = len(self.axes.schema)
        frequency = np.zeros(width, np.int64)
        parts = []
        for view in self.views:
            live = view.live_positions()
            if kept is not None:
                live = live[kept[view.store.ids[live].astype(np.int64)]]
            boxes, owners = view.store.boxes.take(live).within(width), view.store.owners
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

    def render(self, *boxes: Row, residual: Residual | None = None) -> str:
        """Boxes, and what else must be true, as the text of a filter."""
        axes = self.axes
        first = len(axes.schema)
        used = sorted({position for box in boxes for position, _, _ in box if position >= first})
        moved = {position: first + place for place, position in enumerate(used)}
        derived = [axis for p in used if (axis := axes.derived[p - first]) is not None]
        tests = () if residual is None else residual.nodes
        symbolic = [self._symbolic(box, moved) for box in boxes]
        return render(axes.schema, symbolic, derived, tests)

    def _symbolic(self, box: Row, moved: Mapping[int, int]) -> Box:
        """A box with strings in the place of their labels, and some axes elsewhere."""
        strings = self.axes.strings
        return tuple(
            (moved.get(a, a), strings[a].bound(low), strings[a].bound(high))
            if a in strings
            else (moved.get(a, a), low, high)
            for a, low, high in box
        )

    @cached_property
    def used(self) -> BoolArray:
        """Marks the axes that boxes constrain."""
        return self._frequency > 0

    @cached_property
    def _plan(self) -> SkipPlan | None:
        segments = [view.store for view in self.views if isinstance(view.store, IndexedSegment)]
        if not segments or not all(one.index.capabilities.approximate for one in segments):
            return None
        # Too little is known of the newest boxes: most boxes speak for them.
        width = self.axes.width
        selectivity = max(segments, key=lambda segment: segment.rows).selectivity
        selectivity = _padded(selectivity, width)
        order = rarest_first(self._frequency)
        total = Excess(np.zeros(len(selectivity)), np.zeros(selectivity.shape))
        for view in self.views:
            store = view.store
            if isinstance(store, IndexedSegment):
                excess = store.excess.without(view.removed_positions())
                total += Excess(excess.true, _padded(excess.added, width))
            else:
                live = view.live_positions()
                owners = None if store.owners is None else store.owners[live]
                boxes = self._whole(store.boxes.take(live))
                total += Excess.of(boxes, selectivity, order, owners)
        return SkipPlan.of_excess(self._frequency, total)


def _padded(values: Float64Array, width: int) -> Float64Array:
    """Rows by axis, with zeros for the axes that there are more of now."""
    return np.pad(values, ((0, 0), (0, width - values.shape[1])))
