"""The report: one HTML file with charts that needs nothing else, not even a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from boxmatch.reports import (
    Charts,
    PlottingError,
    bullets,
    facts,
    page,
    require_plotting,
    table,
)
from boxmatch_bench.reproduce.catalogue import PAPERS
from boxmatch_bench.reproduce.claims import counted
from boxmatch_bench.reproduce.contest import (
    hem_default,
    left_out,
    on_ranges,
    tile_not_fastest,
)
from boxmatch_bench.reproduce.experiment import NUMPY, Paper
from boxmatch_bench.reproduce.quantities import Quantity
from boxmatch_bench.reproduce.tables import (
    NOT_COMPARABLE,
    REFUSED,
    Grid,
    duration,
    grids_of,
    place_of,
    refusal,
    tables,
    verdicts_of,
    without_figure,
)
from boxmatch_bench.tables import Row, Table

__all__ = ["PlottingError", "report", "require_plotting"]


_INTRODUCTION = (
    "<p>This report measures the papers' indexes and our own, <code>tile</code>, on the papers' "
    "workloads, checks the results against brute force, and compares the figures with those of the "
    "papers. Times are for one thread unless stated otherwise. In the plots, hover for figures, "
    "drag and scroll to zoom, double-click to reset, and click in the legend to hide and show.</p>"
)


def report(rows: Sequence[Row], run: Mapping[str, Any]) -> str:
    """The page for all experiments, from the rows that there are. `run` says what was asked."""
    grids = grids_of(PAPERS, rows)
    # What is not part of `all` is left out of reports without it.
    papers = {
        name: paper
        for name, paper in PAPERS.items()
        if any(e.method != "spark" or len(grids[e.name]) for e in paper.experiments)
    }
    drawn = Charts()
    sections = [_summary(papers, grids, rows)]
    for name, paper in papers.items():
        content = "".join(_experiment(grids[e.name], drawn) for e in paper.experiments)
        sections.append(
            f'<section id="{name}"><h2>{escape(paper.title)}</h2>'
            f"<p>{escape(counted(verdicts_of(paper, grids)))}.</p>{_of_no_figure(paper)}"
            f"{content}</section>"
        )
    return page(
        title="Boxmatch: the papers' experiments, reproduced",
        heading="The papers' experiments, reproduced",
        introduction=_INTRODUCTION,
        origin=_provenance(rows, run),
        contents=_contents(papers),
        sections="".join(sections),
        charts=drawn,
    )


def _of_no_figure(paper: Paper) -> str:
    return _table(without_figure(paper)) if paper.claims else ""


def _contents(papers: Mapping[str, Paper]) -> str:
    lines = ['<li><a href="#summary">Summary</a></li>']
    for name, paper in papers.items():
        inner = "".join(
            f'<li><a href="#{e.name}">{escape(e.figure)}</a></li>' for e in paper.experiments
        )
        lines.append(f'<li><a href="#{name}">{escape(name)}</a><ol>{inner}</ol></li>')
    return f"<ul>{''.join(lines)}</ul>"


def _provenance(rows: Sequence[Row], run: Mapping[str, Any]) -> str:
    def all_of(values: Iterable[object]) -> str:
        return ", ".join(sorted({str(value) for value in values}))

    machines = all_of(
        f"{r['machine']['cpu']}, {r['machine']['cores']} cores, {r['machine']['system']}"
        for r in rows
    )
    dates = sorted(r["date"] for r in rows)
    packages = {f"{name} {v}" for r in rows for name, v in r["packages"].items() if v}
    known = {
        "Scale": f"{run['scale']:g} of the papers' numbers of subscriptions and publications",
        "Seed": run["seed"],
        "Events": run.get("event_file") or "synthetic, uniform unless stated otherwise",
        "Commit": run.get("commit") or "unknown",
        "Machine": machines,
        "Python": all_of(r["python"] for r in rows) + "; " + ", ".join(sorted(packages)),
        "Measured": f"{dates[0]} to {dates[-1]}, {len(rows)} rows" if dates else "nothing yet",
        "Took": duration(rows),
    }
    return facts(known)


def _summary(papers: Mapping[str, Paper], by_name: Mapping[str, Grid], rows: Sequence[Row]) -> str:
    grids = list(by_name.values())
    counts = [
        f"{paper.title}: {counted(verdicts_of(paper, by_name))}." for paper in papers.values()
    ]
    parts = ['<section id="summary"><h2>Summary</h2><h3>Claims of the papers</h3>', bullets(counts)]
    for title, wanted in (("ranges", True), ("boolean properties", False)):
        slower, won = tile_not_fastest(grid for grid in grids if on_ranges(grid) is wanted)
        parts.append(
            f"<h3><code>tile</code> against the others, on {title}</h3>{_contest(slower, won)}"
        )
    default = hem_default(grids)
    if default is not None:
        parts += ["<h3>HEM's default setting</h3>", _table(default)]
    refused = left_out(rows)
    if refused:
        parts += ["<h3>Not enough memory</h3>", bullets(refused)]
    return "".join(parts) + "</section>"


def _contest(slower: Table, won: int) -> str:
    total = won + len(slower.rows)
    if not total:
        return "<p>This run has nothing to compare.</p>"
    says = (
        f"<p><code>tile</code> is the fastest exact index in {won} of {total} comparisons (each "
        "setting three times: matching in batches, counting in batches, event by event)"
    )
    return f"{says}. The exceptions:</p>{_table(slower)}" if slower.rows else f"{says}.</p>"


def _experiment(grid: Grid, drawn: Charts) -> str:
    experiment = grid.experiment
    head = (
        f'<article id="{experiment.name}"><h3>{escape(experiment.figure)}: '
        f"{escape(experiment.title)}</h3>"
    )
    if not len(grid):
        return f"{head}<p>Not measured in this run.</p></article>"
    remarks = [experiment.notes]
    if (experiment.published or experiment.claims) and not grid.comparable:
        remarks.append(NOT_COMPARABLE)
    notes = "".join(f'<p class="note">{escape(remark)}</p>' for remark in remarks if remark)
    return (
        f"{head}{notes}{drawn.place(charts(grid))}"
        f"{''.join(map(_table, tables(grid)))}"
        f'<p class="note">{escape(_measured_on(grid))}</p></article>'
    )


def _measured_on(grid: Grid) -> str:
    events = [
        row["single"]["events"] for row in grid.rows if "single" in row and row["index"] != "numpy"
    ]
    checked = [row["checked_events"] for row in grid.rows if "checked_events" in row]
    if not events:
        return _operated_on(grid)
    return (
        f"Up to {max(events):,} events, at least {min(events):,} for the slowest index, event by "
        f"event; results compared with brute force, as whole sets, on {min(checked)} of them."
    )


def _operated_on(grid: Grid) -> str:
    checked = [row["checked_operations"] for row in grid.rows if "checked_operations" in row]
    if not checked:
        return ""
    who = "thread" if grid.experiment.method == "durable" else "kind"
    return (
        f"Transitions compared with brute force, as whole sets, for at least {min(checked)} "
        f"operations of each {who}."
    )


def _table(made: Table) -> str:
    return table(made.title, made.columns, made.rows, labels=made.labels)


# --- charts: a Vega-Lite specification for each quantity that an experiment draws ---------------

Record = dict[str, Any]
Specification = dict[str, Any]

# Told apart by people who see colours differently, and readable on light and on dark.
_COLOURS: Final = {
    "tile": "#d62728",
    "tile, skipping": "#ff9896",
    "HEM": "#1f77b4",
    "REIN": "#2ca02c",
    "Ada-REIN": "#98c379",
    "Ada-REIN as published": "#556b2f",
    "HEM, 128 groups": "#7fb3e6",
    "RAPIDMatch, space cut": "#f5c518",
    "REIN, covered found once": "#98c379",
    "Ada-REIN, our adjuster": "#1f77b4",
    "Ada-REIN and PADA as published": "#e69f00",
    "TAMA": "#9467bd",
    "OpIndex": "#8c564b",
    "SIENA": "#e69f00",
    "H-TREE": "#17becf",
    "CountMatch": "#e69f00",
    "TreeMatch": "#2ca02c",
    "RAPIDMatch": "#1f77b4",
    "100,000 publications": "#d62728",
    "10,000 publications": "#e69f00",
    "1,000 publications": "#2ca02c",
    "100 publications": "#1f77b4",
    "full": "#d62728",
    "normal": "#1f77b4",
    "in memory": "#2ca02c",
    NUMPY.label: "#999999",
}
_DASHES: Final = [[1, 0], [4, 4], [2, 3], [6, 2]]
_SHAPES: Final = ["circle", "diamond", "square", "triangle-up"]
_HEIGHT: Final = 300


def charts(grid: Grid) -> list[Specification]:
    """A specification for each quantity that is drawn and was measured."""
    made = []
    for quantity in grid.experiment.y:
        records = curve_records(grid, quantity) if quantity.curve else records_of(grid, quantity)
        if records:
            made.append(_chart(grid, quantity, records))
    return made


def records_of(grid: Grid, quantity: Quantity) -> list[Record]:
    """Our figures, and published ones if they are of the same setting, in the order of the axis."""
    records = []
    for series in grid.experiment.measured:
        for x in grid.xs:
            value = grid.value(quantity, series.label, x)
            if value is not None:
                records.append(_record(place_of(grid, x), value, series.label, "measured"))
    for figure in grid.experiment.published if grid.comparable else ():
        if figure.quantity == quantity and figure.x in grid.xs:
            place = place_of(grid, figure.x)
            records.append(_record(place, figure.value, figure.series, figure.source))
    return [r for r in records if r["y"] > 0 or not quantity.log]


def curve_records(grid: Grid, quantity: Quantity) -> list[Record]:
    """Figures by number of matches, of all rows of a series together."""
    records = [
        _record(round(matches, 1), value, row["series"], "measured")
        for row in grid.rows
        for matches, value in quantity.curve_of(row)
    ]
    return sorted(records, key=lambda record: (record["series"], record["x"]))


def _record(x: Any, y: float, series: str, source: str) -> Record:
    return {"x": x, "y": float(f"{y:.5g}"), "series": series, "source": source}


def _chart(grid: Grid, quantity: Quantity, records: list[Record]) -> Specification:
    axis = grid.experiment.x
    present = {record["series"] for record in records}
    labels = [s.label for s in grid.experiment.measured if s.label in present]
    labels += sorted(present.difference(labels))  # published, not measured
    sources = sorted({r["source"] for r in records}, key=lambda s: (s != "measured", s))
    numeric = all(isinstance(record["x"], (int, float)) for record in records)
    x = _numeric_axis(str(axis), axis.log) if numeric else _named_axis(str(axis))
    encoding = {
        "x": x,
        "y": {
            "field": "y",
            "type": "quantitative",
            "title": str(quantity),
            "scale": {"type": "log"} if quantity.log else {},
        },
        "color": _colours(labels),
        "tooltip": [
            {"field": "series", "title": grid.experiment.compared},
            {"field": "source", "title": "source"},
            {"field": "x", "title": str(axis)},
            {"field": "y", "title": str(quantity), "format": ",.4~g"},
        ],
    }
    shown = [{"filter": {"param": "shown"}}]
    lines = {
        "params": [
            {
                "name": "shown",
                "select": {"type": "point", "fields": ["series"], "toggle": "true"},
                "bind": "legend",
                "value": [{"series": label} for label in labels],
            },
            {
                "name": "zoom",
                "select": {"type": "interval", "encodings": ["x", "y"] if numeric else ["y"]},
                "bind": "scales",
            },
        ],
        "transform": shown,
        "mark": {"type": "line", "clip": True},
        "encoding": {"strokeDash": _source(_DASHES, sources)},
    }
    points = {
        "transform": shown,
        "mark": {"type": "point", "filled": True, "size": 48, "clip": True, "opacity": 1},
        "encoding": {"shape": _source(_SHAPES, sources)},
    }
    layers = [{"data": {"values": records}, "encoding": encoding, "layer": [lines, points]}]
    refusals = _refusals(grid, quantity)
    if refusals:
        layers.append(_refused(refusals, x))
    return {"width": "container", "height": _HEIGHT, "layer": layers}


def _source(choices: list[Any], sources: list[str]) -> Specification:
    """How measured figures and published ones are told apart."""
    return {
        "field": "source",
        "title": None,
        "scale": {"domain": sources, "range": choices[: len(sources)]},
        "legend": {} if len(sources) > 1 else None,
    }


def _numeric_axis(title: str, log: bool) -> Specification:
    return {
        "field": "x",
        "type": "quantitative",
        "title": title,
        "scale": {"nice": False, "padding": 12, **({"type": "log"} if log else {"zero": False})},
        "axis": {"grid": False, **({"format": "~s"} if log else {})},
    }


def _named_axis(title: str) -> Specification:
    axis = {"labelAngle": -30}
    return {"field": "x", "type": "ordinal", "title": title, "sort": None, "axis": axis}


def _colours(labels: list[str]) -> Specification:
    return {
        "field": "series",
        "title": None,
        "scale": {"domain": labels, "range": [_COLOURS.get(label, "#7f7f7f") for label in labels]},
        "legend": {"symbolType": "stroke", "symbolStrokeWidth": 3},
    }


def _refusals(grid: Grid, quantity: Quantity) -> list[Record]:
    found: dict[Any, list[str]] = {}
    for row in grid.rows:
        if refusal(row, quantity) and row["index"] != NUMPY.index:
            found.setdefault(place_of(grid, row["x"]), []).append(row["series"])
    return [{"x": x, "text": f"{', '.join(who)}: {REFUSED}"} for x, who in found.items()]


def _refused(refusals: list[Record], x: Specification) -> Specification:
    """Who ran out of memory where, written upwards from the axis."""
    return {
        "data": {"values": refusals},
        "mark": {"type": "text", "angle": 270, "align": "left", "dx": 6, "dy": -6, "opacity": 0.7},
        "encoding": {"x": x, "y": {"value": _HEIGHT}, "text": {"field": "text"}},
    }
