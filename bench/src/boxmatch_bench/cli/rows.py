"""Rows as they are found: as JSON lines, with where they come from, and what is said at the end."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxmatch.cli.terminal import print_json

if TYPE_CHECKING:
    from rich.console import Console

    from boxmatch_bench.tables import Table

JsonPath = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="[PATH]",
        help="Append JSON lines to this file; without PATH, print them instead of tables.",
    ),
]


class JsonLines:
    """Where the figures of a benchmark go as they are found: nowhere, a file, or standard output.

    A file is opened at once, so that a long run does not end in finding out that it cannot be.
    """

    def __init__(self, path: Path | None) -> None:
        self.printed = path is not None and str(path) == "-"
        """Then there are no tables on standard output."""
        self._path = None if self.printed else path
        if self._path is not None:
            self._path.open("a", encoding="utf-8").close()

    def add(self, row: Mapping[str, Any]) -> None:
        if self.printed:
            print_json(row)
            sys.stdout.flush()
        elif self._path is not None:
            from boxmatch_bench.results import append_json

            append_json(self._path, row)


def with_json_path(arguments: list[str]) -> list[str]:
    """The same with a `-` after each `--json` that no path follows."""
    words: list[str] = []
    for word, following in zip_longest(arguments, arguments[1:], fillvalue="--"):
        words.append(word)
        if word == "--json" and following.startswith("-") and following != "-":
            words.append("-")
    return words


@contextmanager
def exit_on_failure() -> Iterator[None]:
    """A wrong answer, or none, ends the program with a sentence."""
    from boxmatch_bench.answers import FailedError, MismatchError

    try:
        yield
    except (MismatchError, FailedError) as error:
        kind = "wrong answer" if isinstance(error, MismatchError) else "no answer"
        typer.echo(f"boxmatch: {kind}: {error}", err=True)
        raise typer.Exit(1) from None


def collect(
    rows: Iterable[dict[str, Any]], lines: JsonLines, origin: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """All rows, each with where it comes from, written as soon as it is there."""
    found = []
    with exit_on_failure():
        for row in rows:
            row |= origin
            lines.add(row)
            found.append(row)
    return found


@contextmanager
def folder_or_temporary(folder: Path | None) -> Iterator[Path]:
    """The folder, made if need be and kept; without one, one that is removed in the end."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="boxmatch-bench-") as made:
        yield Path(made)


def show(console: Console, tables: Iterable[Table]) -> None:
    """Print tables."""
    from boxmatch_bench.tables import console_table

    for table in tables:
        console.print(console_table(table))


def show_origin(console: Console, text: str, origin: Mapping[str, Any]) -> None:
    """How it was measured, on which machine, with what; in one paragraph."""
    from boxmatch_bench.provenance import shown_commit

    machine = origin["machine"]
    console.print(
        f"[dim]{text}: {machine['cpu']}, {machine['cores']} cores, Python {origin['python']}, "
        f"commit {shown_commit(origin)}[/dim]"
    )
