"""`boxmatch demo`: a made-up market feed against a million standing alerts."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxmatch.cli.help import examples
from boxmatch.cli.terminal import AsJson, output, print_json, progress

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from rich.console import Console
    from rich.progress import Progress

    from boxmatch.engine.matcher import Matcher
    from boxmatch.workloads import MarketWorkload

_TEXT_SHARE = 0.1  # of the alerts come as filter text, the others as columns
_ODD_SHARE = 0.3  # of those texts use OR, IN, NOT or LIKE
_BUSIEST = 5
_SINGLE = 1_000


@dataclass
class Outcome:
    """What the demonstration found."""

    subscriptions: int = 0
    ticks: int = 0
    matches: int = 0
    subscribe_seconds: float = 0.0
    match_seconds: float = 0.0
    single_microseconds: float = 0.0
    busiest: list[dict[str, Any]] = field(default_factory=list)
    explained: str = ""


@examples(
    "boxmatch demo",
    "boxmatch demo --subscriptions 10000 --ticks 1000   # a second",
    "boxmatch demo --threads 1 --json",
)
def demo(
    subscriptions: Annotated[int, typer.Option(min=10, help="Subscriptions.")] = 1_000_000,
    ticks: Annotated[int, typer.Option(min=1, help="Ticks to match.")] = 100_000,
    batch: Annotated[int, typer.Option(min=1, help="Ticks per batch.")] = 5_000,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads; all cores by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Match a synthetic market feed against a million subscriptions."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from boxmatch.engine.matcher import Matcher
    from boxmatch.workloads import MarketWorkload

    market = MarketWorkload(seed=seed)
    matcher = Matcher(market.schema)
    outcome = Outcome()
    columns = (
        TextColumn("{task.description:<13}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rate]}"),
    )
    with progress(*columns, transient=False) as bars:
        _subscribe(matcher, market, subscriptions, outcome, bars)
        hits, last = _match(matcher, market, ticks, batch, threads, outcome, bars)
    _single(matcher, market.tick_dicts(0, min(ticks, _SINGLE)), outcome)
    _look(matcher, market, hits, last, outcome)
    if as_json:
        print_json(vars(outcome))
    else:
        _show(output(prose=True), outcome)


def _subscribe(
    matcher: Matcher, market: MarketWorkload, count: int, outcome: Outcome, progress: Progress
) -> None:
    task = progress.add_task("subscriptions", total=count, rate="compiling kernels")
    matcher.warmup()
    texts = int(count * _TEXT_SHARE)
    columns = count - texts
    odd = int(texts * _ODD_SHARE)
    steps = (
        (columns, market.alerts, "as columns"),
        (count - odd, market.alert_texts, "as filter text"),
        (count, market.odd_texts, "as text with OR, IN, NOT, LIKE"),
    )
    start = 0
    for stop, make, label in steps:
        progress.update(task, rate=label)
        table = make(start, stop)
        began = perf_counter()
        matcher.subscribe_many(table)
        outcome.subscribe_seconds += perf_counter() - began
        progress.update(task, completed=stop)
        start = stop
    progress.update(task, rate="indexing")
    began = perf_counter()
    matcher.compact()
    outcome.subscribe_seconds += perf_counter() - began
    outcome.subscriptions = len(matcher)
    progress.update(task, rate=f"{count / outcome.subscribe_seconds:,.0f} per second")


def _match(
    matcher: Matcher,
    market: MarketWorkload,
    ticks: int,
    batch: int,
    threads: int | None,
    outcome: Outcome,
    progress: Progress,
) -> tuple[npt.NDArray[np.int64], tuple[int, int] | None]:
    """Matches per subscription, and one tick and subscription that matched."""
    import numpy as np

    task = progress.add_task("ticks", total=ticks, rate="")
    hits = np.zeros(outcome.subscriptions, np.int64)
    last = None
    for start in range(0, ticks, batch):
        events = market.ticks(start, min(start + batch, ticks))
        began = perf_counter()
        result = matcher.match_batch(events, threads=threads)
        outcome.match_seconds += perf_counter() - began
        outcome.ticks += events.num_rows
        outcome.matches += len(result.subscription)
        found = np.asarray(result.subscription)
        hits += np.bincount(found, minlength=len(hits))
        if result:
            last = (start + int(result.event[-1]), int(found[-1]))
        rate = f"{outcome.matches / outcome.match_seconds:,.0f} matches per second"
        progress.update(task, advance=events.num_rows, rate=rate)
    return hits, last


def _single(matcher: Matcher, events: list[dict[str, Any]], outcome: Outcome) -> None:
    taken = []
    for event in events:
        began = perf_counter()
        matcher.match(event)
        taken.append(perf_counter() - began)
    outcome.single_microseconds = 1e6 * median(taken)


def _look(
    matcher: Matcher,
    market: MarketWorkload,
    hits: npt.NDArray[np.int64],
    last: tuple[int, int] | None,
    outcome: Outcome,
) -> None:
    for row in (-hits).argsort(kind="stable")[:_BUSIEST].tolist():
        if hits[row]:
            text = str(matcher.filter_of(row))
            outcome.busiest.append({"id": row, "matches": int(hits[row]), "filter": text})
    if last:
        tick, subscription = last
        (event,) = market.tick_dicts(tick, tick + 1)
        shown = ", ".join(f"{name} {value}" for name, value in event.items())
        outcome.explained = f"{shown}\n{matcher.explain(event, subscription)}"


def _show(console: Console, outcome: Outcome) -> None:
    from rich.table import Table

    per_tick = 1e6 * outcome.match_seconds / outcome.ticks
    console.print(
        f"\n{outcome.ticks:,} ticks against {outcome.subscriptions:,} subscriptions: "
        f"{outcome.matches:,} matches in {outcome.match_seconds:.2f} s, "
        f"{outcome.matches / outcome.match_seconds:,.0f} per second, {per_tick:.1f} µs per tick."
        f"\nOne tick at a time: {outcome.single_microseconds:.0f} µs (median of `match`).\n"
    )
    table = Table(title="Busiest subscriptions", title_justify="left")
    table.add_column("id", justify="right")
    table.add_column("matches", justify="right")
    table.add_column("filter")
    for row in outcome.busiest:
        table.add_row(str(row["id"]), f"{row['matches']:,}", row["filter"])
    console.print(table)
    if outcome.explained:
        console.print("\nExplanation of one match:")
        console.print(outcome.explained, markup=False)
