"""What an experiment is: workloads along an axis, indexes to compare, and what the paper says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from boxmatch.model.boxes import Boxes
from boxmatch.workloads import RangeWorkload
from boxmatch_bench.reproduce.claims import Claim
from boxmatch_bench.reproduce.quantities import Quantity

Extra = Literal[
    "updates", "errors", "marks", "parts", "profile", "adding", "moves", "others", "counts"
]
"""What is measured beside time, matches and memory: insertion and deletion; false positives and
what was skipped; marks and the time that they take; what REIN spends its time on; time by number
of matches. Of operations on spaces: adding publications; updates that move them far and a little;
adding subscriptions and removing publications; what the paper's algorithms would look at."""

Method = Literal["matching", "queue", "operations", "durable", "spark"]
"""How an experiment is measured: events against an index; events that wait for an index, with the
adjuster; operations on spaces in memory; updates of spaces on disk by many threads; operations as
jobs on Spark."""

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


ADA_REIN_PUBLISHED = "Ada-REIN as published"


def ada_rein_published(rate: float, cells: int = 1_000) -> Series:
    """Ada-REIN with the paper's own way to choose attributes."""
    parameters = {"cells": cells, "rate": rate}
    return Series(ADA_REIN_PUBLISHED, "ada-rein-published", parameters, exact=False)


@dataclass(frozen=True, kw_only=True)
class Point:
    """A place on the axis: a workload, parameters for some indexes, a rate for inexact series."""

    x: X
    workload: Workload
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rate: float | None = None
    full: bool = False
    """Left out for time and memory, unless all is asked for."""

    def series(self, series: Series) -> Series:
        """The series as it is measured here."""
        parameters = {**series.parameters, **self.parameters.get(series.index, {})}
        workload = self.workload
        if isinstance(workload, RangeWorkload):
            if series.index == "ada-rein":
                # An event may lack attributes: a predicate is satisfied by as many fewer events.
                share = workload.event_size / workload.attributes
                parameters["selectivity"] = workload.width * share
            elif series.index == "ada-rein-published":
                parameters["selectivity"] = workload.width
        if self.rate is None or series.exact:
            return replace(series, parameters=parameters)
        if series.skipping is not None:
            return replace(series, parameters=parameters, skipping=self.rate)
        return replace(series, parameters={**parameters, "rate": self.rate})


def vary(
    workload: Workload, values: Collection[Any], *parameters: str, full: Iterable[Any] = ()
) -> tuple[Point, ...]:
    """A point for each value, which all these parameters of the workload have there.

    Those of `full` are measured only where all is asked for.
    """
    only = {*full} - {*values}
    return tuple(
        Point(
            x=value,
            workload=changed(workload, **dict.fromkeys(parameters, value)),
            full=value in only,
        )
        for value in sorted({*values, *only})
    )


@dataclass(frozen=True)
class Published:
    """A figure that somebody published, in the unit of our quantity."""

    quantity: Quantity
    series: str
    x: X
    value: float
    source: str = "paper"


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
        if self.method in ("durable", "spark", "queue") or "counts" in self.extras:
            return self.series
        return (*self.series, NUMPY)


class Paper(NamedTuple):
    """A paper, what we redo of it, and what it says that belongs to no figure."""

    title: str
    experiments: tuple[Experiment, ...]
    claims: tuple[Claim, ...] = ()
