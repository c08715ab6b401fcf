"""What the commands share: progress, and rows as JSON and as tables."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from boxmatch.cli.terminal import output, print_json, progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from boxmatch_bench.broker.processes import Tell
    from boxmatch_bench.tables import Table

Row = dict[str, Any]
_Options = TypeVar("_Options")

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

    A file is opened at once, so that a long run does not fail at its end.
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
    """Exit with status 1 and a message after a wrong answer, or none."""
    from boxmatch_bench.answers import FailedError, MismatchError

    try:
        yield
    except (MismatchError, FailedError) as error:
        kind = "wrong answer" if isinstance(error, MismatchError) else "no answer"
        typer.echo(f"boxmatch: {kind}: {error}", err=True)
        raise typer.Exit(1) from None


def bar(*, counted: bool = True) -> Progress:
    """A progress bar, with how many of how many where these are `counted`."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    counts = [MofNCompleteColumn()] if counted else []
    text = TextColumn("{task.description}")
    return progress(BarColumn(bar_width=24), *counts, TimeElapsedColumn(), text)


def measure_parts(
    parts: Sequence[tuple[str, Callable[[Callable[[str], None]], Row]]], stages: int
) -> Iterator[Row]:
    """The row of each part, which has a label and reports its stages, behind a progress bar."""
    from boxmatch_bench.answers import within

    with bar() as shown:
        task = shown.add_task("", total=stages)
        done = 0

        def stage(name: str) -> None:
            nonlocal done
            shown.update(task, description=f"{label}: {name}", completed=done)
            done += 1

        for label, measure in parts:
            with within(label):
                yield measure(stage)


def present(
    rows: Iterable[Row],
    json_path: Path | None,
    tables: Callable[[list[Row]], Iterable[Table]],
    say: Callable[[Console, list[Row]], str],
) -> None:
    """Write rows as they are found; then show tables, and how and on what they were measured."""
    from boxmatch_bench.provenance import provenance, shown_commit

    lines = JsonLines(json_path)
    origin = provenance()
    found = []
    with exit_on_failure():
        for row in rows:
            found.append(row | origin)
            lines.add(found[-1])
    if lines.printed:
        return
    console = output()
    show(console, tables(found))
    text = say(console, found)
    machine = origin["machine"]
    console.print(
        f"[dim]{text}: {machine['cpu']}, {machine['cores']} cores, Python {origin['python']}, "
        f"commit {shown_commit(origin)}[/dim]"
    )


@contextmanager
def folder_or_temporary(folder: Path | None) -> Iterator[Path]:
    """The folder, created if need be; without one, a temporary folder."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="boxmatch-bench-") as made:
        yield Path(made)


def measured(
    measure: Callable[[_Options, Path, Tell], Iterable[Row]], options: _Options
) -> Iterator[Row]:
    """Rows that are measured in a temporary folder, with a bar that says what is being done."""
    with folder_or_temporary(None) as folder, bar(counted=False) as shown:
        task = shown.add_task("", total=None)

        def tell(name: str, done: float = 0.0, total: float | None = None) -> None:
            shown.update(task, description=name, completed=done, total=total)

        yield from measure(options, folder, tell)


def show(console: Console, tables: Iterable[Table]) -> None:
    """Print tables."""
    from boxmatch_bench.tables import console_table

    for table in tables:
        console.print(console_table(table))
