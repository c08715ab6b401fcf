"""Results for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from boxmatch_bench.report import number, table_of

Row = Mapping[str, Any]


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    """What came before, the phases, and what the server held and used meanwhile."""
    phases = [row for row in rows if row["phase"] != "load"]
    yield _loading([row for row in rows if row["phase"] == "load"])
    if not phases:
        return
    yield _speed(phases)
    yield _stages(phases)
    if any("memory" in row for row in phases):
        yield _use([row for row in phases if "memory" in row])


def _loading(rows: Sequence[Row]) -> Table:
    table = table_of(
        "Before: subscriptions put over HTTP, subscribers connected",
        "subscriptions", "in one\nrequest", "put\ns", "per s", "subscribers", "connected\ns",
        "memory\nprivate MB", labels=1,
    )  # fmt: skip
    for row in rows:
        parameters = row["parameters"]
        table.add_row(
            f"{parameters['subscriptions']:,}",
            f"{row['options']['put']:,}",
            number(row["seconds"]) if row["seconds"] else "there already",
            number(row["per_second"]) if row["seconds"] else "",
            f"{parameters['subscribers']:,}",
            number(row["connect_seconds"]),
            number(row["private_after"] / 1e6) if row["private_after"] else "",
        )
    return table


def _speed(rows: Sequence[Row]) -> Table:
    table = table_of(
        "Durable publishing, end to end: every match delivered once, in order, and compared",
        "phase", "events\na request", "events", "notes", "events\nper s",
        "delivered after ms\np50", "\np90", "\np99", "\nmax", "answered\np99 ms",
        "sent late\np99 ms", labels=1,
    )  # fmt: skip
    for row in rows:
        delivery = row["delivery_ms"] or {}
        table.add_row(
            row["phase"],
            f"{row['load']['batch']:,}",
            f"{row['events']:,}",
            f"{row['notes']:,}",
            number(row["events_per_second"]),
            *(number(delivery[name]) if delivery else "" for name in ("p50", "p90", "p99", "max")),
            number(row["answer_ms"]["p99"]),
            number(row["sent_late_ms"]["p99"]),
        )
    return table


def _stages(rows: Sequence[Row]) -> Table:
    names = list(dict.fromkeys(name for row in rows for name in row["stages"]))
    table = table_of(
        "Means of the server's own stages, ms (for a request; matching for a group of them)",
        "phase", *names, labels=1,
    )  # fmt: skip
    for row in rows:
        stages = row["stages"]
        cells = [number(stages[name]["mean_ms"]) if name in stages else "" for name in names]
        table.add_row(row["phase"], *cells)
    return table


def _use(rows: Sequence[Row]) -> Table:
    table = table_of(
        "What was used",
        "phase", "server\ncores", "generator\ncores", "written\nMB/s", "resident MB\nbefore",
        "after", "private MB\nbefore", "after", "slope\nMB/min", "second half\nMB/min", labels=1,
    )  # fmt: skip
    for row in rows:
        memory = row["memory"]
        sizes = ("resident_before", "resident_after", "private_before", "private_after")
        slopes = (memory["slope_per_minute"], memory["late_slope_per_minute"])
        table.add_row(
            row["phase"],
            number(row["server_cores"]),
            number(row["generator_cores"]) if "generator_cores" in row else "",
            number(row["written_bytes"] / row["seconds"] / 1e6),
            *(number(memory[name] / 1e6) for name in sizes),
            *("" if one is None else f"{one / 1e6:+.2f}" for one in slopes),
        )
    return table
