"""`boxmatch bench broker`: a broker on this machine under load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from boxmatch.cli.help import examples
from boxmatch.cli.terminal import output, progress
from boxmatch.extras import requires
from boxmatch_bench.cli.rows import (
    JsonLines,
    JsonPath,
    collect,
    folder_or_temporary,
    show,
    show_origin,
)

if TYPE_CHECKING:
    from boxmatch_bench.settings import BrokerOptions, BrokerSetting


@examples(
    "boxmatch bench broker",
    "boxmatch bench broker --subscriptions 10000 --subscribers 100 --seconds 5",
    "boxmatch bench broker --soak 600 --json soak.jsonl",
)
def bench_broker(
    subscriptions: Annotated[int, typer.Option(min=1, help="Subscriptions.")] = 100_000,
    subscribers: Annotated[int, typer.Option(min=1, help="Connected subscribers.")] = 1_000,
    attributes: Annotated[int, typer.Option(min=1, help="Attributes per event.")] = 20,
    predicates: Annotated[int, typer.Option(min=1, help="Ranges per subscription.")] = 5,
    width: Annotated[float, typer.Option(help="Width of a range, as a share of the domain.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = 1,
    seconds: Annotated[
        float, typer.Option(help="Seconds of batches at full speed; 0 to skip.")
    ] = 20.0,
    batch: Annotated[int, typer.Option(help="Events per batch.")] = 100,
    publishers: Annotated[int, typer.Option(help="Concurrent publishers.")] = 8,
    latency_seconds: Annotated[
        float, typer.Option(help="Seconds of single events; 0 to skip.")
    ] = 20.0,
    rate: Annotated[float, typer.Option(help="Single events per second.")] = 1_000.0,
    soak: Annotated[
        float, typer.Option(metavar="SECONDS", help="Seconds of soak test, which watches memory.")
    ] = 0.0,
    soak_rate: Annotated[float, typer.Option(help="Events per second of the soak test.")] = 5_000.0,
    warmup: Annotated[float, typer.Option(help="Warm-up in seconds.")] = 3.0,
    pool: Annotated[
        int, typer.Option(help="Distinct events, published repeatedly in whole batches.")
    ] = 100_000,
    put: Annotated[int, typer.Option(help="Subscriptions per request.")] = 100,
    sync: Annotated[Literal["full", "normal"], typer.Option(help="As in boxmatch serve.")] = "full",
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
    fixed rate, and optionally a soak test. Everything is durable, and all deliveries are compared
    with the engine's matches.
    """
    try:
        from boxmatch.workloads import RangeWorkload
        from boxmatch_bench.settings import BrokerOptions, BrokerSetting

        workload = RangeWorkload(
            subscriptions=subscriptions,
            attributes=attributes,
            event_size=attributes,
            predicates=predicates,
            width=width,
            seed=seed,
        )
        setting = BrokerSetting(workload=workload, subscribers=subscribers)
        options = BrokerOptions(
            seconds=seconds,
            batch=batch,
            publishers=publishers,
            latency_seconds=latency_seconds,
            rate=rate,
            soak_seconds=soak,
            soak_rate=soak_rate,
            warmup_seconds=warmup,
            pool=pool,
            put=put,
            sync=sync,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with requires("broker", "a broker"):
        import boxmatch_bench.broker.measure  # noqa: F401 - before a folder is made
    lines = JsonLines(json_path)
    with folder_or_temporary(scratch) as folder:
        _run(setting, options, folder, lines)


def _run(setting: BrokerSetting, options: BrokerOptions, folder: Path, lines: JsonLines) -> None:
    from boxmatch_bench.provenance import provenance
    from boxmatch_bench.tables import broker_tables

    origin = provenance()
    rows = collect(_measure(setting, options, folder), lines, origin)
    if lines.printed:
        return
    console = output()
    show(console, broker_tables(rows))
    disk = rows[0]["disk"]
    text = (
        f"{rows[0]['matches_per_event']:.2f} matches an event; sync {options.sync} on "
        f"{disk['filesystem'] or 'an unknown file system'}, where one fsync takes "
        f"{disk['fsync_ms']:.2f} ms; server, load generator and this on the same machine"
    )
    show_origin(console, text, origin)


def _measure(
    setting: BrokerSetting, options: BrokerOptions, folder: Path
) -> Iterator[dict[str, Any]]:
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    from boxmatch_bench.broker.measure import measure

    columns = (BarColumn(bar_width=24), TimeElapsedColumn(), TextColumn("{task.description}"))
    with progress(*columns) as bar:
        task = bar.add_task("", total=None)

        def tell(name: str, done: float = 0.0, total: float | None = None) -> None:
            bar.update(task, description=name, completed=done, total=total)

        yield from measure(setting, options, folder, tell)
