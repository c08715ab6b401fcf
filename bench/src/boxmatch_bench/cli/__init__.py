"""`boxmatch bench`, which `boxmatch` finds as an entry point of `boxmatch.commands`."""

from __future__ import annotations

from typing import Any

import typer

from boxmatch.cli.help import Command, Group
from boxmatch_bench.cli.broker import bench_broker
from boxmatch_bench.cli.changes import bench_changes
from boxmatch_bench.cli.isolation import bench_isolation
from boxmatch_bench.cli.reproduce import reproduce
from boxmatch_bench.cli.route import bench_route
from boxmatch_bench.cli.rows import with_json_path
from boxmatch_bench.cli.run import bench
from boxmatch_bench.cli.spark import bench_spark
from boxmatch_bench.cli.start import bench_start
from boxmatch_bench.cli.waits import bench_waits


class BenchGroup(Group):
    """Runs `run` unless the first word is a command of its own. `--json` may go without a path."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and ctx.resilient_parsing:  # a shell asks what could come next
            return super().parse_args(ctx, args)
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args if args[0] == "reproduce" else with_json_path(args))

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        presets: Any = self.commands["run"].params[0]
        return [*super().shell_complete(ctx, incomplete), *presets.shell_complete(ctx, incomplete)]


app = typer.Typer(
    name="bench",
    cls=BenchGroup,
    add_completion=False,
    help="Benchmark an index, Spark or a broker; rerun experiments.\n\n"
    "`boxmatch bench PRESET…` is short for `boxmatch bench run PRESET…`; without a preset it "
    "measures HEM's default setting.",
    epilog="boxmatch bench\n"
    "boxmatch bench cpp --json cpp.jsonl\n"
    "boxmatch bench reproduce hem --scale 0.1",
    rich_markup_mode=None,
)
app.info.rich_help_panel = "Benchmarks"  # the constructor takes it, and forgets it
app.command("run", cls=Command)(bench)
app.command(cls=Command)(reproduce)
app.command("spark", cls=Command)(bench_spark)
app.command("broker", cls=Command)(bench_broker)
app.command("isolation", cls=Command)(bench_isolation)
app.command("route", cls=Command)(bench_route)
app.command("waits", cls=Command)(bench_waits)
app.command("start", cls=Command)(bench_start)
app.command("changes", cls=Command)(bench_changes)
