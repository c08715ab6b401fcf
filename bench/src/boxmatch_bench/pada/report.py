"""The report: one HTML file with plots that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from boxmatch.pages import Charts, bullets, facts, page, table
from boxmatch_bench.pada.runner import FLUCTUATION, OVERLOAD
from boxmatch_bench.pada.tables import of_experiment, tables, verdicts
from boxmatch_bench.settings import ADJUSTMENTS, INDEXES
from boxmatch_bench.tables import Row

Record = dict[str, Any]
Specification = dict[str, Any]

_HEIGHT: Final = 240
_COLOURS: Final = ("#d62728", "#e69f00", "#1f77b4", "#2ca02c")

_INTRODUCTION: Final = (
    "<p>The test bed of the Ada-REIN paper (Figure 5) over a real broker: events come over HTTP "
    "at moments that were fixed before, whatever became of those before, and go to subscribers on "
    "WebSockets; everything is durable. Latency begins when an event is due. Every delivery is "
    "compared with the exact matches: a missing one ends the run, false ones are counted. Server, "
    "load and whatever else there is share the machine; the tables say how much of it others "
    "had.</p><p>The paper scales the ticks of a morning, which we do not have. Our rates are drawn "
    "from a seed, one for each second and related to the one before, and stretched so that the "
    "highest is 7.68 times the lowest; within a second, chance says when events come. Their "
    "average is a share of what the index carried exactly, measured before on the same "
    "broker.</p>"
)


def report(rows: Sequence[Row], run: Mapping[str, Any]) -> str:
    """The page, from the rows that there are."""
    drawn = Charts()
    made = tables(rows)
    parts = ['<section id="summary"><h2>Summary</h2>']
    parts += [bullets(verdicts(rows))]
    parts += [table(one.title, one.columns, one.rows, labels=one.labels) for one in made]
    parts.append("</section>")
    fluctuating, overloaded = of_experiment(rows, FLUCTUATION), of_experiment(rows, OVERLOAD)
    if fluctuating:
        parts.append(_fluctuation(fluctuating, drawn))
    if overloaded:
        parts.append(_overload(overloaded, drawn))
    contents = "".join(
        f'<li><a href="#{name}">{escape(title)}</a></li>'
        for name, title in (
            ("summary", "Summary"),
            (FLUCTUATION, "Fluctuating load"),
            (OVERLOAD, "Overload"),
        )
    )
    return page(
        title="Boxmatch: the adjuster under load",
        heading="The adjuster under load",
        introduction=_INTRODUCTION,
        origin=_origin(rows, run),
        contents=f"<ul>{contents}</ul>",
        sections="".join(parts),
        charts=drawn,
    )


def _origin(rows: Sequence[Row], run: Mapping[str, Any]) -> str:
    known: dict[str, object] = {"Scale": f"{run['scale']:g}", "Seed": run["seed"]}
    if rows:
        row = rows[0]
        machine, workload = row["machine"], row["workload"]
        known |= {
            "Load": f"{workload['load']:g} of what exact matching carries, on average",
            "Subscriptions": f"{workload['subscriptions']:,}, held by {workload['owners']} owners",
            "Commit": run.get("commit") or "unknown",
            "Machine": f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}",
            "Python": row["python"],
            "Measured": f"{rows[0]['date']} to {rows[-1]['date']}, {len(rows)} rows",
        }
    return facts(known)


def _fluctuation(rows: list[Row], drawn: Charts) -> str:
    parts = [f'<section id="{FLUCTUATION}"><h2>Fluctuating load</h2>']
    for index in INDEXES:
        mine = [row for row in rows if row["index"] == index]
        if not mine:
            continue
        arrivals = [
            _record(second, value, "arrivals")
            for second, value in enumerate(mine[0]["by_second"]["arrivals"])
        ]
        charts = [_chart("Events due, per second", arrivals)]
        for title, name, factor in (
            ("Latency of the events of each second, ms", "latency_ms", 1.0),
            ("Tolerated rate of false matches, %", "rate", 100.0),
        ):
            charts.append(_chart(title, _by_second(mine, name, factor)))
        charts.append(_chart("Events matched together", _samples(mine, "batch_size")))
        parts.append(f"<article><h3>{escape(index)}</h3>{drawn.place(charts)}</article>")
    return "".join(parts) + "</section>"


def _overload(rows: list[Row], drawn: Charts) -> str:
    parts = [f'<section id="{OVERLOAD}"><h2>Overload</h2>']
    for row in rows:
        charts = [
            _chart(title, _samples([row], name, factor), ends=row["seconds"])
            for title, name, factor in (
                ("Events that wait", "queue", 1.0),
                ("Tolerated rate of false matches, %", "rate", 100.0),
                ("Memory of the server's own, MB", "private", 1e-6),
            )
        ]
        parts.append(f"<article><h3>{escape(row['index'])}</h3>{drawn.place(charts)}</article>")
    return "".join(parts) + "</section>"


def _record(second: float, value: float, series: str) -> Record:
    return {"x": second, "y": float(f"{value:.5g}"), "series": series}


def _by_second(rows: list[Row], name: str, factor: float) -> list[Record]:
    return [
        _record(second, factor * value, f"adjuster {row['x']}")
        for row in rows
        for second, value in enumerate(row["by_second"][name])
        if value is not None
    ]


def _samples(rows: list[Row], name: str, factor: float = 1.0) -> list[Record]:
    return [
        _record(sample["at"], factor * sample[name], f"adjuster {row['x']}")
        for row in rows
        for sample in row["samples"]
        if sample[name] is not None
    ]


def _chart(title: str, records: list[Record], ends: float | None = None) -> Specification:
    names = ["arrivals", *(f"adjuster {one.name}" for one in ADJUSTMENTS)]
    present = [name for name in names if any(record["series"] == name for record in records)]
    colours = [_COLOURS[names.index(name) - 1] for name in present]
    encoding = {
        "x": {"field": "x", "type": "quantitative", "title": "second", "axis": {"grid": False}},
        "y": {"field": "y", "type": "quantitative", "title": title},
        "color": {
            "field": "series",
            "title": None,
            "scale": {"domain": present, "range": colours},
            "legend": {"symbolType": "stroke", "symbolStrokeWidth": 3} if present[1:] else None,
        },
        "tooltip": [{"field": name} for name in ("series", "x", "y")],
    }
    line = {"mark": {"type": "line", "point": True}, "encoding": encoding}
    layers: list[Specification] = [{"data": {"values": records}, **line}]
    if ends is not None:
        rule = {"mark": {"type": "rule", "strokeDash": [4, 4]}}
        place = {"x": {"field": "x", "type": "quantitative"}}
        layers.append({"data": {"values": [{"x": ends}]}, **rule, "encoding": place})
    return {"width": "container", "height": _HEIGHT, "layer": layers}
