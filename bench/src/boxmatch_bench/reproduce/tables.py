"""The rows of one experiment as a grid, and its tables: ours beside the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log2
from typing import Any

from boxmatch_bench.reproduce.claims import IMPOSSIBLE, Verdict, counted, judge
from boxmatch_bench.reproduce.experiment import Experiment, Paper, X
from boxmatch_bench.reproduce.quantities import Quantity, bins_of
from boxmatch_bench.tables import Row, Table, number, optional

REFUSED = "not enough memory"

NOT_COMPARABLE = (
    "Published figures are for the full size and for made-up events; this run had others, so they "
    "are not drawn, and what stands beside them in tables is not the same setting."
)


class Grid:
    """Rows by series and place on the axis."""

    def __init__(
        self,
        experiment: Experiment,
        rows: Iterable[Row],
        others: Mapping[str, Grid] | None = None,
    ) -> None:
        self.experiment = experiment
        self._others = {} if others is None else others
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

    def beside(self, name: str) -> Grid | None:
        """The grid of another experiment, if that was measured too."""
        other = self._others.get(name)
        return other if other is not None and len(other) else None

    @property
    def complete(self) -> bool:
        """Whether each series that was measured has all places, but for those left out."""
        wanted = {point.x for point in self.experiment.points if not point.full}
        by_series: dict[str, set[X]] = {}
        for series, x in self._rows:
            by_series.setdefault(series, set()).add(x)
        known = {series.label for series in self.experiment.series}
        return all(wanted <= have for series, have in by_series.items() if series in known)

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
        return None if row is None else quantity.of(row)

    def has(self, quantity: Quantity) -> bool:
        """Whether any row has the quantity."""
        return any(quantity.of(row) is not None for row in self.rows)


def grids_of(papers: Mapping[str, Paper], rows: Iterable[Row]) -> dict[str, Grid]:
    """The grids of all experiments by name, each of which knows the others."""
    by_experiment: dict[str, list[Row]] = {}
    for row in rows:
        by_experiment.setdefault(row["experiment"], []).append(row)
    grids: dict[str, Grid] = {}
    for paper in papers.values():
        for experiment in paper.experiments:
            mine = by_experiment.get(experiment.name, [])
            grids[experiment.name] = Grid(experiment, mine, grids)
    return grids


def tables(grid: Grid) -> list[Table]:
    """What one experiment found, beside what was published."""
    experiment = grid.experiment
    made = [_by_series(grid, quantity) for quantity in experiment.y]
    made.append(_shared(grid, [q for q in experiment.tabled if q.shared]))
    made.append(_by_quantity(grid, [q for q in experiment.tabled if not q.shared]))
    if experiment.claims:
        made.append(claims_table(grid))
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
    cells = curve_cells(grid, quantity)
    rows = [
        (f"{2**power:,}", *(optional(cells.get((power, label))) for label in labels))
        for power in sorted({power for power, _ in cells})
    ]
    return Table(str(quantity), ("matches, about", *labels), tuple(rows))


def curve_cells(grid: Grid, quantity: Quantity) -> dict[tuple[int, str], float]:
    """A curve's quantity by the power of two that the matches are near to, and by series."""
    parts: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for row in grid.rows:
        for part in bins_of(row):
            parts.setdefault((round(log2(part["matches"])), row["series"]), []).append(part)
    return {key: quantity.over(bins) for key, bins in parts.items()}


_CLAIMS = ("where", "what is said", "there", "here", "verdict")


def claims_table(grid: Grid) -> Table:
    """What is said of one experiment, what our rows have, and the verdict."""
    verdicts = [judge(claim, grid) for claim in grid.experiment.claims]
    return Table("What the paper says", _CLAIMS, tuple(map(_cells, verdicts)), 5)


def verdicts_of(paper: Paper, grids: Mapping[str, Grid]) -> list[Verdict]:
    """All claims of a paper, judged, in the order of its experiments."""
    made = [
        judge(claim, grids[experiment.name])
        for experiment in paper.experiments
        for claim in experiment.claims
    ]
    return made + [Verdict(claim, "", IMPOSSIBLE) for claim in paper.claims]


def verdicts_table(paper: Paper, grids: Mapping[str, Grid]) -> Table:
    """The same as one table, each with the figure that it is about."""
    rows = [
        _with_figure(experiment.figure, judge(claim, grids[experiment.name]))
        for experiment in paper.experiments
        for claim in experiment.claims
    ]
    rows += without_figure(paper).rows
    title = f"Verdicts: {counted(verdicts_of(paper, grids))}"
    return Table(title, _CLAIMS, tuple(rows), 5)


def _with_figure(figure: str, verdict: Verdict) -> tuple[str, ...]:
    where, *others = _cells(verdict)
    return (where if where.startswith(figure) else f"{figure}; {where}", *others)


def without_figure(paper: Paper) -> Table:
    """The claims that belong to no experiment."""
    verdicts = [Verdict(claim, "", IMPOSSIBLE) for claim in paper.claims]
    return Table("What cannot be measured", _CLAIMS, tuple(map(_cells, verdicts)), 5)


def _cells(verdict: Verdict) -> tuple[str, ...]:
    claim = verdict.claim
    return claim.where, claim.text, claim.statement.paper, verdict.ours, verdict.explained


def duration(rows: Iterable[Row]) -> str:
    """How long it all took and in how many jobs, how long the measurements, and at which sizes."""
    rows = list(rows)
    seconds = {row["took_seconds"] for row in rows if "took_seconds" in row}
    most = max((row["workload"].get("subscriptions", 0) for row in rows), default=0)
    said = f"{number(sum(seconds) / 60)} minutes of measuring, with up to {most:,} subscriptions"
    begun: dict[str, float] = {}  # a run that was resumed has several beginnings
    for row in rows:
        begun[row["date"]] = max(begun.get(row["date"], 0.0), row.get("elapsed_seconds", 0.0))
    if not all(begun.values()):
        return said
    jobs = max(row["jobs"] for row in rows)
    whole = f"{number(sum(begun.values()) / 60)} minutes in all"
    return f"{whole} with {jobs} job{'s' * (jobs > 1)}, {said}" if begun else said


def was_shared(rows: Iterable[Row]) -> bool:
    """Whether the processor was not ours for a tenth of the time, as far as rows tell."""
    spent = {(row.get("worked_seconds", 0.0), row["took_seconds"]) for row in rows}
    worked, took = (float(sum(part)) for part in zip(*spent, strict=True))
    return worked < 0.9 * took


def _seen(grid: Grid, series: str, quantity: Quantity) -> bool:
    return any(_cell(grid, quantity, series, x, "ours") for x in grid.xs)


def _cell(grid: Grid, quantity: Quantity, series: str, x: X, who: str) -> str:
    if who != "ours":
        place = quantity, series, x, who
        for figure in grid.experiment.published:
            if (figure.quantity, figure.series, figure.x, figure.source) == place:
                return number(figure.value)
        return ""
    row = grid.row(series, x)
    if row is not None and refusal(row, quantity):
        return REFUSED
    return optional(grid.value(quantity, series, x))


def refusal(row: Row, quantity: Quantity) -> str | None:
    """Why memory did not suffice for this quantity, or None."""
    reason: str | None = row.get("refused")
    if reason is None and quantity.path[0] in ("insertion", "deletion"):
        reason = row.get("updates_refused")
    return reason


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
    return next((r["workload"]["subscriptions"] for r in grid.rows if r["x"] == x), x)
