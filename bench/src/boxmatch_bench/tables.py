"""Results for people: tables, for the console and for reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.table

Row = Mapping[str, Any]

_SHORT = {
    "subscriptions": "subscriptions",
    "attributes": "d",
    "predicates": "k",
    "event_size": "event size",
    "width": "w",
    "share": "share of expressions",
    "pattern": "pattern",
    "categories": "categories",
    "values": "values",
    "event_file": "events",
}


@dataclass(frozen=True)
class Table:
    """Texts in rows; the first `labels` columns say what a row is, the others are figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1


def console_table(table: Table) -> rich.table.Table:
    """The table for the console."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Shown

    made = Shown(title=table.title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for place, heading in enumerate(table.columns):
        made.add_column(heading, justify="left" if place < table.labels else "right")
    for row in table.rows:
        made.add_row(*row)
    return made


def number(value: float) -> str:
    """Three significant digits, with separators for thousands; large ones in full."""
    size = abs(value)
    if size >= 100 or value == 0:
        return f"{value:,.0f}"
    if size >= 0.001:
        return f"{value:.3g}" if size < 1 else f"{value:.{2 if size < 10 else 1}f}"
    return f"{value:.2g}"


def optional(value: float | None) -> str:
    """The number, or nothing."""
    return "" if value is None else number(value)


def shown_value(value: object) -> str:
    """A parameter: counts with separators for thousands, the rest as it is."""
    return f"{value:,}" if isinstance(value, int) else str(value)


# --- presets -----------------------------------------------------------------------------------


def preset_tables(results: Sequence[Row]) -> Iterator[Table]:
    """For each preset a table of its settings, and one of its competitors if it has any."""
    for preset, group in groupby(results, key=lambda result: str(result["preset"])):
        same = list(group)
        title, varying = _title(preset, same)
        yield _figures(title, varying, same)
        if any(result.get("card") for result in same):
            yield _card(f"{preset}: the card ({same[0]['card']['device']})", varying, same)
        if any(result["competitors"] for result in same):
            yield _rivals(f"{preset}: competitors in the same run", varying, same)


def _card(title: str, varying: list[str], results: Sequence[Row]) -> Table:
    columns = (
        *(_SHORT[name] for name in varying),
        "events\nin a batch", "kernels\nµs/event", "whole call\nµs/event", "processor\nµs/event",
        "pays from\nevents",
    )  # fmt: skip
    rows = [
        (
            *_setting(result, varying),
            shown_value(batch["events"]),
            number(batch["kernel_microseconds"]),
            number(batch["call_microseconds"]),
            optional(batch.get("processor_microseconds")),
            shown_value(result["card"]["pays_from"] or "never"),
        )
        for result in results
        for batch in result["card"]["batches"]
    ]
    return Table(title, columns, tuple(rows), labels=len(varying) + 1)


def _title(preset: str, results: Sequence[Row]) -> tuple[str, list[str]]:
    """The preset with the parameters that its settings share, and those that they do not."""
    first = results[0]["parameters"]
    recorded = first.get("event_file") is not None
    unused = "values" if recorded else "event_file"  # an event file has values of its own
    shown = [name for name in _SHORT if name in first and name != unused]
    varying = [n for n in shown if any(r["parameters"][n] != first[n] for r in results)]
    shared = ", ".join(f"{_SHORT[n]} = {shown_value(first[n])}" for n in shown if n not in varying)
    return f"{preset} ({shared})", varying


def _setting(result: Row, varying: list[str]) -> list[str]:
    return [shown_value(result["parameters"][name]) for name in varying]


def _figures(title: str, varying: list[str], results: Sequence[Row]) -> Table:
    published = any(result["reference"] for result in results)
    columns = (
        *(_SHORT[name] for name in varying),
        "count\nµs/event", "match\nµs/event", "matches\n/event", "single\np50 µs", "\np99 µs",
        "its\ncount", "as an\narray",
        *(("best known\nµs/event", "count\nfaster") if published else ()),
        "build\nper s", "at most\nMB", "memory\nMB", "subscribe\nµs", "unsubscribe\nµs",
    )  # fmt: skip
    rows = []
    for result in results:
        batch, single, updates = result["batch"], result["single"] or {}, result["updates"] or {}
        most = result["memory"]["building"]
        rows.append(
            (
                *_setting(result, varying),
                number(batch["count_microseconds"]),
                number(batch["match_microseconds"]),
                number(batch["matches_per_event"]),
                optional(single.get("p50_microseconds")),
                optional(single.get("p99_microseconds")),
                optional(single.get("count_p50_microseconds")),
                optional(single.get("array_p50_microseconds")),
                *(_known(result) if published else ()),
                number(result["build"]["per_second"]),
                optional(most and most / 1e6),
                number(memory_bytes(result) / 1e6),
                optional(updates.get("subscribe_microseconds")),
                optional(updates.get("unsubscribe_microseconds")),
            )
        )
    return Table(title, columns, tuple(rows), 0)


def _known(result: Row) -> tuple[str, str]:
    """The published figure, and how many times faster counting was."""
    known = result["reference"]
    if not known:
        return "", ""
    took = known["microseconds"]
    times = number(took / result["batch"]["count_microseconds"])
    return f"{number(took)}\n{known['label']}", f"{times}×"


def _rivals(title: str, varying: list[str], results: Sequence[Row]) -> Table:
    names = ("competitor", "µs/event", "events", "slower than\nmatch_batch")
    columns = (*(_SHORT[name] for name in varying), *names, "slower than\nmatch (p50)")
    rows: list[tuple[str, ...]] = []
    for result in results:
        batch, single = result["batch"], result["single"]
        for name, figures in result["competitors"].items():
            cells = [*_setting(result, varying), name]
            if "skipped" in figures:
                rows.append((*cells, figures["skipped"]))
                continue
            took = figures["microseconds"]
            rows.append(
                (
                    *cells,
                    number(took),
                    f"{figures['events']:,}",
                    f"{number(took / batch['match_microseconds'])}×",
                    f"{number(took / single['p50_microseconds'])}×" if single else "",
                )
            )
    return Table(title, columns, tuple(rows), len(varying) + 1)


def memory_bytes(result: Row) -> int:
    """What the process grew by, or what the matcher says where that is more.

    It is more where the process had room already, and where the system does not tell.
    """
    memory = result["memory"]
    resident: int | None = memory["resident"]
    said: int = memory["parts"]["total"]
    return max(said, resident or 0)


# --- a broker ----------------------------------------------------------------------------------


def broker_tables(rows: Sequence[Row]) -> list[Table]:
    """What came before, the phases, and what the server held and used meanwhile."""
    others = ("load", "unread")
    phases = [row for row in rows if row["phase"] not in others and "alternative" not in row]
    watched = [row for row in phases if "memory" in row]
    made = [_loading([row for row in rows if row["phase"] == "load"])]
    made += [
        _unread([row for row in rows if row["phase"] == "unread"]),
        _speed(phases),
        _alternatives(rows),
        _stages(phases),
        _use(watched),
    ]
    return [table for table in made if table.rows]


def _loading(rows: Sequence[Row]) -> Table:
    title = "Before: subscriptions put over HTTP, subscribers connected"
    columns = (
        "subscriptions", "in one\nrequest", "put\ns", "per s", "subscribers", "connected\ns",
        "memory\nprivate MB",
    )  # fmt: skip
    made = (
        (
            f"{row['parameters']['subscriptions']:,}",
            f"{row['options']['put']:,}",
            number(row["seconds"]) if row["seconds"] else "there already",
            optional(row["per_second"]),
            f"{row['parameters']['subscribers']:,}",
            number(row["connect_seconds"]),
            number(row["private_after"] / 1e6) if row["private_after"] else "",
        )
        for row in rows
    )
    return Table(title, columns, tuple(made))


def _unread(rows: Sequence[Row]) -> Table:
    title = "Batches while no subscriber is connected, and to a feed without subscriptions"
    columns = (
        "events\na request", "events", "waiting\nat the end", "events\nper s", "without\nper s",
        "times", "server µs\nan event", "without\nµs", "times",
    )  # fmt: skip
    made = (
        (
            f"{row['load']['batch']:,}",
            f"{row['events']:,}",
            f"{row['waiting']:,}",
            number(row["events_per_second"]),
            number(row["events_per_second_unmatched"]),
            number(row["times"]),
            number(row["server_cpu_us"]),
            number(row["server_cpu_us_unmatched"]),
            optional(row["server_cpu_times"]),
        )
        for row in rows
    )
    return Table(title, columns, tuple(made))


def _speed(rows: Sequence[Row]) -> Table:
    title = "Durable publishing, end to end: every match delivered once, in order, and compared"
    columns = (
        "phase", "events\na request", "events", "notifications", "events\nper s",
        "delivered after ms\np50", "\np90", "\np99", "\nmax", "answered\np99 ms",
        "sent late\np99 ms",
    )  # fmt: skip
    made = (
        (
            row["phase"],
            f"{row['load']['batch']:,}",
            f"{row['events']:,}",
            f"{row['notifications']:,}",
            number(row["events_per_second"]),
            *(optional((row["delivery_ms"] or {}).get(n)) for n in ("p50", "p90", "p99", "max")),
            number(row["answer_ms"]["p99"]),
            number(row["sent_late_ms"]["p99"]),
        )
        for row in rows
    )
    return Table(title, columns, tuple(made))


def _alternatives(rows: Sequence[Row]) -> Table:
    """Rows of the alternatives, and the broker's own of the same phases."""
    title = "Closed loops: durable events, each request sent when one before it is answered"
    columns = (
        "phase", "stored by", "version", "events", "events\nper s", "answered after ms\np50",
        "\np90", "\np99", "\nmax",
    )  # fmt: skip
    phases = dict.fromkeys(row["phase"] for row in rows if "alternative" in row)
    made: list[tuple[str, ...]] = []
    for row in (row for phase in phases for row in rows if row["phase"] == phase):
        named = (
            row["phase"],
            row.get("alternative", "boxmatch"),
            row.get("alternative_version", ""),
        )
        if "skipped" in row:
            made.append((*named, row["skipped"]))
            continue
        answers = row["answer_ms"] or {}
        made.append(
            (
                *named,
                f"{row['events']:,}",
                number(row["events_per_second"]),
                *(optional(answers.get(name)) for name in ("p50", "p90", "p99", "max")),
            )
        )
    return Table(title, columns, tuple(made), 3)


