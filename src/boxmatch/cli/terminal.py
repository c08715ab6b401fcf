"""Output for a terminal, and JSON for a program instead."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]

_WIDE = 140
"""Width of a table that is written to a file or a pipe."""


def print_json(row: Mapping[str, Any]) -> None:
    """Print one line of JSON; values that JSON lacks, such as times, become text."""
    typer.echo(json.dumps(row, ensure_ascii=False, default=str))


def format_bytes(size: int) -> str:
    """A number of bytes in the unit that leaves one to three digits before the point: 1.5 MB."""
    if size < 1000:
        return f"{size} B"
    number, units = size / 1000, iter(("kB", "MB", "GB", "TB"))
    unit = next(units)
    while number >= 999.95 and unit != "TB":
        number, unit = number / 1000, next(units)
    return f"{number:,.1f} {unit}"


def output(*, wide: int = _WIDE, prose: bool = False) -> Console:
    """A console on standard output; `prose` is wrapped only on a terminal."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=wide, soft_wrap=prose)


def progress(*columns: ProgressColumn, transient: bool = True, record: bool = False) -> Progress:
    """A progress bar on standard error, if that is a terminal; it disappears at the end.

    The last state of a `record` stays, and is also written where there is no terminal.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(
        *columns,
        console=console,
        transient=transient and not record,
        disable=not (record or console.is_terminal),
    )


@contextlib.contextmanager
def show_count(what: str, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Show a running count of something whose total is unknown."""
    if not (shown and sys.stderr.isatty()):
        yield lambda number: None
        return
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.completed:,.0f} {task.description}")
    with progress(SpinnerColumn(), text, TimeElapsedColumn()) as bar:
        task = bar.add_task(what, total=None)
        yield lambda number: bar.advance(task, number)


def show_spinner(what: str) -> AbstractContextManager[object]:
    """Show that something is in progress."""
    if not sys.stderr.isatty():
        return contextlib.nullcontext()
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    bar = progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    bar.add_task(what, total=None)
    return bar
