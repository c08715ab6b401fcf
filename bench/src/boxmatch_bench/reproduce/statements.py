"""The kinds of statements that papers make: numbers, bounds, orders, and courses along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from boxmatch_bench.reproduce.claims import HALF_MORE, TENTH, Finding, Within
from boxmatch_bench.reproduce.comparisons import Figure
from boxmatch_bench.reproduce.experiment import X
from boxmatch_bench.reproduce.quantities import Quantity, bins_of
from boxmatch_bench.reproduce.tables import Grid, shown_x
from boxmatch_bench.tables import number

CHANCE: Final = 1.05
"""Times within so much of each other are taken to be equal: rows are single runs."""

STEADY: Final = 1.25
"""What stays the same along an axis changes by less, at any place, than by this factor."""


@dataclass(frozen=True)
class Near:
    """A number that is published."""

    figure: Figure
    published: float
    within: Within = HALF_MORE

    @property
    def paper(self) -> str:
        return f"{number(self.published)} {self.figure.unit}".rstrip()

    @property
    def rule(self) -> str:
        return str(self.within)

    def found(self, grid: Grid) -> Finding | None:
        ours = self.figure.measured(grid)
        if ours is None:
            return None
        shown = f"{number(ours)} {self.figure.unit}".rstrip()
        return Finding(shown, self.within.holds(ours, self.published))


@dataclass(frozen=True)
class Bound:
    """A number that is published as the least or the most that there is.

    Where only words are, they are what is `said`, and the number is what we take for agreement.
    """

    figure: Figure
    kind: Literal["at least", "at most"]
    published: float
    said: str = ""

    @property
    def paper(self) -> str:
        return self.said or self._bound

    @property
    def rule(self) -> str:
        return self._bound if self.said else self.kind

    @property
    def _bound(self) -> str:
        return f"{self.kind} {number(self.published)} {self.figure.unit}".rstrip()

    def found(self, grid: Grid) -> Finding | None:
        ours = self.figure.measured(grid)
        if ours is None:
            return None
        holds = ours >= self.published if self.kind == "at least" else ours <= self.published
        return Finding(f"{number(ours)} {self.figure.unit}".rstrip(), holds)


Course = Literal["rises", "falls", "stays"]


@dataclass(frozen=True)
class Along:
    """How a quantity changes along the axis, or between two places on it."""

    quantity: Quantity
    series: str
    course: Course
    start: X | None = None
    end: X | None = None

    @property
    def paper(self) -> str:
        return {"stays": "stays the same"}.get(self.course, self.course)

    @property
    def rule(self) -> str:
        if self.course == "stays":
            return f"changes by less than a factor of {STEADY:g}"
        return f"{self.course} from place to place, but for {100 * (CHANCE - 1):.0f} %"

    def found(self, grid: Grid) -> Finding | None:
        xs = grid.xs
        first = 0 if self.start is None else _place(xs, self.start)
        last = len(xs) - 1 if self.end is None else _place(xs, self.end)
        if first is None or last is None or last <= first:
            return None
        values = [grid.value(self.quantity, self.series, x) for x in xs[first : last + 1]]
        known = [value for value in values if value is not None]
        if len(known) != len(values):
            return None
        shown = " → ".join(map(number, known)) + f" {self.quantity.unit}"
        return Finding(shown.rstrip(), _goes(known, self.course))


@dataclass(frozen=True)
class ByMatches:
    """How a curve over the number of matches goes, from fewest to most."""

    quantity: Quantity
    series: str
    course: Course

    @property
    def paper(self) -> str:
        return self.course

    @property
    def rule(self) -> str:
        return (
            f"the third of the events with the most matches against that with the fewest: "
            f"{self.course} by {100 * (CHANCE - 1):.0f} % or more"
        )

    def found(self, grid: Grid) -> Finding | None:
        ends = curve_ends(grid, self.quantity, self.series)
        if ends is None:
            return None
        few, many = ends
        ratio = many / few
        holds = ratio >= CHANCE if self.course == "rises" else ratio <= 1 / CHANCE
        return Finding(f"{number(few)} → {number(many)} {self.quantity.unit}", holds)


def curve_ends(grid: Grid, quantity: Quantity, series: str) -> tuple[float, float] | None:
    """A curve's quantity over the thirds of the events with the fewest and the most matches."""
    bins = [part for row in grid.rows if row["series"] == series for part in bins_of(row)]
    bins.sort(key=lambda part: part["matches"])
    if len(bins) < 2:
        return None
    third = sum(part["events"] for part in bins) / 3
    low, high = 0, len(bins)
    count = 0.0
    while low < len(bins) - 1 and (count == 0 or count + bins[low]["events"] <= third):
        count += bins[low]["events"]
        low += 1
    count = 0.0
    while high > low and (count == 0 or count + bins[high - 1]["events"] <= third):
        count += bins[high - 1]["events"]
        high -= 1
    return quantity.over(bins[:low]), quantity.over(bins[high:])


