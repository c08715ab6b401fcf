"""The `boxmatch` command. Thin: each command parses its options and calls a layer above."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxmatch import __version__
from boxmatch.cli import problems
from boxmatch.cli.admin import admin
from boxmatch.cli.backup import backup
from boxmatch.cli.demo import demo
from boxmatch.cli.feeds import feeds
from boxmatch.cli.help import Command, Group
from boxmatch.cli.inspect import check, info
from boxmatch.cli.match import match
from boxmatch.cli.pipeline import pipeline
from boxmatch.cli.remote import listen, publish, replay, share, subscribe
from boxmatch.cli.route import route
from boxmatch.cli.serve import serve
from boxmatch.cli.warmup import warmup
from boxmatch.errors import MissingExtraError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_FILES = "Events and subscriptions in files"
_BROKER = "Boxmatch as a service"
_NATS = "On NATS"
_SPARK = "On Spark"


_ELSEWHERE = {"bench": "boxmatch_bench"}
"""Commands of other distributions, with their modules; the extra of the same name installs them."""


class _Root(Group):
    """Lists commands and groups in the order in which people come to need them.

    Commands of other distributions are looked up when they are called or listed.
    """

    order = (
        *("demo", "match", "check", "info", "warmup"),
        *("serve", "feeds", "subscribe", "publish", "listen", "replay", "share", "backup", "admin"),
        *("route", "pipeline", "bench"),
    )

    def list_commands(self, ctx: Any) -> list[str]:
        names = {*super().list_commands(ctx), *(found.name for found in _installed())}
        last = len(self.order)
        return sorted(
            names, key=lambda name: (self.order.index(name) if name in self.order else last, name)
        )

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            for found in _installed():
                if found.name == cmd_name:
                    self.add_command(typer.main.get_command(found.load()), cmd_name)
        command = super().get_command(ctx, cmd_name)
        completing = ctx is not None and ctx.resilient_parsing
        if command is None and cmd_name in _ELSEWHERE and not completing:
            raise MissingExtraError(f"boxmatch {cmd_name}", _ELSEWHERE[cmd_name], cmd_name)
        return command


def _installed() -> Iterable[EntryPoint]:
    """Commands of other distributions: each is a Typer app."""
    from importlib.metadata import entry_points

    return entry_points(group="boxmatch.commands")


app = typer.Typer(
    name="boxmatch",
    cls=_Root,
    help="Match events against millions of subscriptions, exactly.\n\n"
    "Try `boxmatch demo` first, then `boxmatch match` with your own files.",
    epilog="boxmatch demo --subscriptions 10000 --ticks 1000\n"
    "boxmatch match --subscriptions subscriptions.csv --events events.jsonl\n"
    "boxmatch match --help   # every command has examples",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command, panel in (
    (demo, _FILES),
    (match, _FILES),
    (check, _FILES),
    (info, _FILES),
    (warmup, _FILES),
    (serve, _BROKER),
    (subscribe, _BROKER),
    (publish, _BROKER),
    (listen, _BROKER),
    (replay, _BROKER),
    (share, _BROKER),
    (backup, _BROKER),
):
    app.command(cls=Command, rich_help_panel=panel)(command)
app.add_typer(feeds, name="feeds", rich_help_panel=_BROKER)
app.add_typer(admin, name="admin", rich_help_panel=_BROKER)
app.add_typer(route, name="route", rich_help_panel=_NATS)
app.add_typer(pipeline, name="pipeline", rich_help_panel=_SPARK)


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
            help="Show the traceback of an error, wherever it is given. Also: BOXMATCH_DEBUG=1.",
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
            problems.exit_quietly()
        except KeyboardInterrupt:
            code = 130
        except Exception as error:
            if interrupts.happened:
                code = 130
            elif problems.is_call_for_help(error):
                typer.echo(str(error))
                code = 0
            else:
                code = problems.report_error(error, debug=debug)
        finally:
            problems.discard_unwritable_output()
    sys.exit(code if isinstance(code, int) else 0)
