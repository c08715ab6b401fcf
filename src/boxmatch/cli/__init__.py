"""The `boxmatch` command. Thin: each command parses its options and calls a layer above."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from boxmatch import __version__
from boxmatch.cli import problems
from boxmatch.cli.admin import admin
from boxmatch.cli.backup import backup
from boxmatch.cli.bench import bench
from boxmatch.cli.bench_broker import bench_broker
from boxmatch.cli.bench_spark import bench_spark
from boxmatch.cli.demo import demo
from boxmatch.cli.feeds import feeds
from boxmatch.cli.help import Command, Group
from boxmatch.cli.inspect import check, info
from boxmatch.cli.listen import listen
from boxmatch.cli.match import match
from boxmatch.cli.pipeline import pipeline
from boxmatch.cli.publish import publish
from boxmatch.cli.reproduce import BenchGroup, reproduce
from boxmatch.cli.serve import serve
from boxmatch.cli.subscribe import subscribe

_FILES = "Events and subscriptions in files"
_BROKER = "Boxmatch as a service"
_SPARK = "On Spark"
_MEASURE = "Measure"


class _Root(Group):
    """Lists commands and groups in the order in which one comes to need them."""

    order = (
        *("demo", "match", "check", "info"),
        *("serve", "feeds", "subscribe", "publish", "listen", "backup", "admin"),
        *("pipeline", "bench"),
    )

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=self.order.index)


app = typer.Typer(
    name="boxmatch",
    cls=_Root,
    help="Which of my millions of standing subscriptions want this event?\n\n"
    "Try `boxmatch demo` first, then `boxmatch match` with files of your own.",
    epilog="boxmatch demo --subscriptions 10000 --ticks 1000\n"
    "boxmatch match --subscriptions subscriptions.csv --events events.jsonl\n"
    "boxmatch match --help   # every command has examples",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
benches = typer.Typer(
    cls=BenchGroup,
    help="Measure an index, Spark or a broker; repeat experiments.\n\n"
    "`boxmatch bench PRESET…` is short for `boxmatch bench run PRESET…`; without a preset it "
    "measures HEM's default setting.",
    epilog="boxmatch bench\n"
    "boxmatch bench width --json width.jsonl\n"
    "boxmatch bench reproduce hem --scale 0.1",
    rich_markup_mode=None,
)
benches.command("run", cls=Command)(bench)
benches.command(cls=Command)(reproduce)
benches.command("spark", cls=Command)(bench_spark)
benches.command("broker", cls=Command)(bench_broker)

for command, panel in (
    (demo, _FILES),
    (match, _FILES),
    (check, _FILES),
    (info, _FILES),
    (serve, _BROKER),
    (subscribe, _BROKER),
    (publish, _BROKER),
    (listen, _BROKER),
    (backup, _BROKER),
):
    app.command(cls=Command, rich_help_panel=panel)(command)
app.add_typer(feeds, name="feeds", rich_help_panel=_BROKER)
app.add_typer(admin, name="admin", rich_help_panel=_BROKER)
app.add_typer(pipeline, name="pipeline", rich_help_panel=_SPARK)
app.add_typer(benches, name="bench", rich_help_panel=_MEASURE)


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
    debug: Annotated[
        bool,
        typer.Option(
            problems.DEBUG,
            help="Show where in the code an error comes from, and not just what it is. May stand "
            "anywhere; BOXMATCH_DEBUG=1 does the same.",
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line.

    The exit code is 0, or 1 if the answer is no (damaged data, wrong figures), 2 after an error,
    130 after Ctrl-C.
    """
    arguments, debug = problems.wants_traceback(sys.argv[1:])
    with problems.Interrupts() as interrupts:
        try:
            code = app(arguments, prog_name="boxmatch", standalone_mode=False)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader, such as `head`, has left
            problems.leave_quietly()
        except KeyboardInterrupt:
            code = 130
        except Exception as error:
            if interrupts.happened:
                code = 130
            elif problems.is_call_for_help(error):
                typer.echo(str(error))
                code = 0
            else:
                code = problems.tell(error, debug=debug)
        finally:
            problems.give_up_output()
    sys.exit(code if isinstance(code, int) else 0)
