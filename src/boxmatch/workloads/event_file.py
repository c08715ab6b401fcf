"""Events recorded in a text file: rows of numbers, one column per attribute.

Columns are separated by commas, tabs or spaces, whichever the first line has (in this order). An
empty field and `NaN` mean that the event lacks the attribute; between spaces nothing can be empty,
so there only `NaN` does. The first line may be a header, which is one that has no number in it.
Blank lines are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Float64Array, Int64Array
from boxmatch.model.axis import ABSENT
from boxmatch.workloads import streams


class Recording(NamedTuple):
    """A file's numbers, NaN where there is none, and on which line of the file each row stood."""

    values: Float64Array
    line: Int64Array


class Pool(NamedTuple):
    """A file's events as integers, and the same values column by column to draw from.

    `events` is n × d, `ABSENT` where the event has no value. The values of column i are
    `values[start[i] : start[i + 1]]`, as often as they occur.
    """

    events: Int64Array
    values: Int64Array
    start: Int64Array

    def draw(self, rng: np.random.Generator, column: npt.NDArray[np.integer]) -> Int64Array:
        """A value of each of these columns, every recorded one equally likely."""
        first, count = self.start[:-1][column], np.diff(self.start)[column]
        drawn: Int64Array = self.values[first + (rng.random(column.shape) * count).astype(np.int64)]
        return drawn


def read_events(path: str | os.PathLike[str]) -> Recording:
    """The numbers in a file, kept in memory until the file changes.

    Raises `ValueError`, naming file, line and column, for what is not a number or a row of another
    length.
    """
    return _read(*_version(path))


def event_pool(path: str | os.PathLike[str], attributes: int, domain: int) -> Pool:
    """The first `attributes` columns of a file, rounded to integers from 1 to `domain`.

    The file must be scaled already: a value below 0 or above `domain` is a `ValueError`. Zero
    becomes 1, since files scaled to the domain contain it.
    """
    return _pool(*_version(path), attributes, domain)


def write_sample_events(path: str | os.PathLike[str], *, rows: int = 300, seed: int = 1) -> None:
    """Write a small event file: made-up readings of twelve sensors, scaled to 1 … 1,000,000.

    Comma-separated, with a header. Neighbouring rows are alike, columns are skewed in different
    ways, some have few distinct values, and about one field in fifty is empty.
    """
    rng = streams.generator(seed, "sample of an event file", 0)
    walks = np.cumsum(rng.normal(0, 0.02, (rows, 4)), axis=0) + rng.random(4)
    walks = np.abs((walks + 1) % 2 - 1)  # reflected at 0 and 1
    noise = rng.normal(0, 0.01, (rows, 4))
    columns = {
        "temperature": walks[:, 0],
        "temperature_near": np.clip(walks[:, 0] + noise[:, 0], 0, 1),
        "humidity": walks[:, 1],
        "humidity_near": np.clip(walks[:, 1] + noise[:, 1], 0, 1),
        "pressure": 0.5 + 0.1 * noise[:, 2],
        "wind": np.minimum(rng.exponential(0.1, rows), 1.0),
        "gust": np.minimum(rng.exponential(0.2, rows), 1.0),
        "direction": rng.integers(0, 16, rows) / 15,
        "light": walks[:, 2] ** 3,
        "rain": np.where(rng.random(rows) < 0.8, 0.0, rng.random(rows)),
        "battery": 1 - 0.3 * np.arange(rows) / rows + 0.1 * noise[:, 3],
        "signal": np.round(walks[:, 3], 1),
    }
    values = 1 + np.rint(np.stack(list(columns.values()), axis=1).clip(0, 1) * 999_999)
    texts = values.astype(np.int64).astype(str)
    texts[rng.random(texts.shape) < 0.02] = ""
    lines = [",".join(columns), *map(",".join, texts.tolist())]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _version(path: str | os.PathLike[str]) -> tuple[str, int, int]:
    """What a cached reading depends on."""
    status = os.stat(path)
    return os.path.abspath(path), status.st_mtime_ns, status.st_size


@lru_cache(maxsize=4)
def _read(path: str, modified: int, size: int) -> Recording:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text file") from None
    lines = [(number, row) for number, row in enumerate(text.split("\n"), 1) if row.strip()]
    if not lines:
        raise ValueError(f"{path} is empty")
    split = _splitter(lines[0][1])
    rows = [split(row) for _, row in lines]
    width = len(rows[0])
    for (number, _), row in zip(lines, rows, strict=True):
        if len(row) != width:
            raise ValueError(
                f"{path}, line {number}: {len(row)} values, but line {lines[0][0]} has {width}"
            )
    named = [field for field in rows[0] if field.lower() != "nan"]
    if named and not any(map(_is_number, named)):
        del lines[0], rows[0]
        if not lines:
            raise ValueError(f"{path} has a header and no rows")
    number_of = np.array([number for number, _ in lines], np.int64)
    values = _parse(path, rows, number_of)
    values.flags.writeable = number_of.flags.writeable = False
    return Recording(values, number_of)


def _splitter(first: str) -> Callable[[str], list[str]]:
    for separator in ",\t":
        if separator in first:
            return lambda row: [field.strip() or "nan" for field in row.split(separator)]
    return str.split


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _parse(path: str, rows: list[list[str]], line: Int64Array) -> Float64Array:
    try:
        values = np.array(rows, np.float64)
    except ValueError:
        # Only now, when there is something to find, field by field.
        row, column = next(
            (r, c) for r, row in enumerate(rows) for c, f in enumerate(row) if not _is_number(f)
        )
        raise ValueError(
            f"{path}, line {line[row]}, column {column + 1}: {rows[row][column]!r} is not a number"
        ) from None
    _refuse(path, values, line, np.isinf(values), "is not a number that can be used")
    return values


def _refuse(
    path: str, values: Float64Array, line: Int64Array, bad: npt.NDArray[np.bool_], reason: str
) -> None:
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"{path}, line {line[row]}, column {column + 1}: {values[row, column]:g} {reason}"
        )


@lru_cache(maxsize=4)
def _pool(path: str, modified: int, size: int, attributes: int, domain: int) -> Pool:
    recorded, line = _read(path, modified, size)
    recorded = recorded[:, :attributes]
    outside = (recorded < 0) | (recorded > domain)
    _refuse(path, recorded, line, outside, f"is not from 0 to the domain, {domain:,}; scale it")
    absent = np.isnan(recorded)
    if absent.all(axis=0).any():
        column = int(absent.all(axis=0).argmax())
        raise ValueError(f"{path}, column {column + 1} has no value at all")
    whole = np.maximum(np.rint(np.where(absent, 1, recorded)).astype(np.int64), 1)
    events = np.where(absent, ABSENT, whole)
    start = np.zeros(events.shape[1] + 1, np.int64)
    np.cumsum((~absent).sum(axis=0), out=start[1:])
    values = whole.T[~absent.T]
    for array in (events, values, start):
        array.flags.writeable = False
    return Pool(events, values, start)
