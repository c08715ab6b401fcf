"""What an experiment is: workloads along an axis, indexes to compare, and what the paper found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from boxmatch.model.boxes import Boxes
from boxmatch.workloads import RangeWorkload
from boxmatch_bench.reproduce.quantities import Quantity

if TYPE_CHECKING:
    from boxmatch_bench.reproduce.tables import Grid

Extra = Literal["updates", "errors", "marks", "profile", "adding", "moves"]
"""What is measured beside time, matches and memory: insertion and deletion; false positives and
what was skipped; marks and the time that they take; time by number of matches. Of operations on
spaces: adding publications; updates that move them far and a little."""

Method = Literal["matching", "operations", "durable", "spark"]
"""How an experiment is measured: events against an index; operations on spaces in memory; updates
of spaces on disk by many threads; operations as jobs on Spark."""

X = float | str
"""A place on the axis."""

FEWEST_SUBSCRIPTIONS = 500
"""What scaling down stops at: below, only the cost of a call is measured."""


class Workload(Protocol):
    """What is stored, by row number; a frozen dataclass, so that it can be replaced."""

    @property
    def subscriptions(self) -> int: ...
    @property
    def seed(self) -> int: ...


@runtime_checkable
class EventWorkload(Workload, Protocol):
    """Subscriptions and events."""

    def boxes(self, start: int = 0, stop: int | None = None) -> Boxes: ...
    def event_keys(self, start: int, stop: int) -> npt.NDArray[np.int64]: ...


AnyWorkload = TypeVar("AnyWorkload", bound=Workload)


def changed(workload: AnyWorkload, **changes: Any) -> AnyWorkload:
    """The workload with other parameters."""
    return replace(workload, **changes)  # type: ignore[type-var]  # a dataclass


def scaled(workload: AnyWorkload, scale: float) -> AnyWorkload:
    """The workload with `scale` times its subscriptions, but not unreasonably few.

    Publications, where a workload has them, shrink and grow alike.
    """
    fewer = {}
    for name in ("subscriptions", "publications"):
        number = getattr(workload, name, None)
        if number is not None:
            fewer[name] = max(round(scale * number), min(FEWEST_SUBSCRIPTIONS, number))
    return changed(workload, **fewer)


@dataclass(frozen=True)
class Axis:
    """What varies. `scaled` says that it is the number of subscriptions."""

    label: str
    log: bool = False
    scaled: bool = False

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True)
class Series:
    """An index with its parameters, under the name that the paper gives it.

    `skipping`, where given, is a tolerated rate of false matches: the attributes to skip are
    chosen for it and passed with every search. `exact` says that no false match is allowed.
    `changes` are parameters of the workload that the series has its own values for.
    """

    label: str
    index: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    skipping: float | None = None
    exact: bool = True
    changes: Mapping[str, Any] = field(default_factory=dict)


NUMPY = Series("NumPy", "numpy")
"""Brute force in NumPy, the yardstick: measured once in every setting."""

TILE = Series("tile", "tile")
"""Our own, in every experiment."""

TAMA = Series("TAMA", "tama", {"level": 13})


def rein(cells: int = 1_000) -> Series:
    """REIN with so many buckets in a list (b, and c in the HEM paper)."""
    return Series("REIN", "rein", {"cells": cells})


def ada_rein(rate: float, cells: int = 1_000) -> Series:
    """Ada-REIN at a tolerated rate of false positives."""
    return Series("Ada-REIN", "ada-rein", {"cells": cells, "rate": rate}, exact=False)


@dataclass(frozen=True, kw_only=True)
class Point:
    """A place on the axis: a workload, parameters for some indexes, a rate for inexact series."""

    x: X
    workload: Workload
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rate: float | None = None

    def series(self, series: Series) -> Series:
        """The series as it is measured here."""
        parameters = {**series.parameters, **self.parameters.get(series.index, {})}
        workload = self.workload
        if series.index == "ada-rein" and isinstance(workload, RangeWorkload):
            # An event may lack attributes: a predicate is satisfied by as many fewer events.
            parameters["selectivity"] = workload.width * workload.event_size / workload.attributes
        if self.rate is None or series.exact:
            return replace(series, parameters=parameters)
        if series.skipping is not None:
            return replace(series, parameters=parameters, skipping=self.rate)
        return replace(series, parameters={**parameters, "rate": self.rate})


def vary(workload: Workload, values: Iterable[Any], *parameters: str) -> tuple[Point, ...]:
    """A point for each value, which all these parameters of the workload have there."""
    return tuple(
        Point(x=value, workload=changed(workload, **dict.fromkeys(parameters, value)))
        for value in values
    )


@dataclass(frozen=True)
class Published:
    """A figure that somebody published, in the unit of our quantity."""

    quantity: Quantity
    series: str
    x: X
    value: float
    source: str = "paper"


class Cell(NamedTuple):
    """A number in the rows of an experiment; without `x` there is one at each place."""

    quantity: Quantity
    series: str
    x: X | None = None


@dataclass(frozen=True)
class Comparison:
    """A cell compared with another, averaged over the axis if they are not at one place."""

    cell: Cell
    other: Cell
    kind: Literal["times", "percent", "percent less", "percent more"] = "times"

    @property
    def unit(self) -> str:
        """As it is shown after the number."""
        return "×" if self.kind == "times" else "%"

    def measured(self, grid: Grid) -> float | None:
        """The number; None where one of them was not measured."""
        found = []
        for place in grid.xs if self.cell.x is None else [self.cell.x]:
            mine = grid.value(self.cell.quantity, self.cell.series, place)
            at = place if self.other.x is None else self.other.x
            theirs = grid.value(self.other.quantity, self.other.series, at)
            if mine is not None and theirs:
                found.append(mine / theirs)
        if not found:
            return None
        ratio = fmean(found)
        return {
            "times": ratio,
            "percent": 100 * ratio,
            "percent less": 100 * (1 - ratio),
            "percent more": 100 * (ratio - 1),
        }[self.kind]


def times(quantity: Quantity, series: str, other: str, at: X | None = None) -> Comparison:
    """How many times as large the quantity is for one series as for another."""
    return Comparison(Cell(quantity, series, at), Cell(quantity, other, at))


def percent_less(quantity: Quantity, series: str, other: str, at: X | None = None) -> Comparison:
    """By how many percent one series is below another."""
    return replace(times(quantity, series, other, at), kind="percent less")


def percent_more(quantity: Quantity, series: str, other: str, at: X | None = None) -> Comparison:
    """By how many percent one series is above another."""
    return replace(times(quantity, series, other, at), kind="percent more")


def change(quantity: Quantity, series: str, start: X, end: X) -> Comparison:
    """How many times as large the quantity is at `end` as at `start`."""
    return Comparison(Cell(quantity, series, end), Cell(quantity, series, start))


class Claim(NamedTuple):
    """A statement, the number in it if it has one, and how that number comes out of our rows."""

    text: str
    where: str
    published: float | None
    figure: Comparison


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One figure or table of a paper, as we run it."""

    name: str
    paper: str
    figure: str
    title: str
    x: Axis
    y: tuple[Quantity, ...]
    series: tuple[Series, ...]
    points: tuple[Point, ...]
    events: int
    """How many are matched; where operations are measured, how many of each kind, at most."""
    found: str
    tabled: tuple[Quantity, ...] = ()
    """Quantities that are put into tables, but not drawn."""
    extras: frozenset[Extra] = frozenset()
    published: tuple[Published, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: str = ""
    """What differs from the paper, and what was left out."""
    real_events: bool = False
    """Events come from a file where one is given and has enough columns."""
    method: Method = "matching"
    compared: str = "index"
    """What one of the series is called in tables and plots."""

    @property
    def measured(self) -> tuple[Series, ...]:
        """All that is measured at each point: the series, and the yardstick for what it can do."""
        return self.series if self.method in ("durable", "spark") else (*self.series, NUMPY)


class Paper(NamedTuple):
    """A paper, and what we redo of it."""

    title: str
    left_out: str
    experiments: tuple[Experiment, ...]
