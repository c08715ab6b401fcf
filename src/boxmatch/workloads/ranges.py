"""Range subscriptions over many integer attributes, as in the REIN and HEM papers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from boxmatch.model.axis import ABSENT
from boxmatch.model.boxes import Boxes
from boxmatch.workloads import streams
from boxmatch.workloads.distributions import (
    AttributeDistribution,
    ValueDistribution,
    check_choice,
    distinct,
    integers,
)

if TYPE_CHECKING:
    from boxmatch.model.schema import Schema

Scalar = TypeVar("Scalar", bound=np.generic)

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class RangeWorkload:
    """Subscriptions of `predicates` ranges each, and events of `event_size` values.

    Values are integers from 1 to `domain`. A range covers `width` of the domain: its low end is
    drawn so that it fits, its high end follows. The attributes of a subscription are distinct, as
    are those of an event. Any rows can be made alone; row i is the same in every chunking, and
    rows beyond `subscriptions` exist too (they serve as updates).

    In the papers: `attributes` is d, `predicates` is k, `width` is w.
    """

    subscriptions: int = 1_000_000
    attributes: int = 20
    predicates: int = 10
    event_size: int = 20
    width: float = 0.3
    domain: int = 1_000_000
    values: ValueDistribution = "uniform"
    value_alpha: float = 1.0
    attribute_choice: AttributeDistribution = "uniform"
    attribute_alpha: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        check_choice("values", self.values, ValueDistribution)
        check_choice("attribute_choice", self.attribute_choice, AttributeDistribution)
        if self.subscriptions < 0:
            raise ValueError(f"subscriptions must not be negative, but is {self.subscriptions}")
        if not 1 <= self.attributes <= 65_535:
            raise ValueError(f"attributes must be from 1 to 65,535, not {self.attributes}")
        for name in ("predicates", "event_size"):
            if not 0 <= getattr(self, name) <= self.attributes:
                raise ValueError(
                    f"{name} must be from 0 to the number of attributes ({self.attributes}), "
                    f"not {getattr(self, name)}"
                )
        if not 0.0 <= self.width <= 1.0:
            raise ValueError(f"width must be from 0 to 1, not {self.width}")
        if not 1 <= self.domain <= 2**53:
            raise ValueError(f"domain must be from 1 to 2**53, not {self.domain}")

    @property
    def names(self) -> list[str]:
        """Attribute names, in schema order."""
        return [f"a{i}" for i in range(self.attributes)]

    @property
    def schema(self) -> Schema:
        """One int attribute per name."""
        from boxmatch.model.schema import Schema

        return Schema(dict.fromkeys(self.names, "int"))

    @property
    def span(self) -> int:
        """Distance from the low to the high end of every range."""
        return min(round(self.width * self.domain), self.domain - 1)

    @property
    def expected_matches(self) -> float:
        """Expected matches of an event, for uniform values and attribute choice."""
        possible = math.comb(self.event_size, self.predicates)
        hit = possible / math.comb(self.attributes, self.predicates)
        return self.subscriptions * hit * ((self.span + 1) / self.domain) ** self.predicates

    def boxes(self, start: int = 0, stop: int | None = None) -> Boxes:
        """Subscriptions `start:stop` in compressed form; keys are the values themselves."""
        stop = self.subscriptions if stop is None else stop
        count, k = len(range(start, stop)), self.predicates
        attribute = np.empty((count, k), np.uint16)
        low = np.empty((count, k), np.int64)
        done = 0
        for (attributes, lows), rows in streams.blocks(
            self.seed, "subscriptions", start, stop, self._make_subscriptions
        ):
            taken = slice(done, done + rows.stop - rows.start)
            attribute[taken], low[taken] = attributes[rows], lows[rows]
            done = taken.stop
        return Boxes(
            self.attributes,
            np.arange(count + 1, dtype=np.int64) * k,
            attribute.reshape(-1),
            low.reshape(-1),
            low.reshape(-1) + self.span,
        )

    def bounds(
        self, start: int = 0, stop: int | None = None
    ) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]:
        """Subscriptions `start:stop` as n × d arrays of low and high ends, NaN for no predicate.

        Float32 where that is exact, since a million rows of twenty attributes are large.
        """
        boxes = self.boxes(start, stop)
        kind = np.float32 if self.domain <= 2**24 else np.float64
        rows = np.repeat(np.arange(boxes.count), self.predicates)
        lows = np.full((boxes.count, self.attributes), np.nan, kind)
        highs = lows.copy()
        lows[rows, boxes.attribute] = boxes.low
        highs[rows, boxes.attribute] = boxes.high
        return lows, highs

    def filters(self, start: int, stop: int) -> list[dict[str, tuple[int, int]]]:
        """Subscriptions `start:stop` as filters in dict form."""
        boxes = self.boxes(start, stop)
        names = np.array(self.names, object)[boxes.attribute].tolist()
        ends = list(zip(boxes.low.tolist(), boxes.high.tolist(), strict=True))
        return [
            dict(zip(names[first:last], ends[first:last], strict=True))
            for first, last in pairwise(boxes.start.tolist())
        ]

    def events(self, start: int, stop: int) -> Float64Array:
        """Events `start:stop` as an n × d array of values, NaN where the event has none."""
        return self._scatter(start, stop, np.float64(np.nan))

    def event_keys(self, start: int, stop: int) -> Int64Array:
        """The same as keys, `ABSENT` where the event has no value."""
        return self._scatter(start, stop, np.int64(ABSENT))

    def event_dicts(self, start: int, stop: int) -> list[dict[str, int]]:
        """The same as dicts."""
        attributes, values = self._events(start, stop)
        names = np.array(self.names, object)[attributes].tolist()
        return [dict(zip(n, v, strict=True)) for n, v in zip(names, values.tolist(), strict=True)]

    def _make_subscriptions(
        self, rng: np.random.Generator, rows: int
    ) -> tuple[npt.NDArray[np.uint16], Int64Array]:
        attributes = distinct(
            rng, rows, self.predicates, self.attributes, self.attribute_choice, self.attribute_alpha
        )
        shape = (rows, self.predicates)
        return attributes, integers(
            rng, shape, self.domain - self.span, self.values, self.value_alpha
        )

    def _make_events(
        self, rng: np.random.Generator, rows: int
    ) -> tuple[npt.NDArray[np.uint16], Int64Array]:
        attributes = distinct(
            rng, rows, self.event_size, self.attributes, self.attribute_choice, self.attribute_alpha
        )
        shape = (rows, self.event_size)
        return attributes, integers(rng, shape, self.domain, self.values, self.value_alpha)

    def _events(self, start: int, stop: int) -> tuple[npt.NDArray[np.uint16], Int64Array]:
        parts = [
            (attributes[rows], values[rows])
            for (attributes, values), rows in streams.blocks(
                self.seed, "events", start, stop, self._make_events
            )
        ]
        return np.concatenate([a for a, _ in parts]), np.concatenate([v for _, v in parts])

    def _scatter(self, start: int, stop: int, empty: Scalar) -> npt.NDArray[Scalar]:
        attributes, values = self._events(start, stop)
        dense = np.full((len(values), self.attributes), empty)
        np.put_along_axis(dense, attributes.astype(np.intp), values.astype(dense.dtype), axis=1)
        return dense
