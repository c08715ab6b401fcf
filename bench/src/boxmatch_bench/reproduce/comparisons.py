"""Numbers that come out of the rows of an experiment: single ones, and ratios of two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from boxmatch_bench.reproduce.quantities import Quantity

if TYPE_CHECKING:
    from boxmatch_bench.reproduce.experiment import X
    from boxmatch_bench.reproduce.tables import Grid


class Figure(Protocol):
    """A number that rows have, or that can be computed from them."""

    @property
    def unit(self) -> str:
        """As it is shown after the number."""

    def measured(self, grid: Grid) -> float | None:
        """The number; None where something for it was not measured."""


class Cell(NamedTuple):
    """A number in the rows of an experiment; without `x` there is one at each place."""

    quantity: Quantity
    series: str
    x: X | None = None

    @property
    def unit(self) -> str:
        return self.quantity.unit

    def measured(self, grid: Grid) -> float | None:
        places = grid.xs if self.x is None else [self.x]
        found = [grid.value(self.quantity, self.series, place) for place in places]
        known = [value for value in found if value is not None]
        return fmean(known) if known else None


@dataclass(frozen=True)
class Comparison:
    """A cell compared with another, averaged over the axis if they are not at one place."""

    cell: Cell
    other: Cell
    kind: Literal["times", "percent", "percent less", "percent more"] = "times"

    @property
    def unit(self) -> str:
        return "×" if self.kind == "times" else "%"

    def measured(self, grid: Grid) -> float | None:
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
