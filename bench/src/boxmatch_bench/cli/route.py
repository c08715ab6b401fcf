"""`boxmatch bench route`: a route on NATS beside a program that forwards every message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boxmatch.cli.help import examples
from boxmatch.cli.options import with_options
from boxmatch.extras import requires
from boxmatch_bench.cli.rows import JsonPath, Row, measured, present
from boxmatch_bench.options import RouteOptions

if TYPE_CHECKING:
    from rich.console import Console


@examples(
    "boxmatch bench route",
    "boxmatch bench route --subscriptions 1000000 --json route.jsonl",
)
@with_options
def bench_route(*, options: RouteOptions, json_path: JsonPath = None) -> None:
    """Measure a route on NATS beside a program that forwards all.

    A server, one worker and then two, on this machine. What they store is compared with a scan.
    """
    with requires("nats", "a route"):
        from boxmatch_bench.route.measure import measure
    from boxmatch_bench.tables import route_tables

    def say(_: Console, rows: list[Row]) -> str:
        return f"{options.subscriptions:,} subscriptions of five ranges, {options.events:,} events"

    present(measured(measure, options), json_path, route_tables, say)
