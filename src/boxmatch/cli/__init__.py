"""The `boxmatch` command. Thin: each command parses its options and calls a layer above."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from boxmatch import __version__
from boxmatch.cli.admin import admin
from boxmatch.cli.backup import backup
from boxmatch.cli.bench import bench
from boxmatch.cli.bench_broker import bench_broker
from boxmatch.cli.bench_spark import bench_spark
from boxmatch.cli.demo import demo
from boxmatch.cli.inspect import check, info
from boxmatch.cli.listen import listen
from boxmatch.cli.pipeline import pipeline
from boxmatch.cli.publish import publish
from boxmatch.cli.reproduce import BenchGroup, reproduce
from boxmatch.cli.serve import serve
from boxmatch.cli.subscribe import subscribe
from boxmatch.errors import BoxmatchError

app = typer.Typer(
    name="boxmatch",
    help="Which of my millions of standing subscriptions want this event?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
benches = typer.Typer(
    cls=BenchGroup,
    help="Measure an index on presets, matching on Spark, or a broker under load, or run the "
    "papers' experiments again.\n\n"
    "`boxmatch bench PRESET…` is short for `boxmatch bench run PRESET…`; without a preset it "
    "measures HEM's default setting.",
)
benches.command("run")(bench)
benches.command()(reproduce)
benches.command("spark")(bench_spark)
benches.command("broker")(bench_broker)

app.command()(demo)
app.add_typer(pipeline, name="pipeline")
app.add_typer(benches, name="bench")
app.add_typer(admin, name="admin")
app.command()(check)
app.command()(info)
app.command()(serve)
app.command()(publish)
app.command()(subscribe)
app.command()(listen)
app.command()(backup)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"boxmatch {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; an error that Boxmatch raised on purpose exits with 2."""
    try:
        app(prog_name="boxmatch")
    except BoxmatchError as error:
        typer.echo(f"boxmatch: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:  # the reader, such as `head`, has left
        sys.stderr.close()
        sys.exit(1)
