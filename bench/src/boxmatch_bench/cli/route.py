"""`boxmatch bench route`: a route on NATS beside a program that forwards every message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from boxmatch.cli.help import examples
from boxmatch.cli.options import with_options
from boxmatch.extras import requires
from boxmatch_bench.cli.rows import JsonPath, Row, bar, folder_or_temporary, present
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

    def rows() -> Iterator[Row]:
        with folder_or_temporary(None) as folder, bar(counted=False) as shown:
            task = shown.add_task("", total=None)

            def tell(name: str, done: float = 0.0, total: float | None = None) -> None:
                shown.update(task, description=name, completed=done, total=total)

            yield from measure(options, folder, tell)

    present(rows(), json_path, route_tables, say)
