"""`boxmatch bench start`: how soon a new process answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from boxmatch.cli.help import examples
from boxmatch.cli.options import refused_parameters
from boxmatch_bench.cli.rows import JsonPath, Row, bar, present

if TYPE_CHECKING:
    from rich.console import Console


@examples("boxmatch bench start", "boxmatch bench start --form dicts --json start.jsonl")
def bench_start(
    form: Annotated[
        str, typer.Option(help="Comma-separated: texts, dicts, columns, arrays.")
    ] = "texts,dicts,columns,arrays",
    subscriptions: Annotated[int, typer.Option(min=1, help="Subscriptions.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = 1,
    json_path: JsonPath = None,
) -> None:
    """Time new processes until their first answers and their index.

    Each form of subscriptions has a process with an empty cache of kernels and one with a full
    cache. The first goes on until all kernels are compiled, a minute or two, and compares its
    answers with brute force.
    """
    from boxmatch_bench.start import FORMS, measure_start, start_table

    forms = [name.strip() for name in form.split(",")]
    with refused_parameters():
        for name in forms:
            if name not in FORMS:
                raise ValueError(f"no form is called {name!r}; there are: {', '.join(FORMS)}")

    def measured() -> Iterator[Row]:
        with bar() as shown:
            task = shown.add_task("", total=2 * len(forms))
            for name in forms:
                shown.update(task, description=name)
                for row in measure_start(name, subscriptions=subscriptions, seed=seed):
                    yield row
                    shown.advance(task)

    def say(_: Console, rows: list[Row]) -> str:
        return f"{subscriptions:,} subscriptions, batches of 300; figures in seconds"

    present(measured(), json_path, lambda rows: [start_table(rows)], say)