def _stages(rows: Sequence[Row]) -> Table:
    title = "Means of the server's own stages, ms (for a request; matching for a group of them)"
    names = list(dict.fromkeys(name for row in rows for name in row["stages"]))
    made = (
        (row["phase"], *(optional(row["stages"].get(name, {}).get("mean_ms")) for name in names))
        for row in rows
    )
    return Table(title, ("phase", *names), tuple(made))


def _use(rows: Sequence[Row]) -> Table:
    columns = (
        "phase", "server\ncores", "generator\ncores", "written\nMB/s", "resident MB\nbefore",
        "after", "private MB\nbefore", "after", "slope\nMB/min", "second half\nMB/min",
    )  # fmt: skip
    sizes = ("resident_before", "resident_after", "private_before", "private_after")
    made = []
    for row in rows:
        memory = row["memory"]
        slopes = (memory["slope_per_minute"], memory["late_slope_per_minute"])
        made.append(
            (
                row["phase"],
                number(row["server_cores"]),
                optional(row.get("generator_cores")),
                number(row["written_bytes"] / row["seconds"] / 1e6),
                *(number(memory[name] / 1e6) for name in sizes),
                *("" if one is None else f"{one / 1e6:+.2f}" for one in slopes),
            )
        )
    return Table("What was used", columns, tuple(made))


