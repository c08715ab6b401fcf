"""Tables: ours beside the paper's, the same for the console and for the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log2
from typing import Any

from boxmatch_bench.reproduce.experiment import Published, X
from boxmatch_bench.reproduce.grid import Grid
from boxmatch_bench.reproduce.quantities import Quantity, bins_of
from boxmatch_bench.tables import Row, Table, number

REFUSED = "not enough memory"


def tables(grid: Grid) -> list[Table]:
    """What one experiment found, beside what was published."""
    experiment = grid.experiment
    made = [_by_series(grid, quantity) for quantity in experiment.y]
    made.append(_shared(grid, [q for q in experiment.tabled if q.shared]))
    made.append(_by_quantity(grid, [q for q in experiment.tabled if not q.shared]))
    if experiment.claims:
        made.append(_claims(grid))
    return [table for table in made if table.rows]


def _by_series(grid: Grid, quantity: Quantity) -> Table:
    """A row for each place on the axis, a column for each index and each published figure."""
    if quantity.curve is not None:
        return _curves(grid, quantity)
    columns = [
        (s.label, "ours") for s in grid.experiment.measured if _seen(grid, s.label, quantity)
    ]
    for figure in grid.experiment.published:
        column = figure.series, figure.source
        if figure.quantity == quantity and column not in columns:
            # Beside our own column of the same index.
            after = [i for i, (label, _) in enumerate(columns) if label == figure.series]
            columns.insert(after[-1] + 1 if after else len(columns), column)
    rows = [
        (shown_x(grid, x), *(_cell(grid, quantity, series, x, who) for series, who in columns))
        for x in grid.xs
    ]
    heads = [label if who == "ours" else f"{label}, {who}" for label, who in columns]
    return Table(str(quantity), (str(grid.experiment.x), *heads), tuple(rows))


def _by_quantity(grid: Grid, quantities: Sequence[Quantity]) -> Table:
    """A row for each index at each place, a column for each quantity and its published figures."""
    columns = _columns(grid, quantities)
    rows = []
    for x in grid.xs:
        for series in grid.experiment.series:
            cells = [_cell(grid, quantity, series.label, x, who) for quantity, who in columns]
            if any(cells):
                rows.append((shown_x(grid, x), series.label, *cells))
    heads = (str(grid.experiment.x), grid.experiment.compared, *_heads(columns))
    return Table("Other figures", heads, tuple(rows), labels=2)


def _shared(grid: Grid, quantities: Sequence[Quantity]) -> Table:
    """A row for each place, of what does not depend on the index."""
    columns = _columns(grid, quantities)
    labels = [series.label for series in grid.experiment.series]
    rows = []
    for x in grid.xs:
        found = (
            [_cell(grid, quantity, label, x, who) for label in labels] for quantity, who in columns
        )
        rows.append((shown_x(grid, x), *(next(filter(None, cells), "") for cells in found)))
    heads = (str(grid.experiment.x), *_heads(columns))
    return Table("The same for all", heads, tuple(rows) if columns else ())


Columns = list[tuple[Quantity, str]]


def _columns(grid: Grid, quantities: Sequence[Quantity]) -> Columns:
    """Quantities that were measured, each followed by the sources that published it."""
    return [
        (quantity, source)
        for quantity in quantities
        if grid.has(quantity)
        for source in (
            "ours",
            *dict.fromkeys(p.source for p in grid.experiment.published if p.quantity == quantity),
        )
    ]


def _heads(columns: Columns) -> list[str]:
    return [str(quantity) if who == "ours" else who for quantity, who in columns]


def _curves(grid: Grid, quantity: Quantity) -> Table:
    """A row for each number of matches, to the nearest power of two."""
    labels = [s.label for s in grid.experiment.series]
    cells: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for row in grid.rows:
        for part in bins_of(row):
            cells.setdefault((round(log2(part["matches"])), row["series"]), []).append(part)
    rows = [
        (
            f"{2**power:,}",
            *(number(quantity.over(c)) if (c := cells.get((power, s))) else "" for s in labels),
        )
        for power in sorted({power for power, _ in cells})
    ]
    return Table(str(quantity), ("matches, about", *labels), tuple(rows))


def _claims(grid: Grid) -> Table:
    rows = []
    for claim in grid.experiment.claims:
        measured = claim.measured(grid)
        theirs, ours = (
            "" if value is None else f"{number(value)} {claim.unit}"
            for value in (claim.published, measured)
        )
        rows.append((claim.text, claim.where, theirs or "no number", ours))
    return Table("What the text says", ("statement", "where", "paper", "ours"), tuple(rows), 2)


def _seen(grid: Grid, series: str, quantity: Quantity) -> bool:
    return any(_cell(grid, quantity, series, x, "ours") for x in grid.xs)


def _cell(grid: Grid, quantity: Quantity, series: str, x: X, who: str) -> str:
    if who != "ours":
        found = published(grid, quantity, series, x, who)
        return "" if found is None else number(found.value)
    row = grid.row(series, x)
    if row is not None and refusal(row, quantity):
        return REFUSED
    value = grid.value(quantity, series, x)
    return "" if value is None else number(value)


def refusal(row: Row, quantity: Quantity) -> str | None:
    """Why the index would not give this quantity for want of memory, if so."""
    reason: str | None = row.get("refused")
    if reason is None and quantity.path[0] in ("insertion", "deletion"):
        reason = row.get("updates_refused")
    return reason


def published(grid: Grid, quantity: Quantity, series: str, x: X, source: str) -> Published | None:
    """The published figure of this source for a place, if there is one."""
    for figure in grid.experiment.published:
        place = figure.quantity, figure.series, figure.x, figure.source
        if place == (quantity, series, x, source):
            return figure
    return None


def shown_x(grid: Grid, x: X) -> str:
    """A place on the axis as text; numbers of subscriptions as they were measured."""
    value = place_of(grid, x)
    if isinstance(value, str):
        return value
    return f"{value:,}" if value == int(value) and value >= 1 else f"{value:g}"


def place_of(grid: Grid, x: X) -> X:
    """Where a point really lies: a run at another scale has other numbers of subscriptions."""
    if not grid.experiment.x.scaled:
        return x
    rows: Iterable[int] = (r["workload"]["subscriptions"] for r in grid.rows if r["x"] == x)
    return next(iter(rows), x)
