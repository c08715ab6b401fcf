"""What was found on the test bed: tables for the console, and one HTML file with plots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from statistics import fmean
from typing import Any, Final, NamedTuple

from boxmatch.reports import Charts, bullets, facts, page, table
from boxmatch_bench.intervals import Interval, interval
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
    "and other processes share the machine; the table shows how many cores the server used.</p>"
    "<p>The paper scales the ticks of a morning, which we do not have. Our rates are drawn from a "
    "seed, one for each second and correlated with the previous one, and scaled so that the "
    "highest is 7.68 times the lowest; within a second, arrivals are random. Their average is a "
    "share of the exact capacity of the index, measured beforehand on the same broker.</p>"
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
            "Load": ", ".join(f"{load:g}" for load in workload["loads"])
            + " of the exact capacity, on average",
            "Repetitions": workload["repetitions"],
            "Subscriptions": f"{workload['subscriptions']:,}",
            "Subscribers": f"{workload['subscribers']}",
            "Commit": run.get("commit") or "unknown",
            "Machine": f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}",
            "Python": row["python"],
            "Measured": f"{rows[0]['date']} to {rows[-1]['date']}, {len(rows)} rows",
        }
    return facts(known)


def _fluctuation_charts(rows: Sequence[Row]) -> Iterator[tuple[str, list[Specification]]]:
    # The first repetition at the highest load; with the others there would be a hundred lines.
    most = max((row["load"] for row in of_experiment(rows, FLUCTUATION)), default=0.0)
    fluctuating = [
        row
        for row in of_experiment(rows, FLUCTUATION)
        if row["load"] == most and row["repetition"] == 0
    ]
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
        key=lambda row: (
            INDEXES.index(row["index"]),
            row["load"] or 0.0,
            names.index(row["x"]),
            row["repetition"],
        ),
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


class _Repeated(NamedTuple):
    """All repetitions of one load with one adjuster, and those without."""

    of: str
    load: float
    x: str
    rows: list[Row]
    off: list[Row]

    def ratio(self, name: str) -> Interval | None:
        """How many times as large the figure is without the adjuster, repetition by repetition."""
        without = {row["repetition"]: row["latency_ms"][name] for row in self.off}
        ratios = [
            without[row["repetition"]] / row["latency_ms"][name]
            for row in self.rows
            if row["repetition"] in without
        ]
        return interval(ratios) if ratios and self.x != OFF.name else None


def _repeated(rows: Sequence[Row]) -> list[_Repeated]:
    def case(row: Row) -> tuple[str, float, str]:
        return row["index"], row["load"], row["x"]

    by_case = {key: list(group) for key, group in groupby(rows, key=case)}
    return [
        _Repeated(index, load, x, group, by_case.get((index, load, OFF.name), []))
        for (index, load, x), group in by_case.items()
    ]


def _latency(rows: list[Row]) -> Table:
    columns = (
        *("index", "load", "adjuster", "repetitions", "capacity, events/s"),
        *("mean, ms", "deviation", "p99", "mean off / on", "95 % from", "to", "latency is"),
        "server's cores",
    )
    made = []
    for one in _repeated(rows):
        ratio = one.ratio("mean")
        ratios = ["", "", "", ""]
        if ratio is not None:
            ratios = [*(f"{number(part)}×" for part in (ratio.mean, ratio.low)), "", said(ratio)]
            ratios[2] = f"{number(ratio.high)}×"
        cores = fmean(row["cores"].get("server") or 0.0 for row in one.rows)
        made.append(
            (
                *(one.of, f"{one.load:g}", one.x, str(len(one.rows))),
                number(fmean(row["capacity"] for row in one.rows)),
                *(
                    number(fmean(row["latency_ms"][name] for row in one.rows))
                    for name in ("mean", "std", "p99")
                ),
                *ratios,
                f"{cores:.2f}",
            )
        )
    if made:
        without = ("the paper's Rein", "", "off", "10", "", "57.11", "33.19", "")
        adapted = ("the paper's Ada-Rein", "", "up to 0.1 %", "10", "", "27.32", "20.07", "")
        made += [
            (*without, "", "", "", "", ""),
            (*adapted, "2.09×", "", "", "", ""),
        ]
    return Table("Latency, event due to delivery", columns, tuple(made), 3)


def said(ratio: Interval) -> str:
    """What repetitions say of a latency, where they say something."""
    if not ratio.apart:
        return "not told apart"
    return "shorter" if ratio.mean > 1 else "longer"


def _errors(rows: list[Row]) -> Table:
    columns = (
        *("index", "load", "adjuster", "events", "matched inexactly", "matches", "false"),
        *("measured rate, %", "tolerated, %", "highest rate used, %", "mean batch"),
    )
    made = tuple(
        (
            *(one.of, f"{one.load:g}", one.x),
            *(
                f"{sum(row[name] for row in one.rows):,}"
                for name in ("events", "inexact_events", "true", "false")
            ),
            *(number(100 * rate) for rate in _rates_of(one.rows)),
            number(100 * max(row["highest_rate"] for row in one.rows)),
            number(fmean(map(_mean_batch, one.rows))),
        )
        for one in _repeated(rows)
    )
    return Table("False positives, counted over all deliveries; none was missing", columns, made, 3)


def _rates_of(rows: list[Row]) -> tuple[float, float]:
    """False matches for each true one in all repetitions, and how many were promised."""
    true = sum(row["true"] for row in rows)
    promised = sum(row["promised_rate"] * row["true"] for row in rows)
    return sum(row["false"] for row in rows) / max(1, true), promised / max(1, true)


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
    for one in _repeated(of_experiment(rows, FLUCTUATION)):
        ratio = one.ratio("mean")
        if ratio is None:
            continue
        measured, promised = _rates_of(one.rows)
        reached = ratio.apart and ratio.mean >= WANTED and measured <= promised
        made.append(
            f"{one.of}, load {one.load:g}, {one.x}: mean latency is {said(ratio)}, "
            f"{number(ratio.mean)} times lower ({number(ratio.low)} to {number(ratio.high)}; "
            f"target: {WANTED}), false matches {number(100 * measured)} % of at most "
            f"{number(100 * promised)} %; {'target met' if reached else 'target MISSED'}."
        )
    for row in of_experiment(rows, OVERLOAD):
        exact = row["exact_after_seconds"]
        word = "not in time" if exact is None else f"{exact:.1f} s after its end"
        made.append(
            f"{row['index']}, overload: {row['acknowledged']:,} acknowledged events, {row['lost']} "
            f"lost; exact again {word}."
        )
    return made