# --- Spark -------------------------------------------------------------------------------------


def wait_tables(rows: Sequence[Row]) -> list[Table]:
    """The longest hold of each call, and where it was."""
    columns = ("beside", "took\ns", "longest hold\nms", "in other rounds\nms", "where")
    made = (
        (
            row["call"],
            number(row["seconds"]),
            number(row["hold_ms"]),
            ", ".join(map(number, sorted(row["holds_ms"])[1:])),
            row["place"],
        )
        for row in rows
    )
    return [Table("How long calls hold the GIL", columns, tuple(made))] if rows else []


def isolation_tables(rows: Sequence[Row]) -> list[Table]:
    """What a quiet feed waits beside each kind of work; how long each kind of start takes."""
    columns = ("beside", "took\ns", "requests", "median\nms", "99 %\nms", "longest\nms")
    beside = [row for row in rows if "answer_ms" in row]
    starts = [row for row in rows if "answer_ms" not in row]
    answers = tuple(
        (
            row["case"],
            number(row["seconds"]),
            number(row["requests"]),
            *(number(row["answer_ms"][share]) for share in ("p50", "p99", "max")),
        )
        for row in beside
    )
    started = tuple(
        (row["case"], number(row["subscriptions"]), number(row["seconds"])) for row in starts
    )
    made = [
        Table("What a quiet feed waits for an answer", columns, answers),
        Table("How long a start takes", ("", "subscriptions", "ready after\ns"), started),
    ]
    return [table for table in made if table.rows]


