"""`boxmatch bench broker`: a broker on this machine under load."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from boxmatch.cli.help import examples
from boxmatch.cli.terminal import output, progress
from boxmatch.extras import requires
from boxmatch_bench.cli.json_lines import JsonLines, JsonPath

if TYPE_CHECKING:
    from rich.console import Console

    from boxmatch_bench.settings import BrokerOptions, BrokerSetting


@examples(
    "boxmatch bench broker",
    "boxmatch bench broker --subscriptions 10000 --subscribers 100 --seconds 5",
    "boxmatch bench broker --soak 600 --json soak.jsonl",
)
def bench_broker(
    subscriptions: Annotated[int, typer.Option(min=1, help="Subscriptions.")] = 100_000,
    subscribers: Annotated[
        int, typer.Option(min=1, help="Connected subscribers that hold them.")
    ] = 1_000,
    attributes: Annotated[int, typer.Option(min=1, help="Attributes of events.")] = 20,
    predicates: Annotated[int, typer.Option(min=1, help="Ranges of a subscription.")] = 5,
    width: Annotated[float, typer.Option(help="Share of the domain that a range covers.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = 1,
    seconds: Annotated[
        float, typer.Option(help="Publish batches as fast as it goes for so long; 0 leaves it out.")
    ] = 20.0,
    batch: Annotated[int, typer.Option(help="Events in a batch.")] = 100,
    publishers: Annotated[int, typer.Option(help="Batches under way at a time.")] = 8,
    latency_seconds: Annotated[
        float, typer.Option(help="Publish single events for so long; 0 leaves it out.")
    ] = 20.0,
    rate: Annotated[float, typer.Option(help="Single events a second.")] = 1_000.0,
    soak: Annotated[
        float, typer.Option(metavar="SECONDS", help="Watch memory for so long, under batches.")
    ] = 0.0,
    soak_rate: Annotated[float, typer.Option(help="Events a second meanwhile.")] = 5_000.0,
    warmup: Annotated[float, typer.Option(help="Seconds before the first figure.")] = 3.0,
    pool: Annotated[
        int, typer.Option(help="Different events, published again and again; whole batches.")
    ] = 100_000,
    put: Annotated[
        int, typer.Option(help="Subscriptions in one request; 1 puts each by itself.")
    ] = 100,
    sync: Annotated[
        Literal["full", "normal"], typer.Option(help="As with boxmatch serve.")
    ] = "full",
    scratch: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Where the broker's folder is, kept. One that an earlier run has left is used "
            "with the subscriptions that are in it, which saves loading them.",
        ),
    ] = None,
    json_path: JsonPath = None,
) -> None:
    """Run a broker on this machine and put it under load.

    The load comes from another process, over loopback: batches as fast as it goes, single events
    at a rate, and if wanted a soak; everything durable. All that is delivered is compared with the
    engine's matches.
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
    console = output()
    lines = JsonLines(json_path)
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
        _run(console, setting, options, scratch, lines)
        return
    with tempfile.TemporaryDirectory(prefix="boxmatch-bench-") as folder:
        _run(console, setting, options, Path(folder), lines)


def _run(
    console: Console, setting: BrokerSetting, options: BrokerOptions, folder: Path, lines: JsonLines
) -> None:
    from boxmatch_bench.provenance import provenance, shown_commit
    from boxmatch_bench.tables import broker_tables, console_table

    origin = provenance()
    rows = _measure(setting, options, folder, lines, origin)
    if lines.printed:
        return
    for table in broker_tables(rows):
        console.print(console_table(table))
    machine, disk = origin["machine"], rows[0]["disk"]
    console.print(
        f"[dim]{rows[0]['matches_per_event']:.2f} matches an event; sync {options.sync} on "
        f"{disk['filesystem'] or 'an unknown file system'}, where one fsync takes "
        f"{disk['fsync_ms']:.2f} ms; server, load generator and this on the same machine: "
        f"{machine['cpu']}, {machine['cores']} cores, Python {origin['python']}, "
        f"commit {shown_commit(origin)}[/dim]"
    )


def _measure(
    setting: BrokerSetting,
    options: BrokerOptions,
    folder: Path,
    lines: JsonLines,
    origin: dict[str, Any],
) -> list[dict[str, Any]]:
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    with requires("broker", "a broker"):
        from boxmatch_bench.broker.measure import measure
    from boxmatch_bench.checking import FailedError, MismatchError

    rows: list[dict[str, Any]] = []
    columns = (BarColumn(bar_width=24), TimeElapsedColumn(), TextColumn("{task.description}"))
    with progress(*columns) as bar:
        task = bar.add_task("", total=None)

        def tell(name: str, done: float = 0.0, total: float | None = None) -> None:
            bar.update(task, description=name, completed=done, total=total)

        try:
            for row in measure(setting, options, folder, tell):
                row |= origin
                rows.append(row)
                lines.add(row)
        except (MismatchError, FailedError) as error:
            bar.stop()
            kind = "wrong answer" if isinstance(error, MismatchError) else "no answer"
            typer.echo(f"boxmatch: {kind}: {error}", err=True)
            raise typer.Exit(1) from None
    return rows
