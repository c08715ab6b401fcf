"""`boxmatch bench changes`: single events while subscriptions come and go."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from boxmatch.cli.help import examples
from boxmatch.cli.options import with_options
from boxmatch_bench.cli.rows import JsonPath, Row, measure_parts, present
from boxmatch_bench.options import ChangeOptions

if TYPE_CHECKING:
    from rich.console import Console


@examples(
    "boxmatch bench changes",
    "boxmatch bench changes --subscriptions 10000 --seconds 5 --json changes.jsonl",
)
@with_options
def bench_changes(*, options: ChangeOptions, json_path: JsonPath = None) -> None:
    """Time single events while subscriptions come and go.

    One thread matches, for a while alone and as long beside a second thread that subscribes and
    unsubscribes. Answers at the end are compared with brute force.
    """
    from boxmatch_bench.changes import STAGES, change_table, measure_changes

    def say(_: Console, rows: list[Row]) -> str:
        row = rows[0]
        share = row["beside_ms"]["p99"] / row["quiet_ms"]["p99"]
        return (
            f"{options.subscriptions:,} subscriptions, {row['pairs_made']:,} of "
            f"{row['pairs_planned']:,} pairs of changes made; p99 beside them {share:.2f} times"
        )

    rows = measure_parts([("changes", partial(measure_changes, options))], STAGES)
    present(rows, json_path, lambda rows: [change_table(rows)], say)