def route_tables(rows: Sequence[Row]) -> list[Table]:
    """Rates of workers beside programs that forward; how long a message is on its way."""
    columns = ("", "processes", "events/s", "of forwarding\nwith one", "CPU\nµs/event")
    drained = tuple(
        (
            row["case"],
            number(row["workers"]),
            number(row["events_per_s"]),
            optional(row["of_forwarding"]),
            number(row["cpu_us_per_event"]),
        )
        for row in rows
        if row["case"] != "latency"
    )
    paced = tuple(
        (
            number(row["events_per_s"]),
            *(number(row["latency_ms"][share]) for share in ("p50", "p99", "max")),
        )
        for row in rows
        if row["case"] == "latency"
    )
    made = [
        Table("Messages that wait", columns, drained),
        Table(
            "At half of that: from event to notification",
            ("events/s", "median\nms", "99 %\nms", "longest\nms"),
            paced,
        ),
    ]
    return [table for table in made if table.rows]


def spark_tables(results: Sequence[Row]) -> list[Table]:
    """Times, then what came before and what was held meanwhile."""
    made = [_times(results), _preparation(results), _worker_memory(results)]
    return [table for table in made if table.rows]


def adapt_tables(results: Sequence[Row]) -> list[Table]:
    """A stream under a fluctuating load: latency, and false matches against the promise."""
    columns = (
        "adjuster", "capacity\nevents/s", "events", "batches", "mean\ns", "deviation\ns", "99 %\ns",
        "max\ns", "inexact\nevents", "false\n%", "tolerated\n%", "highest\nrate %",
    )  # fmt: skip
    rows = []
    for row in results:
        took = row["latency_ms"]
        rates = [row[name] for name in ("measured_rate", "promised_rate", "highest_rate")]
        rows.append(
            (
                row["setting"]["adjustment"]["name"] if row["adaptive"] else "off",
                number(row["capacity"]),
                f"{row['events']:,}",
                f"{row['batches']:,}",
                *(number(took[name] / 1e3) for name in ("mean", "std", "p99", "max")),
                f"{row['inexact_events']:,}",
                *(number(100 * rate) for rate in rates),
            )
        )
    return [Table("Latency on Spark, event due to match", columns, tuple(rows), 1)]


