"""What was found on the test bed: tables for the console, and one HTML file with plots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any, Final

from boxmatch.reports import Charts, bullets, facts, page, table
from boxmatch_bench.pada.runner import FLUCTUATION, OVERLOAD, RATES
from boxmatch_bench.settings import ADJUSTMENTS, INDEXES, OFF
from boxmatch_bench.tables import Row, Table, number

Record = dict[str, Any]
Specification = dict[str, Any]

_HEIGHT: Final = 240
_COLOURS: Final = ("#d62728", "#e69f00", "#1f77b4", "#2ca02c")

WANTED: Final = 2.1
"""How many times lower the mean latency should be with the adjuster."""

_INTRODUCTION: Final = (
    "<p>This is the test bed of the Ada-REIN paper (Figure 5) with a real broker. Events arrive "
    "over HTTP at times that are fixed beforehand, and go to subscribers on WebSockets; everything "
    "is durable. Latency begins when an event is due. Every delivery is compared with the exact "
    "matches: a missing one ends the run, false ones are counted. The server, the load generator "
    "and other processes share the machine; the tables show how many cores each used.</p><p>The "
    "paper scales the ticks of a morning, which we do not have. Our rates are drawn from a seed, "
    "one for each second and correlated with the previous one, and scaled so that the highest is "
    "7.68 times the lowest; within a second, arrivals are random. Their average is a share of the "
    "exact capacity of the index, measured beforehand on the same broker.</p>"
)


def report(rows: Sequence[Row], run: Mapping[str, Any]) -> str:
    """The page, from the rows that there are."""
    drawn = Charts()
    summary = "".join(
        table(one.title, one.columns, one.rows, labels=one.labels) for one in tables(rows)
    )
    sections = {
        "summary": ("Summary", bullets(verdicts(rows)) + summary),
        FLUCTUATION: ("Fluctuating load", _articles(_fluctuation_charts(rows), drawn)),
        OVERLOAD: ("Overload", _articles(_overload_charts(rows), drawn)),
    }
    contents = "".join(
        f'<li><a href="#{name}">{title}</a></li>' for name, (title, _) in sections.items()
    )
    return page(
        title="Boxmatch: the adjuster under load",
        heading="The adjuster under load",
        introduction=_INTRODUCTION,
        origin=_origin(rows, run),
        contents=f"<ul>{contents}</ul>",
        sections="".join(
            f'<section id="{name}"><h2>{title}</h2>{content}</section>'
            for name, (title, content) in sections.items()
            if content or name == "summary"
        ),
        charts=drawn,
    )


def _articles(charts: Iterable[tuple[str, list[Specification]]], drawn: Charts) -> str:
    return "".join(
        f"<article><h3>{escape(index)}</h3>{drawn.place(its)}</article>" for index, its in charts
    )


def _origin(rows: Sequence[Row], run: Mapping[str, Any]) -> str:
    known: dict[str, object] = {"Scale": f"{run['scale']:g}", "Seed": run["seed"]}
    if rows:
        row = rows[0]
        machine, workload = row["machine"], row["workload"]
        known |= {
            "Load": f"{workload['load']:g} of the exact capacity, on average",
            "Subscriptions": f"{workload['subscriptions']:,}",
            "Subscribers": f"{workload['subscribers']}",
            "Commit": run.get("commit") or "unknown",
            "Machine": f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}",
            "Python": row["python"],
            "Measured": f"{rows[0]['date']} to {rows[-1]['date']}, {len(rows)} rows",
        }
    return facts(known)


def _fluctuation_charts(rows: Sequence[Row]) -> Iterator[tuple[str, list[Specification]]]:
    fluctuating = of_experiment(rows, FLUCTUATION)
    for index, group in groupby(fluctuating, key=lambda row: str(row["index"])):
        mine = list(group)
        arrivals = enumerate(mine[0]["by_second"]["arrivals"])
        yield (
            index,
            [
                _chart("Events due, per second", [_record(*one, "arrivals") for one in arrivals]),
                _chart("Latency by second, ms", _by_second(mine, "latency_ms", 1.0)),
                _chart("Tolerated rate of false matches, %", _by_second(mine, "rate", 100.0)),
                _chart("Batch size, events", _samples(mine, "batch_size")),
            ],
        )


def _overload_charts(rows: Sequence[Row]) -> Iterator[tuple[str, list[Specification]]]:
    for row in of_experiment(rows, OVERLOAD):
        yield (
            row["index"],
            [
                _chart(title, _samples([row], name, factor), ends=row["seconds"])
                for title, name, factor in (
                    ("Waiting events", "queue", 1.0),
                    ("Tolerated rate of false matches, %", "rate", 100.0),
                    ("Private memory of the server, MB", "private", 1e-6),
                )
            ],
        )


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


def of_experiment(rows: Iterable[Row], experiment: str) -> list[Row]:
    """The rows of one experiment, by index and adjuster."""
    names = [one.name for one in ADJUSTMENTS]
    return sorted(
        (row for row in rows if row["experiment"] == experiment),
        key=lambda row: (INDEXES.index(row["index"]), names.index(row["x"])),
    )


def tables(rows: Sequence[Row]) -> list[Table]:
    """Rates in the engine, latency, false positives, the overload; those that have rows."""
    fluctuating, overloaded = of_experiment(rows, FLUCTUATION), of_experiment(rows, OVERLOAD)
    rated = [row for row in rows if row["experiment"] == RATES]
    made = [_rates(rated), _latency(fluctuating), _errors(fluctuating), _overload(overloaded)]
    return [table for table in made if table.rows]


def _rates(rows: list[Row]) -> Table:
    batches = sorted({case["batch"] for row in rows for case in row["rates"]})
    columns = (
        *("index", "rate, %", "measured, %"),
        *(f"µs per event, batches of {batch}" for batch in batches),
        *(f"exact / this, {batch}" for batch in batches),
    )
    made = []
    for row in rows:
        taken = {(case["rate"], case["batch"]): case for case in row["rates"]}
        for rate in sorted({case["rate"] for case in row["rates"]}):
            here = [taken[rate, batch] for batch in batches]
            gains = [taken[0.0, case["batch"]]["us"] / case["us"] for case in here]
            made.append(
                (
                    *(row["index"], f"{100 * rate:g}", number(100 * here[0]["false"])),
                    *(number(case["us"]) for case in here),
                    *(f"{gain:.2f}" for gain in gains),
                )
            )
    title = "The engine alone: gain by skipping and by larger batches"
    return Table(title, columns, tuple(made), 2)


def _latency(rows: list[Row]) -> Table:
    columns = (
        *("index", "adjuster", "capacity, events/s", "mean, ms", "deviation", "p99", "max"),
        *("mean off / on", "deviation off / on", "cores: server", "load", "others"),
    )
    exact = {row["index"]: row["latency_ms"] for row in rows if row["x"] == OFF.name}
    made = []
    for row in rows:
        ours, off = row["latency_ms"], exact.get(row["index"])
        ratios = ["", ""]
        if off is not None and row["x"] != OFF.name:
            ratios = [f"{number(off[name] / ours[name])}×" for name in ("mean", "std")]
        cores = [row["cores"].get(name) for name in ("server", "generator", "others")]
        made.append(
            (
                *(row["index"], row["x"], number(row["capacity"])),
                *(number(ours[name]) for name in ("mean", "std", "p99", "max")),
                *ratios,
                *("" if one is None else f"{one:.2f}" for one in cores),
            )
        )
    if made:
        blank = ("", "", "")
        without = ("the paper's Rein", "off", "", "57.11", "33.19", "", *blank, *blank)
        adapted = ("the paper's Ada-Rein", "up to 0.1 %", "", "27.32", "20.07", "", "")
        made += [without, (*adapted, "2.09×", "1.65×", *blank)]
    return Table("Latency, event due to delivery", columns, tuple(made), 2)


def _errors(rows: list[Row]) -> Table:
    columns = (
        *("index", "adjuster", "events", "matched inexactly", "matches", "false"),
        *("measured rate, %", "tolerated, %", "highest rate used, %", "mean batch"),
    )
    made = tuple(
        (
            row["index"],
            row["x"],
            f"{row['events']:,}",
            f"{row['inexact_events']:,}",
            f"{row['true']:,}",
            f"{row['false']:,}",
            *(number(100 * row[name]) for name in ("measured_rate", "promised_rate")),
            number(100 * row["highest_rate"]),
            number(_mean_batch(row)),
        )
        for row in rows
    )
    return Table("False positives, counted over all deliveries; none was missing", columns, made, 2)


def _mean_batch(row: Row) -> float:
    sizes = [one["batch_size"] for one in row["samples"] if one["batch_size"]]
    return sum(sizes) / len(sizes) if sizes else 0.0


def _overload(rows: list[Row]) -> Table:
    columns = (
        *("index", "adjuster", "offered", "acknowledged", "lost", "503s", "accepted later"),
        *("given up", "most waiting", "queue empty after s", "exact after s"),
        *("memory before MB", "most", "after", "slope MB/min", "false, %", "tolerated, %"),
    )
    made = []
    for row in rows:
        memory = row["memory"]
        sizes = [memory[name] for name in ("before", "most", "after", "late_slope_per_minute")]
        after = [row[name] for name in ("empty_after_seconds", "exact_after_seconds")]
        made.append(
            (
                *(row["index"], row["x"]),
                *(f"{row[name]:,}" for name in ("offered", "acknowledged", "lost", "refusals")),
                *(f"{row[name]:,}" for name in ("accepted_later", "given_up", "most_waiting")),
                *("not in time" if one is None else f"{one:.1f}" for one in after),
                *("" if one is None else f"{one / 1e6:,.0f}" for one in sizes),
                *(number(100 * row[name]) for name in ("measured_rate", "promised_rate")),
            )
        )
    title = "Twice the exact capacity, then no load"
    return Table(title, columns, tuple(made), 2)


def verdicts(rows: Sequence[Row]) -> list[str]:
    """What we aim at, and whether it was reached; nothing of runs at another scale."""
    if any(row["scale"] != 1 for row in rows):
        return []
    made = []
    fluctuating = of_experiment(rows, FLUCTUATION)
    off = {row["index"]: row["latency_ms"]["mean"] for row in fluctuating if row["x"] == OFF.name}
    for row in fluctuating:
        if row["x"] == OFF.name or row["index"] not in off:
            continue
        ratio = off[row["index"]] / row["latency_ms"]["mean"]
        within = row["measured_rate"] <= row["promised_rate"]
        word = "target met" if ratio >= WANTED and within else "target MISSED"
        made.append(
            f"{row['index']}, {row['x']}: mean latency {number(ratio)} times lower (target: "
            f"{WANTED}), false matches {number(100 * row['measured_rate'])} % of at most "
            f"{number(100 * row['promised_rate'])} %; {word}."
        )
    for row in of_experiment(rows, OVERLOAD):
        exact = row["exact_after_seconds"]
        word = "not in time" if exact is None else f"{exact:.1f} s after its end"
        made.append(
            f"{row['index']}, overload: {row['acknowledged']:,} acknowledged events, {row['lost']} "
            f"lost; exact again {word}."
        )
    return made
