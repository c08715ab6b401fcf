"""The file of results: one JSON line for each index at each point, and what need not be redone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from boxmatch_bench.tables import Row

_IDENTITY = ("experiment", "x", "series", "asked", "workload", "scale", "seed", "commit")
"""What a row must have in common with what is wanted to take its place."""


def append_json(path: Path, row: Row) -> None:
    """Add one result as one line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def identity(row: Mapping[str, Any]) -> str:
    """A key that rows of the same measurement share."""
    return json.dumps([row[name] for name in _IDENTITY], sort_keys=True)


class Results:
    """Rows on disk. An interrupted run resumes where it stopped."""

    def __init__(self, path: Path, *, restart: bool = False) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if restart:
            path.unlink(missing_ok=True)
        self._rows = {identity(row): row for row in _read(path)}

    def __contains__(self, wanted: Mapping[str, Any]) -> bool:
        return identity(wanted) in self._rows

    def add(self, row: Row) -> None:
        """Write a row, at once."""
        append_json(self.path, row)
        self._rows[identity(row)] = row

    def of_run(self, run: Mapping[str, Any]) -> list[Row]:
        """The rows that agree with `run` in everything that it names, in the order of the file."""
        return [
            row
            for row in self._rows.values()
            if all(row.get(name) == value for name, value in run.items())
        ]


def _read(path: Path) -> Iterable[Row]:
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8")
    whole, _, cut = text.rpartition("\n")
    if cut:  # the last run was killed while it wrote
        path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            row = json.loads(line)
            identity(row)
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"{path}, line {number} is not a result; move the file away, or use --restart"
            ) from None
        yield row
