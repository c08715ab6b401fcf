"""`boxmatch bench isolation`: what one feed of a broker notices of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boxmatch.cli.help import examples
from boxmatch.cli.options import with_options
from boxmatch.extras import requires
from boxmatch_bench.cli.rows import JsonPath, Row, measured, present
from boxmatch_bench.options import IsolationOptions

if TYPE_CHECKING:
    from rich.console import Console


@examples(
    "boxmatch bench isolation",
    "boxmatch bench isolation --only extend",
    "boxmatch bench isolation --json isolation.jsonl",
)
@with_options
def bench_isolation(*, options: IsolationOptions, json_path: JsonPath = None) -> None:
    """Measure what one feed of a broker notices of work on another.

    Another process publishes single events to a quiet feed, one after another, while a busy feed is
    extended, loaded, published to and asked about. Then the broker is started again, with the files
    of its indexes and without them.
    """
    with requires("broker", "a broker"):
        from boxmatch_bench.broker.isolation import measure
    from boxmatch_bench.tables import isolation_tables

    def say(_: Console, rows: list[Row]) -> str:
        return f"{options.subscriptions:,} subscriptions, {options.events:,} events in a request"

    present(measured(measure, options), json_path, isolation_tables, say)
