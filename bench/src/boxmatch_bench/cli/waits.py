"""`boxmatch bench waits`: how long an event loop waits beside the library."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import typer

from boxmatch.cli.help import examples
from boxmatch.cli.options import with_options
from boxmatch_bench.cli.rows import JsonPath, Row, folder_or_temporary, measure_parts, present
from boxmatch_bench.options import WaitOptions

if TYPE_CHECKING:
    from rich.console import Console


@examples(
    "boxmatch bench waits",
    "boxmatch bench waits --scale 0.1 --only subscribe_many",
    "boxmatch bench waits --json waits.jsonl",
)
@with_options
def bench_waits(*, options: WaitOptions, json_path: JsonPath = None) -> None:
    """Measure how long calls hold the GIL.

    A thread that wants the GIL all the time runs beside each of the long calls of the library.
    What it waits for the scheduler is subtracted.
    """
    from boxmatch_bench.tables import wait_tables
    from boxmatch_bench.waits.cases import CASES, Supplies
    from boxmatch_bench.waits.measure import measure_holds

    chosen = {name: prepare for name, prepare in CASES.items() if options.only in name}
    if not chosen:
        raise typer.BadParameter(f"no call has {options.only!r} in its name")

    def say(_: Console, rows: list[Row]) -> str:
        return f"scale {options.scale}, {options.rounds} round(s), the shortest of their maxima"

    with folder_or_temporary(None) as folder:
        supplies = Supplies(folder, scale=options.scale, seed=options.seed)
        parts = [
            (name, partial(measure_holds, name, prepare, supplies, options))
            for name, prepare in chosen.items()
        ]
        rows = measure_parts(parts, len(parts) * (options.rounds + 1))
        present(rows, json_path, wait_tables, say)
