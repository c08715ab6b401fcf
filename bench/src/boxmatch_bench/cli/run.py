"""`boxmatch bench`: measure, check, compare."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxmatch.cli.help import examples, filter_by_prefix
from boxmatch.cli.options import refused_parameters, with_options
from boxmatch_bench.cli.rows import JsonPath, Row, measure_parts, present
from boxmatch_bench.options import COMPETITORS, MatcherOptions, Overrides

if TYPE_CHECKING:
    from rich.console import Console

    from boxmatch_bench.tables import Table


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
    "boxmatch bench cpp --json cpp.jsonl                # sixteen settings",
    "boxmatch bench equality --index opindex --competitors none --json",
    "boxmatch bench --index hem --index-option groups=64",
    "boxmatch bench --device cuda --competitors none   # on a graphics card, too",
)
@with_options
def bench(
    *,
    presets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PRESET",
            help="hem-default (if none is given), cpp, subscriptions, equality, ranges-10k, "
            "ranges-100k, expressions, needles, regexes, lists, dialects, or all.",
            autocompletion=preset_names,
        ),
    ] = None,
    overrides: Overrides,
    updates: Annotated[
        int | None, typer.Option(help="Subscriptions to add, then remove, one by one.")
    ] = None,
    options: MatcherOptions,
    index: Annotated[
        str, typer.Option(help="Index to measure.", autocompletion=index_names)
    ] = "tile",
    index_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Parameter of the index; repeatable."),
    ] = None,
    competitors: Annotated[
        str, typer.Option(help="Comma-separated: scan, numpy, numpy-int32, duckdb; or none.")
    ] = ",".join(COMPETITORS),
    json_path: JsonPath = None,
) -> None:
    """Benchmark an index, check its results, and time competitors.

    The workload is seeded. The results of some events are compared with brute force, id by id.
    Competitors (NumPy, DuckDB) are timed on the same data.
    """
    from boxmatch_bench.measure import STAGES, measure_matcher
    from boxmatch_bench.settings import choose_presets

    names = [] if competitors in ("", "none") else competitors.split(",")
    with refused_parameters():
        settings = choose_presets(presets or ["hem-default"], overrides.given, updates)
        options = replace(
            options,
            index=index,
            index_options=dict(map(_index_option, index_option or [])),
            competitors=tuple(name.strip() for name in names),
        )
    parts: list[tuple[str, Callable[[Callable[[str], None]], Row]]] = [
        (setting.preset, partial(measure_matcher, setting, options)) for setting in settings
    ]
    stages = len(parts) * (STAGES + len(options.competitors))
    present(measure_parts(parts, stages), json_path, _tables, partial(_say, options))


def _index_option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _tables(rows: list[Row]) -> list[Table]:
    from boxmatch_bench.tables import preset_tables

    return list(preset_tables(rows))


def _say(options: MatcherOptions, _: Console, rows: list[Row]) -> str:
    index = [options.index, *(f"{name}={one}" for name, one in options.index_options.items())]
    return (
        f"index {' '.join(index)}, {options.threads} thread(s), batches of {options.batch:,}, "
        f"{rows[0]['checked_events']} events of each setting checked against scan"
    )
