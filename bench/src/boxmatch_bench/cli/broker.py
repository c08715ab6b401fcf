"""`boxmatch bench broker`: a broker on this machine under load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from boxmatch.cli.help import examples
from boxmatch.cli.options import refused_parameters, with_options
from boxmatch.extras import requires
from boxmatch_bench.cli.rows import JsonPath, Row, bar, folder_or_temporary, present
from boxmatch_bench.options import BrokerLoad, BrokerOptions

if TYPE_CHECKING:
    from rich.console import Console

    from boxmatch_bench.settings import BrokerSetting


@examples(
    "boxmatch bench broker",
    "boxmatch bench broker --subscriptions 10000 --subscribers 100 --seconds 5",
    "boxmatch bench broker --soak 600 --json soak.jsonl",
)
@with_options
def bench_broker(
    *,
    held: BrokerLoad,
    options: BrokerOptions,
    scratch: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Folder for the broker's data, which is kept. A later run reuses its "
            "subscriptions instead of loading them.",
        ),
    ] = None,
    json_path: JsonPath = None,
) -> None:
    """Benchmark a broker on this machine.

    Another process generates the load over loopback: batches at full speed, single events at a
    fixed rate, closed loops, single events at half of the rate that sixteen in flight reached, and
    optionally a soak test. Everything is durable, and all deliveries are compared with the engine's
    matches. The closed loops are repeated with bare SQLite and with NATS JetStream, which sync
    every write but neither match nor deliver.
    """
    with refused_parameters():
        from boxmatch.workloads import RangeWorkload
        from boxmatch_bench.settings import BrokerSetting

        parameters = asdict(held) | {"event_size": held.attributes}
        subscribers = parameters.pop("subscribers")
        setting = BrokerSetting(workload=RangeWorkload(**parameters), subscribers=subscribers)
    with requires("broker", "a broker"):
        import boxmatch_bench.broker.measure  # noqa: F401 - before a folder is made
    from boxmatch_bench.tables import broker_tables

    def say(_: Console, rows: list[Row]) -> str:
        disk = rows[0]["disk"]
        return (
            f"{rows[0]['matches_per_event']:.2f} matches an event; sync {options.sync} on "
            f"{disk['filesystem'] or 'an unknown file system'}, where one fsync takes "
            f"{disk['fsync_ms']:.2f} ms; server, load generator and this on the same machine"
        )

    with folder_or_temporary(scratch) as folder:
        present(_measure(setting, options, folder), json_path, broker_tables, say)


def _measure(setting: BrokerSetting, options: BrokerOptions, folder: Path) -> Iterator[Row]:
    from boxmatch_bench.broker.measure import measure

    with bar(counted=False) as shown:
        task = shown.add_task("", total=None)

        def tell(name: str, done: float = 0.0, total: float | None = None) -> None:
            shown.update(task, description=name, completed=done, total=total)

        yield from measure(setting, options, folder, tell)
