"""Publications that stay and change, as in the experiments of the subject-spaces paper."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int64Array
from boxmatch.model.boxes import Boxes
from boxmatch.model.schema import Schema
from boxmatch.workloads import streams
from boxmatch.workloads.distributions import check_between, check_choice, distinct
from boxmatch.workloads.ranges import intervals_of

UpdateKind = Literal["random", "incremental"]


@dataclass(frozen=True, kw_only=True)
class RegionWorkload:
    """Publications and subscriptions of one region each, and updates of the publications.

    A region constrains distinct dimensions, chosen uniformly. Values are integers from 0 to
    `values` - 1. A publication's constraint is a single value. A subscription's is an interval
    between two values drawn alike, since the paper does not say how wide it is; with `width` it
    holds that share of all values. Any rows can be made alone, and rows beyond `publications` and
    `subscriptions` exist too.

    The paper inserts publications of 20 constraints, the default here, and updates ones of 25.
    """

    publications: int = 10_000
    subscriptions: int = 10_000
    dimensions: int = 50
    publication_constraints: int = 20
    subscription_constraints: int = 2
    values: int = 100
    width: float | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        check_between(self, 0, math.inf, "publications", "subscriptions")
        check_between(self, 1, 65_535, "dimensions")
        constraints = ("publication_constraints", "subscription_constraints")
        check_between(self, 0, self.dimensions, *constraints, limit="the number of dimensions")
        check_between(self, 2, math.inf, "values")
        if self.width is not None:
            check_between(self, 0, 1, "width")

    @cached_property
    def names(self) -> list[str]:
        """The dimensions: `d0`, `d1` and so on."""
        return [f"d{number}" for number in range(self.dimensions)]

    @cached_property
    def schema(self) -> Schema:
        """All dimensions are integers."""
        return Schema(dict.fromkeys(self.names, "int"))

    def publication_boxes(self, start: int = 0, stop: int | None = None) -> Boxes:
        """The regions of publications `start:stop` before any update."""
        stop = self.publications if stop is None else stop
        return self._regions("publications", start, stop, self.publication_constraints, ends=1)

    def subscription_boxes(self, start: int = 0, stop: int | None = None) -> Boxes:
        """The regions of subscriptions `start:stop`."""
        stop = self.subscriptions if stop is None else stop
        return self._regions("subscriptions", start, stop, self.subscription_constraints, ends=2)

    def filters(self, start: int, stop: int) -> list[dict[str, tuple[int, int]]]:
        """The same regions as dicts, which are filters too."""
        return intervals_of(self.names, self.subscription_boxes(start, stop))

    def updates(
        self,
        start: int = 0,
        stop: int | None = None,
        *,
        kind: UpdateKind = "random",
        first: int = 0,
        count: int = 1,
    ) -> Int64Array:
        """Values of publications `start:stop` after each of their updates `first … first + count`.

        Element [i, p] has the new values of publication `start` + p after its update `first` + i,
        in the order of the constraints in `publication_boxes`; updates change all values, never
        which dimensions are constrained. A `random` update draws them anew. An `incremental` one
        moves each one up or down, away from the end of the domain if it is there; since it goes on
        from the update before, the time grows with `first`.
        """
        stop = self.publications if stop is None else stop
        each = list(self.each_update(start, stop, kind=kind, first=first, count=count))
        shape = (count, stop - start, self.publication_constraints)
        return np.array(each, np.int64).reshape(shape)

    def each_update(
        self, start: int, stop: int, *, kind: UpdateKind = "random", first: int = 0, count: int = 1
    ) -> Iterator[Int64Array]:
        """The same one after the other, so that they need not be in memory together."""
        check_choice("kind", kind, UpdateKind)
        if first < 0 or count < 0:
            raise ValueError(f"updates {first}:{first + count} are not a range")
        if kind == "random":
            for number in range(first, first + count):
                yield self._draw(f"update {number}", start, stop, self.values)
            return
        initial = self.publication_boxes(start, stop).low
        position = initial.reshape(stop - start, self.publication_constraints)
        last = self.values - 1
        for number in range(first + count):
            position = position + 2 * self._draw(f"step {number}", start, stop, 2) - 1
            if number >= first:
                # A walk without ends, folded into the domain, is one that turns back at its ends.
                yield last - np.abs(position % (2 * last) - last)

    def _regions(self, purpose: str, start: int, stop: int, constraints: int, ends: int) -> Boxes:
        def make(rng: np.random.Generator, rows: int) -> dict[str, npt.NDArray[np.integer]]:
            dimension = distinct(rng, rows, constraints, self.dimensions, "uniform", 1.0)
            if ends == 2 and self.width is not None:
                span = max(1, round(self.width * self.values))
                low = rng.integers(0, self.values - span + 1, (rows, constraints))
                return {"dimension": dimension, "low": low, "high": low + span - 1}
            drawn = np.sort(rng.integers(0, self.values, (rows, constraints, ends)), axis=2)
            return {"dimension": dimension, "low": drawn[..., 0], "high": drawn[..., -1]}

        made = streams.columns(self.seed, purpose, start, stop, make)
        return Boxes(
            self.dimensions,
            np.arange(stop - start + 1, dtype=np.int64) * constraints,
            made["dimension"].astype(np.uint16).reshape(-1),
            made["low"].astype(np.int64).reshape(-1),
            made["high"].astype(np.int64).reshape(-1),
        )

    def _draw(self, purpose: str, start: int, stop: int, below: int) -> Int64Array:
        """A number from 0 for each constraint of publications `start:stop`."""
        shape = (streams.BLOCK, self.publication_constraints)
        blocks = streams.blocks(
            self.seed, purpose, start, stop, lambda rng, _: rng.integers(0, below, shape)
        )
        return np.concatenate([drawn[rows] for drawn, rows in blocks])
