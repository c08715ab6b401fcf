"""Range subscriptions over many integer attributes, as in the REIN and HEM papers."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Float64Array, Int64Array
from boxmatch.model.axis import ABSENT
from boxmatch.model.boxes import Boxes
from boxmatch.model.schema import Schema
from boxmatch.workloads import streams
from boxmatch.workloads.distributions import (
    AttributeDistribution,
    ValueDistribution,
    check_between,
    check_choice,
    distinct,
    integers,
)
from boxmatch.workloads.event_file import Pool, event_pool, read_events

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, kw_only=True)
class RangeWorkload:
    """Subscriptions of `predicates` ranges each, and events of `event_size` values.

    Values are integers from 1 to `domain`. A range covers `width` of the domain, or with a
    `width_spread` s a share drawn uniformly from `width` × (1 ± s), at most all of it. Its low end
    is drawn so that it fits, its high end follows. The attributes of a subscription are distinct,
    as are those of an event. Any rows can be made alone; row i is the same in every chunking, and
    rows beyond `subscriptions` exist too (they serve as updates).

    `values` is the distribution of low ends over the room that the range leaves them, and of event
    values over the domain unless `event_values` says otherwise. `value_alpha` is the skew of Pareto
    and Zipf, `value_deviation` the standard deviation of the normal distribution around the middle,
    `value_lowest` where Pareto starts, both as shares of that room or domain.

    With an `event_file` (see `boxmatch.workloads.event_file`) events are its rows, in order and
    from the start again when they run out. They have the first `attributes` columns, of which
    `event_size` are chosen for each event; of those, what the file lacks is absent. A range is
    centred on a value drawn from its column, and moved to fit the domain.

    In the papers: `attributes` is d (m in REIN), `predicates` is k, `width` is w. For uniform event
    values `width` is also what Ada-REIN calls w, the probability that a predicate is satisfied. The
    normal distribution of REIN's Table V (mean 0.5, variance 0.02) is `value_deviation` = 0.02 **
    0.5. Its Pareto distribution (mean 0.5, "scale" 2) cannot be taken literally, since a scale of 2
    is the lowest value and above the mean; we take 2 as the shape, `value_alpha`, and
    `value_lowest` = 1 / 3, with which the mean is 0.5 once values are cut off at 1.
    """

    subscriptions: int = 1_000_000
    attributes: int = 20
    predicates: int = 10
    event_size: int = 20
    width: float = 0.3
    width_spread: float = 0.0
    domain: int = 1_000_000
    values: ValueDistribution = "uniform"
    event_values: ValueDistribution | None = None
    value_alpha: float = 1.0
    value_deviation: float = 1 / 6
    value_lowest: float = 1e-3
    attribute_choice: AttributeDistribution = "uniform"
    attribute_alpha: float = 1.0
    event_file: str | os.PathLike[str] | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        check_choice("values", self.values, ValueDistribution)
        check_choice("event_values", self.event_values or self.values, ValueDistribution)
        check_choice("attribute_choice", self.attribute_choice, AttributeDistribution)
        check_between(self, 0, math.inf, "subscriptions", "value_deviation")
        check_between(self, 1, 65_535, "attributes")
        number = "the number of attributes"
        check_between(self, 0, self.attributes, "predicates", "event_size", limit=number)
        check_between(self, 0, 1, "width", "width_spread")
        check_between(self, 1, 2**53, "domain")
        if not 0.0 < self.value_lowest < 1.0:
            raise ValueError(f"value_lowest must be between 0 and 1, not {self.value_lowest}")
        if self.value_alpha <= 0 and "pareto" in (self.values, self.event_values):
            raise ValueError(f"value_alpha must be positive for pareto, but is {self.value_alpha}")
        if self.event_file is not None:
            self._check_file(self.event_file)

    def _check_file(self, path: str | os.PathLike[str]) -> None:
        object.__setattr__(self, "event_file", os.fspath(path))  # equal, hashed and saved as text
        if self.values != "uniform" or self.event_values is not None:
            raise ValueError("values come from the event file; their distribution cannot be chosen")
        columns = read_events(path).values.shape[1]
        if self.attributes > columns:
            raise ValueError(
                f"attributes must not exceed the {columns} columns of {path}, but is "
                f"{self.attributes}"
            )
        event_pool(path, self.attributes, self.domain)

    @classmethod
    def of_file(cls, path: str | os.PathLike[str], **parameters: Any) -> RangeWorkload:
        """The workload of an event file with as many attributes and values as it has columns.

        There are ten predicates, or one for each attribute if those are fewer. Any parameter can
        be given instead.
        """
        columns: int = read_events(path).values.shape[1]
        attributes: int = parameters.get("attributes", columns)
        sizes: dict[str, Any] = {
            "attributes": attributes,
            "event_size": attributes,
            "predicates": min(cls.predicates, attributes),
        }
        return cls(event_file=path, **sizes | parameters)

    @property
    def names(self) -> list[str]:
        """Attribute names, in schema order."""
        return [f"a{i}" for i in range(self.attributes)]

    @property
    def schema(self) -> Schema:
        """One int attribute per name."""
        return Schema(dict.fromkeys(self.names, "int"))

    @property
    def span(self) -> int:
        """Distance from the low to the high end of every range, before `width_spread`."""
        return min(round(self.width * self.domain), self.domain - 1)

    @property
    def coverage(self) -> float:
        """Expected share of the domain that a range holds: how likely a uniform value is in it."""
        if not self.width_spread:
            return (self.span + 1) / self.domain
        least, most = self.width * (1 - self.width_spread), self.width * (1 + self.width_spread)
        mean = self.width
        if most > 1:  # widths beyond the domain count as the domain
            mean = ((1 - least**2) / 2 + most - 1) / (most - least)
        return min(mean + 1 / self.domain, 1.0)

    @property
    def expected_matches(self) -> float:
        """Expected matches of an event, for uniform values and attribute choice."""
        possible = math.comb(self.event_size, self.predicates)
        hit = possible / math.comb(self.attributes, self.predicates)
        return self.subscriptions * hit * self.coverage**self.predicates

    def boxes(self, start: int = 0, stop: int | None = None) -> Boxes:
        """Subscriptions `start:stop` in compressed form; keys are the values themselves."""
        stop = self.subscriptions if stop is None else stop
        count, k = len(range(start, stop)), self.predicates
        attribute = np.empty((count, k), np.uint16)
        low = np.empty((count, k), np.int64)
        high = np.empty((count, k), np.int64)
        done = 0
        for (attributes, lows, spans), rows in streams.blocks(
            self.seed, "subscriptions", start, stop, self._make_subscriptions
        ):
            taken = slice(done, done + rows.stop - rows.start)
            attribute[taken], low[taken] = attributes[rows], lows[rows]
            np.add(lows[rows], spans[rows], out=high[taken])
            done = taken.stop
        return Boxes(
            self.attributes,
            np.arange(count + 1, dtype=np.int64) * k,
            attribute.reshape(-1),
            low.reshape(-1),
            high.reshape(-1),
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
        return intervals_of(self.names, self.boxes(start, stop))

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
        rows = [dict(zip(n, v, strict=True)) for n, v in zip(names, values.tolist(), strict=True)]
        if (values == ABSENT).any():
            return [{n: v for n, v in row.items() if v != ABSENT} for row in rows]
        return rows

    def _make_subscriptions(
        self, rng: np.random.Generator, rows: int
    ) -> tuple[npt.NDArray[np.uint16], Int64Array, Int64Array]:
        """Attributes, low ends, and how far the high ends are from them."""
        attributes = distinct(
            rng, rows, self.predicates, self.attributes, self.attribute_choice, self.attribute_alpha
        )
        shape = (rows, self.predicates)
        room: int | Int64Array = self.domain - self.span
        span = np.broadcast_to(np.int64(self.span), shape)
        if self.width_spread:
            share = self.width * rng.uniform(1 - self.width_spread, 1 + self.width_spread, shape)
            span = np.minimum(np.rint(share * self.domain).astype(np.int64), self.domain - 1)
            room = self.domain - span
        if self.event_file is None:
            low = self._draw(rng, room, shape, self.values)
        else:
            centre = self._pool(self.event_file).draw(rng, attributes)
            low = np.clip(centre - span // 2, 1, room)
        return attributes, low, span

    def _draw(
        self,
        rng: np.random.Generator,
        size: int | Int64Array,
        shape: tuple[int, ...],
        distribution: ValueDistribution,
    ) -> Int64Array:
        spread = {"deviation": self.value_deviation, "lowest": self.value_lowest}
        return integers(rng, shape, size, distribution, self.value_alpha, **spread)

    def _pool(self, path: str | os.PathLike[str]) -> Pool:
        return event_pool(path, self.attributes, self.domain)

    def _make_events(
        self, rng: np.random.Generator, rows: int
    ) -> tuple[npt.NDArray[np.uint16], Int64Array | None]:
        """Attributes, and their values unless these are in a file."""
        attributes = distinct(
            rng, rows, self.event_size, self.attributes, self.attribute_choice, self.attribute_alpha
        )
        if self.event_file is not None:
            return attributes, None
        kind = self.event_values or self.values
        return attributes, self._draw(rng, self.domain, (rows, self.event_size), kind)

    def _events(self, start: int, stop: int) -> tuple[npt.NDArray[np.uint16], Int64Array]:
        """Attributes and values of events `start:stop`; a file may lack a value: `ABSENT`."""
        parts = [
            (attributes[rows], values if values is None else values[rows])
            for (attributes, values), rows in streams.blocks(
                self.seed, "events", start, stop, self._make_events
            )
        ]
        attributes = np.concatenate([a for a, _ in parts])
        if self.event_file is None:
            return attributes, np.concatenate([v for _, v in parts if v is not None])
        recorded = self._pool(self.event_file).events
        rows = np.arange(start, stop) % len(recorded)
        return attributes, recorded[rows[:, None], attributes]

    def _scatter(self, start: int, stop: int, empty: Scalar) -> npt.NDArray[Scalar]:
        attributes, values = self._events(start, stop)
        dense = np.full((len(values), self.attributes), empty)
        filled = np.where(values == ABSENT, empty, values.astype(dense.dtype))
        np.put_along_axis(dense, attributes.astype(np.intp), filled, axis=1)
        return dense


def intervals_of(names: Sequence[str], boxes: Boxes) -> list[dict[str, tuple[int, int]]]:
    """For each box the attributes that it constrains, and between which values."""
    attributes = np.array(names, object)[boxes.attribute].tolist()
    ends = list(zip(boxes.low.tolist(), boxes.high.tolist(), strict=True))
    return [
        dict(zip(attributes[first:last], ends[first:last], strict=True))
        for first, last in pairwise(boxes.start.tolist())
    ]
