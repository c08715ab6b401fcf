"""What the rows say about our own aims: computed, not written down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from boxmatch.workloads import RangeWorkload
from boxmatch_bench.reproduce import cpp, hem, subject_spaces
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


def rates_kept(grids: Iterable[Grid]) -> list[str]:
    """Where the measured rate of false positives was above the tolerated one."""
    broken, counted = [], 0
    for grid in grids:
        for row in grid.rows:
            wanted, measured = q.EXPECTED_RATE.of(row), q.MEASURED_RATE.of(row)
            if wanted is None or measured is None:
                continue
            counted += 1
            if measured > wanted:
                broken.append(
                    f"{grid.experiment.name}, {row['series']}, {shown_x(grid, row['x'])}: measured "
                    f"{number(measured)} % instead of at most {number(wanted)} %"
                )
    if not counted:
        return []
    return broken or [f"All {counted} measured rates are at or below the tolerated ones."]


def spaces_aims(grids: Iterable[Grid]) -> list[str]:
    """Spaces with 100,000 publications and subscriptions: what was measured, and what we aim at.

    Nothing of runs at another scale.
    """
    by_name = {grid.experiment.name: grid for grid in grids if len(grid) and grid.comparable}
    most, label = subject_spaces.MOST, subject_spaces.LARGEST.label
    verdicts = []

    def judge(
        what: str, found: float | None, unit: str, *, below: float = 0, above: float = 0
    ) -> None:
        if found is not None:
            wanted = f"under {number(below)}" if below else f"at least {number(above)}"
            word = "target met" if (found < below if below else found >= above) else "target MISSED"
            verdicts.append(f"{what}: {number(found)} {unit}; {word} ({wanted}).")

    adding = by_name.get(subject_spaces.INSERTION.name)
    moving = by_name.get(subject_spaces.INCREMENTAL.name)
    durable = by_name.get(subject_spaces.DURABLE.name)
    if adding is not None:
        judge("Adding a publication", adding.value(q.ADDING, label, most), "ms", below=2)
    if moving is not None:
        took = moving.value(q.INCREMENTAL_UPDATE, label, most)
        judge("An incremental update", took, "ms", below=0.2)
        ratio = subject_spaces.CHEAPER.measured(moving)
        judge("A random update compared with an incremental one", ratio, "×", above=10)
        ratio = subject_spaces.CHEAPER_TOGETHER.measured(moving)
        judge("The same, with 100 updates in one operation", ratio, "×", above=10)
    if durable is not None:
        rates = {x: durable.value(q.UPDATES_PER_SECOND, "full", x) for x in durable.xs if x != 1}
        known = [(rate, threads) for threads, rate in rates.items() if rate is not None]
        if known:
            best, threads = max(known)
            what = f"Durable updates from concurrent callers, most with {threads} threads"
            judge(what, best, "per second", above=2_000)
    return verdicts


def left_out(rows: Sequence[Row]) -> list[str]:
    """Which index could not be built where, each reason once."""
    reasons = {
        f"{row['series']} in {row['experiment']} at {row['x']}: {reason}"
        for row in rows
        for reason in (row.get("refused"), row.get("updates_refused"))
        if reason
    }
    return sorted(reasons)
