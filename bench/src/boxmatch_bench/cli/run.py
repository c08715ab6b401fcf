"""`boxmatch bench`: measure, check, compare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxmatch.cli.help import examples
from boxmatch.cli.terminal import output, progress
from boxmatch_bench.cli.completion import index_names, preset_names
from boxmatch_bench.cli.json_lines import JsonLines, JsonPath

if TYPE_CHECKING:
    from rich.console import Console

    from boxmatch_bench.settings import MatcherOptions, MatcherSetting


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
    predicates: Annotated[int | None, typer.Option(help="Predicates a subscription (k).")] = None,
    event_size: Annotated[int | None, typer.Option(help="Attributes of an event.")] = None,
    width: Annotated[float | None, typer.Option(help="Width of a range, 0 to 1 (w).")] = None,
    domain: Annotated[int | None, typer.Option(help="Values run from 1 to this.")] = None,
    values: Annotated[
        str | None, typer.Option(help="Distribution: uniform, normal, pareto or zipf.")
    ] = None,
    value_alpha: Annotated[float | None, typer.Option(help="Skew of pareto and zipf.")] = None,
    attribute_choice: Annotated[
        str | None, typer.Option(help="How attributes are chosen: uniform or zipf.")
    ] = None,
    attribute_alpha: Annotated[float | None, typer.Option(help="Skew of that choice.")] = None,
    events: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            exists=True,
            dir_okay=False,
            help="Text file with an event a line, numbers from 0 to the domain separated by "
            "commas, tabs or spaces. Subscriptions are made to fit it.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the workload.")] = None,
    event_count: Annotated[int, typer.Option(help="Events to measure in batches.")] = 2_000,
    batch: Annotated[int, typer.Option(help="Events in a batch.")] = 2_000,
    single: Annotated[int, typer.Option(help="Events to match one by one.")] = 2_000,
    updates: Annotated[
        int | None, typer.Option(help="Subscriptions to add, then remove, one by one.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Batch times are the best of so many.")] = 5,
    threads: Annotated[int, typer.Option(help="Threads for batches.")] = 1,
    index: Annotated[
        str, typer.Option(help="Index to measure.", autocompletion=index_names)
    ] = "tile",
    index_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Parameter of the index; repeatable."),
    ] = None,
    competitors: Annotated[
        str, typer.Option(help="Comma-separated, of scan, numpy, numpy-int32, duckdb; or none.")
    ] = "scan,numpy,numpy-int32,duckdb",
    check: Annotated[int, typer.Option(help="Events to compare with scan, id by id.")] = 20,
    start: Annotated[
        bool, typer.Option("--start", help="Also time new processes, cold and warm.")
    ] = False,
    json_path: JsonPath = None,
) -> None:
    """Measure an index, check its answers, compare with others.

    The workload is seeded. Answers for some events are compared with brute force, id by id;
    others (NumPy, DuckDB) are timed on the same data.
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
    settings: list[MatcherSetting],
    options: MatcherOptions,
    json_path: Path | None,
    with_start: bool,
) -> None:
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    from boxmatch_bench.checking import MismatchError
    from boxmatch_bench.measure import STAGES, measure_matcher
    from boxmatch_bench.provenance import provenance
    from boxmatch_bench.tables import console_table, preset_tables
    from boxmatch_bench.timing import start_seconds

    lines = JsonLines(json_path)
    console = output()
    origin = provenance()
    results: list[dict[str, Any]] = []
    per_setting = STAGES + len(options.competitors)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with progress(*columns) as bar:
        task = bar.add_task("", total=per_setting * len(settings) + 2 * with_start)
        done = 0

        def stage(name: str) -> None:
            nonlocal done
            label = settings[len(results)].preset if len(results) < len(settings) else "start"
            bar.update(task, description=f"{label}: {name}", completed=done)
            done += 1

        started = {}
        for setting in settings:
            try:
                result = measure_matcher(setting, options, stage)
            except MismatchError as error:
                bar.stop()
                typer.echo(f"boxmatch: wrong answer in {setting.preset}: {error}", err=True)
                raise typer.Exit(1) from None
            result |= origin
            results.append(result)
            lines.add(result)
        if with_start:
            stage("warm process")
            started["warm"] = start_seconds()
            stage("cold process")
            started["cold"] = start_seconds(cold=True)
            lines.add({"preset": "start", **started, **origin})
    if lines.printed:
        return
    for table in preset_tables(results):
        console.print(console_table(table))
    _footer(console, results, origin, started)


def _footer(
    console: Console, results: list[dict[str, Any]], origin: dict[str, Any], started: dict[str, Any]
) -> None:
    from boxmatch_bench.provenance import shown_commit

    for kind, figures in started.items():
        console.print(
            f"A new process, {kind}: imports in {figures['import_seconds']:.2f} s, "
            f"first match {figures['first_match_seconds']:.2f} s later."
        )
    machine, options = origin["machine"], results[0]["options"]
    index = " ".join(
        [options["index"], *(f"{name}={one}" for name, one in options["index_options"].items())]
    )
    console.print(
        f"[dim]index {index}, {options['threads']} thread(s), batches of "
        f"{options['batch']:,}, {results[0]['checked_events']} events of each setting checked "
        f"against scan; {machine['cpu']}, {machine['cores']} cores, Python {origin['python']}, "
        f"commit {shown_commit(origin)}[/dim]"
    )
