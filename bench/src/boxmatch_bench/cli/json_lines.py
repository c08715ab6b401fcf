"""`--json` of the benchmarks: results as JSON lines, in a file or instead of the tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer

from boxmatch.cli.terminal import print_json

JsonPath = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="[PATH]",
        help="Append JSON lines to this file as well; without PATH print them instead of tables.",
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