def _place(xs: Sequence[X], x: X) -> int | None:
    return xs.index(x) if x in xs else None


def _goes(values: Sequence[float], course: Course) -> bool:
    if course == "stays":
        return max(values) < STEADY * min(values)
    if course == "falls":
        values = values[::-1]
    steps = pairwise(values)
    return values[-1] > CHANCE * values[0] and all(b >= a / CHANCE for a, b in steps)


@dataclass(frozen=True)
class Order:
    """Series from least to most of a quantity: at every place, or at some."""

    quantity: Quantity
    labels: tuple[str, ...]
    at: tuple[X, ...] | None = None

    @property
    def paper(self) -> str:
        return " < ".join(self.labels)

    @property
    def rule(self) -> str:
        return f"at every place, but for {100 * (CHANCE - 1):.0f} %"

    def found(self, grid: Grid) -> Finding | None:
        return _by_place(grid, self.quantity, self.labels, self.at, self._holds)

    @staticmethod
    def _holds(values: Sequence[float]) -> bool:
        return all(a <= CHANCE * b for a, b in pairwise(values))


@dataclass(frozen=True)
class Extreme:
    """One series has the least, or the most, of some: at every place, or at some."""

    quantity: Quantity
    kind: Literal["least", "most"]
    label: str
    others: tuple[str, ...]
    at: tuple[X, ...] | None = None

    @property
    def paper(self) -> str:
        return f"{self.label} the {self.kind}"

    @property
    def rule(self) -> str:
        return f"at every place, but for {100 * (CHANCE - 1):.0f} %"

    def found(self, grid: Grid) -> Finding | None:
        labels = (self.label, *self.others)
        return _by_place(grid, self.quantity, labels, self.at, self._holds)

    def _holds(self, values: Sequence[float]) -> bool:
        mine, *others = values
        if self.kind == "least":
            return all(mine <= CHANCE * other for other in others)
        return all(mine >= other / CHANCE for other in others)


def _by_place(
    grid: Grid,
    quantity: Quantity,
    labels: tuple[str, ...],
    at: tuple[X, ...] | None,
    holds: Callable[[Sequence[float]], bool],
) -> Finding | None:
    """How often something holds; where it does not, who stands in which order there."""
    kept, broken = 0, []
    for x in grid.xs if at is None else at:
        values = [grid.value(quantity, label, x) for label in labels]
        known = [value for value in values if value is not None]
        if len(known) != len(values):
            continue
        if holds(known):
            kept += 1
        else:
            order = sorted(zip(known, labels, strict=True))
            broken.append(
                f"at {shown_x(grid, x)} "
                + " < ".join(f"{label} {number(value)}" for value, label in order)
            )
    total = kept + len(broken)
    if not total:
        return None
    shown = f"at {kept} of {total} places" if total > 1 else "so" if kept else "not so"
    return Finding("; ".join([shown, *broken[:2], *["…"] * (len(broken) > 2)]), not broken)


@dataclass(frozen=True)
class Cells:
    """All figures of a quantity that were published of a series."""

    quantity: Quantity
    series: str
    within: Within = TENTH
    only: tuple[X, ...] | None = None

    @property
    def paper(self) -> str:
        return "a column of figures"

    @property
    def rule(self) -> str:
        return f"each {self.within}"

    def found(self, grid: Grid) -> Finding | None:
        near, far = 0, []
        for figure in grid.experiment.published:
            wanted = figure.quantity == self.quantity and figure.series == self.series
            if not wanted or figure.source != "paper":
                continue
            if self.only is not None and figure.x not in self.only:
                continue
            ours = grid.value(self.quantity, self.series, figure.x)
            if ours is None:
                continue
            if self.within.holds(ours, figure.value) or ours == figure.value:
                near += 1
            else:
                far.append(
                    f"{number(ours)} for {number(figure.value)} at {shown_x(grid, figure.x)}"
                )
        if not near + len(far):
            return None
        shown = f"{near} of {near + len(far)}"
        return Finding("; ".join([shown, *far]), not far)


@dataclass(frozen=True)
class Refused:
    """Where memory did not suffice for an index."""

    series: str
    at: tuple[X, ...]

    @property
    def paper(self) -> str:
        return "does not run"

    @property
    def rule(self) -> str:
        return "refuses at every one of these places"

    def found(self, grid: Grid) -> Finding | None:
        rows = [grid.row(self.series, x) for x in self.at]
        known = [row for row in rows if row is not None]
        if len(known) != len(rows):
            return None
        refused = sum("refused" in row for row in known)
        return Finding(f"refuses at {refused} of {len(rows)}", refused == len(rows))


@dataclass(frozen=True)
class Judged:
    """A statement with a calculation of its own."""

    paper: str
    rule: str
    calculation: Callable[[Grid], Finding | None]

    def found(self, grid: Grid) -> Finding | None:
        return self.calculation(grid)
