"""What an experiment is: workloads along an axis, indexes to compare, and what the paper found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from boxmatch.model.boxes import Boxes
from boxmatch_bench.reproduce.quantities import Quantity

if TYPE_CHECKING:
    from boxmatch_bench.reproduce.grid import Grid

Extra = Literal["updates", "errors", "marks", "profile", "adding", "moves"]
"""What is measured beside time, matches and memory: insertion and deletion; false positives and
what was skipped; marks and the time that they take; time by number of matches. Of operations on
spaces: adding publications; updates that move them far and a little."""

Method = Literal["matching", "operations", "durable"]
"""How an experiment is measured: events against an index; operations on spaces in memory; updates
of spaces on disk by many threads."""

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


def scaled(workload: AnyWorkload, scale: float) -> AnyWorkload:
    """The workload with `scale` times its subscriptions, but not unreasonably few.

    Publications, where a workload has them, shrink and grow alike.
    """
    numbers = {
        name: getattr(workload, name)
        for name in ("subscriptions", "publications")
        if hasattr(workload, name)
    }
    fewer = {
        name: max(round(scale * number), min(FEWEST_SUBSCRIPTIONS, number))
        for name, number in numbers.items()
    }
    return replace(workload, **fewer)  # type: ignore[type-var]  # a dataclass


def seeded(workload: AnyWorkload, seed: int) -> AnyWorkload:
    """The workload with other random numbers."""
    return replace(workload, seed=seed)  # type: ignore[type-var]  # a dataclass


@dataclass(frozen=True)
class Axis:
    """What varies. `scaled` says that it is the number of subscriptions."""

    label: str
    unit: str = ""
    log: bool = False
    scaled: bool = False

    def __str__(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label


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

    def workload(self, workload: AnyWorkload) -> AnyWorkload:
        """A point's workload as this series has it."""
        return replace(workload, **self.changes)  # type: ignore[type-var]  # a dataclass


NUMPY = Series("NumPy", "numpy")
"""Brute force in NumPy, the yardstick: measured once in every setting."""


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
        if self.rate is None or series.exact:
            return replace(series, parameters=parameters)
        if series.skipping is not None:
            return replace(series, parameters=parameters, skipping=self.rate)
        return replace(series, parameters={**parameters, "rate": self.rate})


@dataclass(frozen=True)
class Published:
    """A figure that somebody published, in the unit of our quantity."""

    quantity: Quantity
    series: str
    x: X
    value: float
    source: str = "paper"


@dataclass(frozen=True)
class Claim:
    """A statement, the number in it if it has one, and how that number comes out of our rows."""

    text: str
    where: str
    published: float | None
    unit: str
    measured: Callable[[Grid], float | None]


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
        return self.series if self.method == "durable" else (*self.series, NUMPY)
