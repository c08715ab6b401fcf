"""What was found on the test bed, in tables: the same for the console and for the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from boxmatch_bench.pada.runner import FLUCTUATION, OVERLOAD, RATES
from boxmatch_bench.settings import ADJUSTMENTS, INDEXES, OFF
from boxmatch_bench.tables import Row, Table, number

PAPER_MEAN: Final = {"off": 57.11, "on": 27.32}
PAPER_DEVIATION: Final = {"off": 33.19, "on": 20.07}
WANTED: Final = 2.1
"""How many times lower the mean latency should be with the adjuster."""


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
        *(f"µs an event, batches of {batch}" for batch in batches),
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
    title = "The engine alone: what skipping gains, and what larger batches do"
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
        for name in ("off", "on"):
            known = PAPER_MEAN[name], PAPER_DEVIATION[name]
            ratios = ["", ""] if name == "off" else ["2.09×", "1.65×"]
            label = "Rein" if name == "off" else "Ada-Rein"
            adjuster = "off" if name == "off" else "up to 0.1 %"
            shown = (f"{known[0]:.2f}", f"{known[1]:.2f}", "", "")
            made.append((f"the paper's {label}", adjuster, "", *shown, *ratios, "", "", ""))
    return Table("Latency from when an event is due to its delivery", columns, tuple(made), 2)


def _errors(rows: list[Row]) -> Table:
    columns = (
        *("index", "adjuster", "events", "matched inexactly", "matches", "false"),
        *("measured rate, %", "promised, %", "highest rate used, %", "mean batch"),
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
        *("memory before MB", "most", "after", "slope MB/min", "false, %", "promised, %"),
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
    title = "Twice what exact matching carries, then nothing"
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
        word = "as wanted" if ratio >= WANTED and within else "NOT as wanted"
        made.append(
            f"{row['index']}, {row['x']}: mean latency {number(ratio)} times lower (wanted: "
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
