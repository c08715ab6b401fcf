"""Results for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from boxmatch_bench.report import number, table_of

Result = Mapping[str, Any]


def tables(results: Sequence[Result]) -> Iterator[Table]:
    """Times, then what came before and what was held meanwhile."""
    yield _times(results)
    yield _preparation(results)
    if any(result["memory"] for result in results):
        yield _memory(results)


def _table(title: str, *headings: str) -> Table:
    return table_of(title, "subscriptions", "events", *headings)


def _setting(result: Result) -> tuple[str, str]:
    return f"{result['parameters']['subscriptions']:,}", f"{result['events']:,}"


def _times(results: Sequence[Result]) -> Table:
    table = _table(
        "Events read from Parquet, matched, pairs written to Parquet",
        "Spark\ns", "Spark\nµs/event", "engine alone\ns", "of it\nmatching s", "Spark\n÷ engine",
        "pairs\n/event", "first job\ns", "join in SQL\nµs/event", "SQL\n÷ Spark",
    )  # fmt: skip
    for result in results:
        spark, joined = result["spark"], result["sql"]
        faster = result["engine"]["faster"]
        alone = result["engine"][faster]
        scaled = joined and joined["subscriptions"] < result["parameters"]["subscriptions"]
        table.add_row(
            *_setting(result),
            number(spark["seconds"]),
            number(spark["microseconds"]),
            f"{number(alone['seconds'])}\n({faster})",
            number(alone["match_seconds"]),
            f"{number(result['overhead'])}×",
            number(spark["pairs"] / result["events"]),
            number(spark["cold_seconds"]),
            number(joined["microseconds"]) + ("\n(scaled)" if scaled else "") if joined else "",
            f"{number(result['sql_slower'])}×" if joined else "",
        )
    return table


def _preparation(results: Sequence[Result]) -> Table:
    table = _table(
        "Before: events made and written, index built",
        "events\nper s", "events\nMB", "build\ns", "build\nper s", "index\nMB", "shards",
    )  # fmt: skip
    for result in results:
        made = result["prepare"]
        table.add_row(
            *_setting(result),
            number(result["events"] / made["events_seconds"]),
            number(made["events_bytes"] / 1e6),
            number(made["build_seconds"]),
            number(made["build_per_second"]),
            number(made["index_bytes"] / 1e6),
            f"{made['shards']:,}",
        )
    return table


def _memory(results: Sequence[Result]) -> Table:
    table = _table(
        "Memory of each Python worker, MB, when all together held most",
        "resident", "shared", "private", "its share\n(PSS)", "index\nresident", "index\nits share",
        "all shares of\nthe index", "index\non disk",
    )  # fmt: skip
    for result in results:
        memory = result["memory"]
        for worker in memory["workers"] if memory else []:
            sizes = (
                worker["resident"],
                worker["shared"],
                worker["private"],
                worker["proportional"],
                worker["index_resident"],
                worker["index_proportional"],
                memory["index_proportional"],
                result["prepare"]["index_bytes"],
            )
            table.add_row(*_setting(result), *(number(size / 1e6) for size in sizes))
    return table
