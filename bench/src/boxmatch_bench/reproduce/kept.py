"""The rows that are kept with the documentation: one small file, from which its pages are made.

The first line has what all rows have in common. What was measured once for several experiments
is written once: other lines say which line they are `like`. Numbers are rounded to seven digits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from boxmatch_bench.tables import Row

MOST_BYTES: Final = 1_000_000
_DIGITS: Final = 7
_COMMON: Final = (
    *("version", "commit", "machine", "python", "packages", "scale", "seed", "event_file"),
    *("date", "paper"),
)
_OF_A_PLACE: Final = ("paper", "experiment", "x")


def keep(rows: Iterable[Row], path: Path) -> None:
    """Write rows into the file, in the place of what it has."""
    rows = [_rounded(row) for row in rows]
    common = {
        name: rows[0][name]
        for name in _COMMON
        if rows and name in rows[0] and all(row.get(name) == rows[0][name] for row in rows)
    }
    lines: list[dict[str, Any]] = [{"common": common}]
    known: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        mine = {name: row[name] for name in row if name not in common}
        place = {name: mine.pop(name) for name in _OF_A_PLACE if name in mine}
        first = known.setdefault(json.dumps(mine, sort_keys=True), number)
        lines.append(place | (mine if first == number else {"like": first}))
    text = "".join(
        json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines
    )
    size = len(text.encode())
    if size > MOST_BYTES:
        raise ValueError(f"{size:,} bytes of results are more than the {MOST_BYTES:,} to keep")
    path.write_text(text, encoding="utf-8")


def kept(path: Path) -> list[Row]:
    """The rows of such a file, whole."""
    first, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    rows: list[Row] = []
    for line in lines:
        other = rows[line.pop("like") - 1] if "like" in line else {}
        rows.append({**first["common"], **other, **line})
    return rows


def run_of(rows: Iterable[Row]) -> Mapping[str, Any]:
    """What the rows of one run have in common, as a report is given it."""
    first = next(iter(rows))
    return {name: first[name] for name in ("scale", "seed", "event_file", "commit")}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        short = float(f"{value:.{_DIGITS}g}")
        return int(short) if short.is_integer() and abs(short) < 2**53 else short
    if isinstance(value, Mapping):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return value
