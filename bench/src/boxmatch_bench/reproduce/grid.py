"""The rows of one experiment as a grid, and the numbers that papers quote from such grids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from boxmatch_bench.reproduce.experiment import Experiment, X
from boxmatch_bench.reproduce.quantities import Quantity
from boxmatch_bench.tables import Row

Figure = Callable[["Grid"], float | None]


NOT_COMPARABLE = (
    "Published figures are for the full size and for made-up events; this run had others, so they "
    "are not drawn, and what stands beside them in tables is not the same setting."
)


class Grid:
    """Rows by series and place on the axis."""

    def __init__(self, experiment: Experiment, rows: Iterable[Row]) -> None:
        self.experiment = experiment
        self._rows = {(row["series"], row["x"]): row for row in rows}

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> list[Row]:
        """All rows."""
        return list(self._rows.values())

    @property
    def xs(self) -> list[X]:
        """The places that have a row, in the experiment's order."""
        have = {x for _, x in self._rows}
        return [point.x for point in self.experiment.points if point.x in have]

    @property
    def comparable(self) -> bool:
        """Whether the rows are of the published setting: at full size, on made-up events."""
        return all(row["scale"] == 1 and not row["workload"].get("event_file") for row in self.rows)

    def row(self, series: str, x: X) -> Row | None:
        """The row, if there is one."""
        return self._rows.get((series, x))

    def value(self, quantity: Quantity, series: str, x: X) -> float | None:
        """A quantity of one row; None where it was not measured, or the index refused."""
        row = self.row(series, x)
        mine = None if row is None else quantity.of(row)
        if quantity.saved_against is None or mine is None:
            return mine
        other = self.row(quantity.saved_against, x)
        theirs = None if other is None else quantity.of(other)
        return 100 * (1 - mine / theirs) if theirs else None

    def has(self, quantity: Quantity, series: str | None = None) -> bool:
        """Whether any row (of the series) has the quantity."""
        return any(
            quantity.of(row) is not None
            for (name, _), row in self._rows.items()
            if series in (None, name)
        )


def value(quantity: Quantity, series: str, at: X) -> Figure:
    """The quantity itself."""
    return lambda grid: grid.value(quantity, series, at)


def ratio(quantity: Quantity, over: str, under: str, at: X | None = None) -> Figure:
    """How many times as large the quantity is for `over` as for `under`; averaged if not `at`."""

    def measured(grid: Grid) -> float | None:
        places = grid.xs if at is None else [at]
        pairs = [(grid.value(quantity, over, x), grid.value(quantity, under, x)) for x in places]
        return _mean([a / b for a, b in pairs if a is not None and b])

    return measured


def reduction(quantity: Quantity, of: str, against: str, at: X | None = None) -> Figure:
    """By how many percent `of` is below `against`; averaged over the axis if not `at`."""

    def measured(grid: Grid) -> float | None:
        places = grid.xs if at is None else [at]
        pairs = [(grid.value(quantity, of, x), grid.value(quantity, against, x)) for x in places]
        return _mean([100 * (1 - a / b) for a, b in pairs if a is not None and b])

    return measured


def increase(quantity: Quantity, of: str, against: str, at: X | None = None) -> Figure:
    """By how many percent `of` is above `against`; averaged over the axis if not `at`."""

    def measured(grid: Grid) -> float | None:
        below = reduction(quantity, of, against, at)(grid)
        return None if below is None else -below

    return measured


def change(quantity: Quantity, series: str, start: X, end: X) -> Figure:
    """How many times as large the quantity is at `end` as at `start`."""

    def measured(grid: Grid) -> float | None:
        a, b = grid.value(quantity, series, start), grid.value(quantity, series, end)
        return None if b is None or not a else b / a

    return measured


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
