"""`boxmatch bench`: measure, check, compare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxmatch.cli.help import examples, filter_by_prefix
from boxmatch.cli.terminal import output, progress
from boxmatch_bench.cli.rows import JsonLines, JsonPath, collect, show, show_origin

if TYPE_CHECKING:
    from boxmatch_bench.settings import MatcherOptions, MatcherSetting


def preset_names(incomplete: str) -> list[str]:
    """Presets of `boxmatch bench`."""
    from boxmatch_bench.settings import PRESETS

    return filter_by_prefix([*PRESETS, "all"], incomplete)


def index_names(incomplete: str) -> list[str]:
    """Indexes by name."""
    from boxmatch.indexes.registry import index_names

    return filter_by_prefix(list(index_names()), incomplete)


@examples(
    "boxmatch bench                                     # a million subscriptions",
    "boxmatch bench --subscriptions 10000 --repeats 1   # seconds",
    "boxmatch bench width --json width.jsonl            # a line for each width",
    "boxmatch bench equality --index opindex --competitors none --json",
    "boxmatch bench --index hem --index-option groups=64",
)
def bench(
    presets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PRESET",
            help="hem-default (if none is given), width, subscription-size, event-size, "
            "attributes, subscriptions, equality, ranges-10k, ranges-100k, or all.",
            autocompletion=preset_names,
        ),
    ] = None,
    subscriptions: Annotated[int | None, typer.Option(help="Subscriptions.")] = None,
    attributes: Annotated[int | None, typer.Option(help="Attributes of the schema (d).")] = None,
    predicates: Annotated[int | None, typer.Option(help="Predicates per subscription (k).")] = None,
    event_size: Annotated[int | None, typer.Option(help="Attributes per event.")] = None,
    width: Annotated[float | None, typer.Option(help="Width of a range, 0 to 1 (w).")] = None,
    domain: Annotated[int | None, typer.Option(help="Largest value; values start at 1.")] = None,
    values: Annotated[
        str | None, typer.Option(help="Distribution: uniform, normal, pareto or zipf.")
    ] = None,
    value_alpha: Annotated[
        float | None, typer.Option(help="Skew of pareto and zipf values.")
    ] = None,
    attribute_choice: Annotated[
        str | None, typer.Option(help="How attributes are chosen: uniform or zipf.")
    ] = None,
    attribute_alpha: Annotated[float | None, typer.Option(help="Skew of zipf attributes.")] = None,
    events: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            exists=True,
            dir_okay=False,
            help="Text file with one event per line: numbers from 0 to the domain, separated by "
            "commas, tabs or spaces. Subscriptions are generated to fit.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the workload.")] = None,
    event_count: Annotated[int, typer.Option(help="Events to measure in batches.")] = 2_000,
    batch: Annotated[int, typer.Option(help="Events per batch.")] = 2_000,
    single: Annotated[int, typer.Option(help="Events to match one by one.")] = 2_000,
    updates: Annotated[
        int | None, typer.Option(help="Subscriptions to add, then remove, one by one.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Repeats; batch times are the best.")] = 5,
    threads: Annotated[int, typer.Option(help="Threads for batches.")] = 1,
    index: Annotated[
        str, typer.Option(help="Index to measure.", autocompletion=index_names)
    ] = "tile",
    index_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Parameter of the index; repeatable."),
    ] = None,
    competitors: Annotated[
        str, typer.Option(help="Comma-separated: scan, numpy, numpy-int32, duckdb; or none.")
    ] = "scan,numpy,numpy-int32,duckdb",
    check: Annotated[int, typer.Option(help="Events to compare with scan, id by id.")] = 20,
    start: Annotated[
        bool, typer.Option("--start", help="Also time process start, cold and warm.")
    ] = False,
    json_path: JsonPath = None,
) -> None:
    """Benchmark an index, check its results, and time competitors.

    The workload is seeded. The results of some events are compared with brute force, id by id.
    Competitors (NumPy, DuckDB) are timed on the same data.
    """
    from boxmatch_bench.settings import MatcherOptions, choose_presets

    workload = {
        "subscriptions": subscriptions,
        "attributes": attributes,
        "predicates": predicates,
        "event_size": event_size,
        "width": width,
        "domain": domain,
        "values": values,
        "value_alpha": value_alpha,
        "attribute_choice": attribute_choice,
        "attribute_alpha": attribute_alpha,
        "event_file": events,
        "seed": seed,
    }
    overrides = {name: value for name, value in workload.items() if value is not None}
    try:
        settings = choose_presets(presets or ["hem-default"], overrides, updates)
        options = MatcherOptions(
            index=index,
            index_options=dict(map(_index_option, index_option or [])),
            events=event_count,
            batch=batch,
            single=single,
            repeats=repeats,
            threads=threads,
            check=check,
            competitors=()
            if competitors in ("", "none")
            else tuple(name.strip() for name in competitors.split(",")),
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    _run(settings, options, json_path, start)


def _index_option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _run(
    settings: list[MatcherSetting], options: MatcherOptions, json_path: Path | None, start: bool
) -> None:
    from boxmatch_bench.provenance import provenance
    from boxmatch_bench.tables import preset_tables

    lines = JsonLines(json_path)
    origin = provenance()
    rows = collect(_measure(settings, options, start), lines, origin)
    if lines.printed:
        return
    console = output()
    results = rows[: len(settings)]
    show(console, preset_tables(results))
    for row in rows[len(settings) :]:
        for kind in ("warm", "cold"):
            console.print(
                f"A new process, {kind}: imports in {row[kind]['import_seconds']:.2f} s, "
                f"first match {row[kind]['first_match_seconds']:.2f} s later."
            )
    index = " ".join(
        [options.index, *(f"{name}={one}" for name, one in options.index_options.items())]
    )
    text = (
        f"index {index}, {options.threads} thread(s), batches of {options.batch:,}, "
        f"{results[0]['checked_events']} events of each setting checked against scan"
    )
    show_origin(console, text, origin)


def _measure(
    settings: list[MatcherSetting], options: MatcherOptions, start: bool
) -> Iterator[dict[str, Any]]:
    """A row for each setting, and with `start` one of new processes."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    from boxmatch_bench.answers import within
    from boxmatch_bench.measure import STAGES, measure_matcher
    from boxmatch_bench.timing import start_seconds

    stages = STAGES + len(options.competitors)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with progress(*columns) as bar:
        task = bar.add_task("", total=stages * len(settings) + 2 * start)
        done = 0

        def stage(name: str) -> None:
            nonlocal done
            bar.update(task, description=f"{label}: {name}", completed=done)
            done += 1

        for setting in settings:
            label = setting.preset
            with within(label):
                yield measure_matcher(setting, options, stage)
        if start:
            label = "start"
            stage("warm process")
            warm = start_seconds()
            stage("cold process")
            yield {"preset": label, "warm": warm, "cold": start_seconds(cold=True)}