def transitions_tables(results: Sequence[Row]) -> list[Table]:
    """Updates on Spark, and in spaces alone."""
    columns = (
        "subscriptions", "updates", "transitions\n/update", "Spark\ns", "Spark\nupdates/s",
        "Spark\nCPU s", "spaces\ns", "spaces\nupdates/s", "spaces\nCPU s", "Spark\n÷ spaces",
        "CPU\n÷ spaces",
    )  # fmt: skip
    rows = []
    for result in results:
        spark, alone, cpu_ratio = result["spark"], result["spaces"], result["cpu_ratio"]
        cpu = [spark["cpu_seconds"], alone["cpu_seconds"]]
        rows.append(
            (
                f"{result['parameters']['subscriptions']:,}",
                f"{result['updates']:,}",
                number(result["per_update"]),
                number(spark["seconds"]),
                f"{spark['per_second']:,.0f}",
                "" if cpu[0] is None else number(cpu[0]),
                number(alone["seconds"]),
                f"{alone['per_second']:,.0f}",
                number(cpu[1]),
                f"{number(result['ratio'])}×",
                "" if cpu_ratio is None else f"{number(cpu_ratio)}×",
            )
        )
    return [
        Table("Updates of publications, and what they enter and leave", columns, tuple(rows), 0)
    ]


def _spark_table(title: str, columns: Sequence[str], rows: list[tuple[Row, list[str]]]) -> Table:
    """A row begins with the numbers of subscriptions and events of its result."""
    made = (
        (f"{result['parameters']['subscriptions']:,}", f"{result['events']:,}", *cells)
        for result, cells in rows
    )
    return Table(title, ("subscriptions", "events", *columns), tuple(made), 0)


def _times(results: Sequence[Row]) -> Table:
    columns = (
        "Spark\ns", "Spark\nµs/event", "engine alone\ns", "of it\nmatching s", "Spark\n÷ engine",
        "pairs\n/event", "first job\ns", "join in SQL\nµs/event", "SQL\n÷ Spark",
    )  # fmt: skip
    rows = []
    for result in results:
        spark, joined = result["spark"], result["sql"]
        faster = result["engine"]["faster"]
        alone = result["engine"][faster]
        scaled = joined and joined["subscriptions"] < result["parameters"]["subscriptions"]
        cells = [
            number(spark["seconds"]),
            number(spark["microseconds"]),
            f"{number(alone['seconds'])}\n({faster})",
            number(alone["match_seconds"]),
            f"{number(result['overhead'])}×",
            number(spark["pairs"] / result["events"]),
            number(spark["cold_seconds"]),
            number(joined["microseconds"]) + ("\n(scaled)" if scaled else "") if joined else "",
            f"{number(result['sql_slower'])}×" if joined else "",
        ]
        rows.append((result, cells))
    return _spark_table(
        "Events read from Parquet, matched, pairs written to Parquet", columns, rows
    )


def _preparation(results: Sequence[Row]) -> Table:
    columns = ("events\nper s", "events\nMB", "build\ns", "build\nper s", "index\nMB", "shards")
    rows = []
    for result in results:
        made = result["prepare"]
        cells = [
            number(result["events"] / made["events_seconds"]),
            number(made["events_bytes"] / 1e6),
            number(made["build_seconds"]),
            number(made["build_per_second"]),
            number(made["index_bytes"] / 1e6),
            f"{made['shards']:,}",
        ]
        rows.append((result, cells))
    return _spark_table("Before: events made and written, index built", columns, rows)


def _worker_memory(results: Sequence[Row]) -> Table:
    columns = (
        "resident", "shared", "private", "its share\n(PSS)", "index\nresident", "index\nits share",
        "all shares of\nthe index", "index\non disk",
    )  # fmt: skip
    names = ("resident", "shared", "private", "proportional")
    rows = []
    for result in results:
        memory = result["memory"]
        for worker in memory["workers"] if memory else []:
            sizes = [worker[name] for name in (*names, "index_resident", "index_proportional")]
            sizes += [memory["index_proportional"], result["prepare"]["index_bytes"]]
            rows.append((result, [number(size / 1e6) for size in sizes]))
    title = "Memory of each Python worker, MB, when all together held most"
    return _spark_table(title, columns, rows)
