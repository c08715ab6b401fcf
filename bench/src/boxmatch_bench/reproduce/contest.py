"""Where `tile` is the fastest exact index and where not, and other summaries of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from boxmatch.workloads import RangeWorkload
from boxmatch_bench.reproduce import cpp, hem
from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.experiment import NUMPY, TILE
from boxmatch_bench.reproduce.tables import Grid, shown_x
from boxmatch_bench.tables import Row, Table, number, optional

_RIVALRY = (q.BATCH, q.COUNT, q.SINGLE)
"""How indexes are compared: listing and counting in batches, and event by event."""


def tile_not_fastest(grids: Iterable[Grid]) -> tuple[Table, int]:
    """Where another exact index was faster than `tile`, and in how many comparisons it was not."""
    rows, won = [], 0
    for grid in grids:
        for x in grid.xs:
            for quantity in _RIVALRY:
                ours = grid.value(quantity, TILE.label, x)
                rivals = _rivals(grid, quantity, x)
                if ours is None or not rivals:
                    continue
                best, label = min(rivals)
                if ours <= best:
                    won += 1
                    continue
                rows.append(
                    (
                        grid.experiment.name,
                        shown_x(grid, x),
                        quantity.label,
                        number(ours),
                        label,
                        number(best),
                        f"{number(ours / best)}×",
                    )
                )
    columns = ("experiment", "at", "quantity", "tile, ms", "fastest", "its ms", "tile slower by")
    return Table("Where tile is not the fastest exact index", columns, tuple(rows), 3), won


def contest_by_experiment(grids: Iterable[Grid]) -> Table:
    """For each experiment, `tile` event by event, and the exact index that is next to it."""
    rows = []
    for grid in grids:
        if grid.experiment.method != "matching" or q.SINGLE not in grid.experiment.y:
            continue
        if not grid.complete:
            continue
        ours, ratios, best = [], [], []
        for x in grid.xs:
            mine, rivals = grid.value(q.SINGLE, TILE.label, x), _rivals(grid, q.SINGLE, x)
            if mine is not None and rivals:
                time, label = min(rivals)
                ours.append(mine)
                ratios.append(time / mine)
                best.append(label)
        if ours:
            leaders = " or ".join(sorted(dict.fromkeys(best), key=best.count, reverse=True))
            title = f"{grid.experiment.paper}, {grid.experiment.figure}"
            cells = (_range(ours), leaders, f"{_range(ratios)} ×")
            rows.append((title, grid.experiment.x.label, *cells))
    columns = (
        "experiment",
        "along",
        "`tile`, ms",
        "best other exact index",
        "its time in `tile`'s",
    )
    return Table("", columns, tuple(rows), 2)


def _range(values: Sequence[float]) -> str:
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def on_ranges(grid: Grid) -> bool:
    """Whether an experiment is about ranges, rather than boolean properties."""
    return isinstance(grid.experiment.points[0].workload, RangeWorkload)


def _rivals(grid: Grid, quantity: q.Quantity, x: float | str) -> list[tuple[float, str]]:
    found = []
    for series in grid.experiment.series:
        value = grid.value(quantity, series.label, x)
        if series.exact and series.label != TILE.label and value is not None:
            found.append((value, series.label))
    return found


def hem_default(grids: Iterable[Grid]) -> Table | None:
    """HEM's default setting, with times as shares of NumPy's, and the authors' C++ beside."""
    x = cpp.DEFAULT.subscriptions
    name = hem.SUBSCRIPTIONS.name
    grid = next((g for g in grids if g.experiment.name == name and x in g.xs), None)
    numpy = None if grid is None else grid.value(q.SINGLE, NUMPY.label, x)
    if grid is None or not numpy:
        return None
    rows = []
    for series in (*grid.experiment.series, NUMPY):
        figures = [grid.value(one, series.label, x) for one in (q.SINGLE, q.BATCH, q.COUNT)]
        shares = [None if value is None else value / numpy for value in figures[:2]]
        rows.append((series.label, *map(optional, [*figures, *shares])))
    if grid.comparable:
        rows += [
            (f"{one.series}, {one.source}", "", "", number(one.value), "", "")
            for one in grid.experiment.published
        ]
    columns = (
        "index",
        "event by event, ms",
        "in batches, ms",
        "counting, ms",
        "event by event / NumPy",
        "in batches / NumPy",
    )
    title = f"HEM's default setting, {shown_x(grid, x)} subscriptions"
    return Table(title, columns, tuple(rows))


def left_out(rows: Sequence[Row]) -> list[str]:
    """Which index could not be built where, each reason once."""
    reasons = {
        f"{row['series']} in {row['experiment']} at {row['x']}: {reason}"
        for row in rows
        for reason in (row.get("refused"), row.get("updates_refused"))
        if reason
    }
    return sorted(reasons)
