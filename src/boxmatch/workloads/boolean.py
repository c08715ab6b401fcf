"""Interests and disinterests in yes-or-no properties, as in the RAPIDMatch paper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from boxmatch.arrays import BoolArray, Float64Array, Int64Array
from boxmatch.model.boxes import Boxes
from boxmatch.model.schema import Schema
from boxmatch.workloads import streams
from boxmatch.workloads.distributions import check_between, check_choice, zipf_cumulative

EventModel = Literal["light", "exponential"]


class Odds(NamedTuple):
    """For each property, how likely a subscription asks for 0, and for 1."""

    zero: Float64Array
    one: Float64Array


@dataclass(frozen=True, kw_only=True)
class BooleanWorkload:
    """Subscriptions that ask for 0 or 1 in some of `properties`, and events that have them all.

    A subscription asks for a property to be 0 with a probability around `zero`, to be 1 with one
    around `one`, independently. The probabilities of a property are drawn once, uniformly within
    ± `spread` of these (0.5: from half to one and a half times as much). A few subscriptions ask
    for nothing and match every event.

    Events of the `light` model have t ones with a weight of t ** -`alpha`, for t from 1 to
    `most_ones` or to as many as there are properties; all events with t ones are equally likely.
    In the `exponential` model a property is 1 with probability `chance`, independently.

    In the paper: `properties` is k, `most_ones` is c, `alpha` is α, `chance` is p. Any rows can be
    made alone, and rows beyond `subscriptions` exist too.
    """

    subscriptions: int = 100_000
    properties: int = 100
    zero: float = 0.05
    one: float = 0.05
    spread: float = 0.5
    event_model: EventModel = "light"
    most_ones: int = 100
    alpha: float = 2.0
    chance: float = 0.1
    seed: int = 1

    def __post_init__(self) -> None:
        check_choice("event_model", self.event_model, EventModel)
        check_between(self, 0, math.inf, "subscriptions")
        check_between(self, 1, math.inf, "most_ones")
        check_between(self, 1, 65_535, "properties")
        check_between(self, 0, 1, "zero", "one", "spread", "chance")
        if (self.zero + self.one) * (1 + self.spread) > 1:
            raise ValueError(
                f"zero ({self.zero}) and one ({self.one}) with a spread of {self.spread} "
                "make more than 1"
            )

    @property
    def names(self) -> list[str]:
        """Attribute names, in schema order."""
        return [f"p{i}" for i in range(self.properties)]

    @property
    def schema(self) -> Schema:
        """One bool attribute per property."""
        return Schema(dict.fromkeys(self.names, "bool"))

    @property
    def odds(self) -> Odds:
        """The probabilities that were drawn for the properties."""
        rng = streams.generator(self.seed, "odds", 0)
        shares = rng.uniform(1 - self.spread, 1 + self.spread, (2, self.properties))
        return Odds(self.zero * shares[0], self.one * shares[1])

    def boxes(self, start: int = 0, stop: int | None = None) -> Boxes:
        """Subscriptions `start:stop` in compressed form, with predicates [0, 0] and [1, 1]."""
        stop = self.subscriptions if stop is None else stop
        return Boxes.concatenate(
            [
                self._boxes(asks[rows], wanted[rows])
                for (asks, wanted), rows in streams.blocks(
                    self.seed, "subscriptions", start, stop, self._make_subscriptions
                )
            ]
        )

    def filters(self, start: int, stop: int) -> list[dict[str, bool]]:
        """Subscriptions `start:stop` as filters in dict form."""
        boxes = self.boxes(start, stop)
        names = np.array(self.names, object)[boxes.attribute].tolist()
        wanted = (boxes.low == 1).tolist()
        return [
            dict(zip(names[first:last], wanted[first:last], strict=True))
            for first, last in pairwise(boxes.start.tolist())
        ]

    def event_keys(self, start: int, stop: int) -> Int64Array:
        """Events `start:stop` as an n × d array of the keys 0 and 1."""
        return self._events(start, stop).astype(np.int64)

    def events(self, start: int, stop: int) -> Float64Array:
        """The same as numbers, which `Matcher.match_batch` takes."""
        return self._events(start, stop).astype(np.float64)

    def event_dicts(self, start: int, stop: int) -> list[dict[str, bool]]:
        """The same as dicts."""
        names = self.names
        return [dict(zip(names, row, strict=True)) for row in self._events(start, stop).tolist()]

    def _boxes(self, asks: BoolArray, wanted: BoolArray) -> Boxes:
        start = np.zeros(len(asks) + 1, np.int64)
        np.cumsum(np.count_nonzero(asks, axis=1), out=start[1:])
        value = wanted[asks].astype(np.int64)
        attribute = np.nonzero(asks)[1].astype(np.uint16)
        return Boxes(self.properties, start, attribute, value, value.copy())

    def _events(self, start: int, stop: int) -> BoolArray:
        make = self._make_light if self.event_model == "light" else self._make_exponential
        blocks = streams.blocks(self.seed, "events", start, stop, make)
        return np.concatenate([ones[rows] for ones, rows in blocks])

    # Column by column below: a block of many properties in floats would be large.

    def _make_subscriptions(
        self, rng: np.random.Generator, rows: int
    ) -> tuple[BoolArray, BoolArray]:
        """Which properties are asked for, and which of them to be 1."""
        asks, wanted = (np.empty((rows, self.properties), bool) for _ in range(2))
        for column, (zero, one) in enumerate(zip(*self.odds, strict=True)):
            draw = rng.random(rows)
            asks[:, column] = draw < zero + one
            wanted[:, column] = draw < one
        return asks, wanted

    def _make_light(self, rng: np.random.Generator, rows: int) -> BoolArray:
        """Selection sampling: a property is among those still needed, of those still to come."""
        most = min(self.most_ones, self.properties)
        needed = np.searchsorted(zipf_cumulative(most, self.alpha), rng.random(rows), "right") + 1
        ones = np.empty((rows, self.properties), bool)
        for column in range(self.properties):
            chosen = rng.random(rows) * (self.properties - column) < needed
            ones[:, column] = chosen
            needed -= chosen
        return ones

    def _make_exponential(self, rng: np.random.Generator, rows: int) -> BoolArray:
        ones = np.empty((rows, self.properties), bool)
        for column in range(self.properties):
            ones[:, column] = rng.random(rows) < self.chance
        return ones
