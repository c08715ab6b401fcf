"""Output of matches: lines for people, JSON lines, or a file with one row for each match."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

import typer

from boxmatch.errors import EventError, StorageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from boxmatch.engine.results import MatchResult
    from boxmatch.model.nested import Path as NestedPath
    from boxmatch.model.schema import Schema

_MISSING = object()
_NAMED = 8
"""How many subscriptions of an event a terminal lists."""


def writer_for(
    path: Path | None, keep: Sequence[str], schema: Schema | None, *, as_json: bool
) -> MatchWriter:
    """The writer that fits the name of the file, or standard output."""
    if path is None:
        if keep:
            raise typer.BadParameter("--keep is for --output; elsewhere events are whole")
        return LineWriter(None, as_json=as_json)
    if as_json:
        raise typer.BadParameter("give --json or --output, not both")
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        return LineWriter(path, as_json=True)
    if suffix not in (".csv", ".parquet", ".arrow"):
        raise typer.BadParameter(
            f"--output {path}: the name must end with .csv, .parquet, .arrow or .jsonl"
        )
    return TableWriter(path, suffix, keep, schema)


class MatchWriter(ABC):
    """Writes the matches of one batch after the other, and counts them.

    A file appears under its name only when it is complete.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._events = 0
        self._matches = 0
        self._matched = 0

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        whole = False
        try:
            with self._translate_errors():
                self._close()
            whole = kind is None
        finally:
            if self._path is not None:
                if whole:
                    os.replace(self._partial, self._path)
                else:
                    self._partial.unlink(missing_ok=True)

    @property
    def _partial(self) -> Path:
        assert self._path is not None
        return self._path.with_name(f".{self._path.name}.partial")

    def _create_partial(self) -> None:
        """Create the file, to fail before matching if it cannot be written."""
        with self._translate_errors():
            self._partial.touch()

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Name the file in errors of the operating system."""
        try:
            yield
        except OSError as error:
            if self._path is None:
                raise
            reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or error
            raise StorageError(f"cannot write {self._path}: {reason}") from None

    def _count(self, found: MatchResult) -> None:
        self._events += len(found.counts)
        self._matches += len(found.subscription)
        self._matched += int((found.counts > 0).sum())

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def add(self, first: int, batch: Any, found: MatchResult) -> None:
        """Write the matches of a batch whose first event is row `first` of the input."""

    @abstractmethod
    def _close(self) -> None: ...

    def conclude(self) -> None:
        """Print the totals: after a file, or to standard error on a terminal."""
        text = (
            f"{self._events:,} event{'s' * (self._events != 1)}, "
            f"{self._matched:,} of them matched, {self._matches:,} matches"
        )
        if self._path is not None:
            typer.echo(f"{text} in {self._path}")
        elif sys.stderr.isatty():
            typer.echo(text, err=True)


class LineWriter(MatchWriter):
    """One line for each event that has matches."""

    def __init__(self, path: Path | None, *, as_json: bool) -> None:
        super().__init__(path)
        self._as_json = as_json
        self._file: IO[str] = sys.stdout
        self._most = _NAMED if path is None and sys.stdout.isatty() else None

    def __enter__(self) -> Self:
        if self._path is not None:
            self._create_partial()
            self._file = self._partial.open("w", encoding="utf-8")
        return self

    def add(self, first: int, batch: Any, found: MatchResult) -> None:
        self._count(found)
        ids = found.subscription.tolist()
        rows = found.counts.nonzero()[0]
        start = 0
        with self._translate_errors():
            for row, event in zip(rows.tolist(), rows_of(batch, rows), strict=True):
                stop = start + int(found.counts[row])
                self._file.write(self._line(first + row, sorted(ids[start:stop]), event) + "\n")
                start = stop
            self._file.flush()

    def _line(self, row: int, ids: list[Any], event: Mapping[str, Any]) -> str:
        if self._as_json:
            line = {"row": row, "subscriptions": ids, "event": event}
            return json.dumps(line, ensure_ascii=False, default=str)
        names = ", ".join(map(str, ids[: self._most]))
        if self._most is not None and len(ids) > self._most:
            names += f" and {len(ids) - self._most:,} more"
        return f"{row}  {names}  {event_json(event)}"

    def _close(self) -> None:
        if self._path is not None:
            self._file.close()


class TableWriter(MatchWriter):
    """One row for each match: the event's row, the columns to keep, and the subscription."""

    def __init__(self, path: Path, suffix: str, keep: Sequence[str], schema: Schema | None) -> None:
        super().__init__(path)
        self._suffix = suffix
        self._keep = keep
        self._types = {attribute.name: attribute.type_name for attribute in schema or ()}
        self._writer: Any = None

    def __enter__(self) -> Self:
        self._create_partial()
        return self

    def add(self, first: int, batch: Any, found: MatchResult) -> None:
        import pyarrow as pa

        self._count(found)
        rows = found.to_arrow()
        columns: dict[str, Any] = {"row": pa.array(found.event + first)}
        for name in self._keep:
            columns[name] = self._column(batch, name).take(rows["event"])
        columns["subscription"] = rows["subscription"]
        table = pa.table(columns)
        with self._translate_errors():
            if self._writer is None:
                self._writer = self._open_writer(table.schema)
            self._writer.write_table(table)

    def _column(self, batch: Any, name: str) -> Any:
        import pyarrow as pa

        from boxmatch.model.nested import find_column, path_to

        path = path_to(name)
        if not isinstance(batch, list):
            places: dict[object, int] = {one: place for place, one in enumerate(batch.schema.names)}
            found = find_column(places, lambda place: (batch.column(place),), path)
            column: Any = None if found is None else found[0]
            if column is None or (name not in places and pa.types.is_null(column.type)):
                raise EventError(f"--keep {name}: the events have no such column")
            nested = self._suffix == ".csv" and pa.types.is_nested(column.type)
            return pa.array(map(_text, column.to_pylist()), pa.string()) if nested else column
        kinds = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
        kind = self._types.get(name, "string")
        values = [_nested_value(event, path) for event in batch]
        if self._writer is None and all(value is _MISSING for value in values):
            raise EventError(f"--keep {name}: the first events have no such attribute")
        present = [None if value is _MISSING else value for value in values]
        if kind in kinds:
            return pa.array(present, kinds[kind])
        return pa.array(map(_text, present), pa.string())

    def _open_writer(self, schema: pa.Schema) -> Any:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet as pq

        if self._suffix == ".parquet":
            return pq.ParquetWriter(self._partial, schema)
        if self._suffix == ".csv":
            return pyarrow.csv.CSVWriter(self._partial, schema)
        return pa.ipc.new_file(str(self._partial), schema)

    def _close(self) -> None:
        import pyarrow as pa

        if self._writer is None:  # there were no events
            names = ("row", *self._keep, "subscription")
            kinds = {"row": pa.int64()}
            self._writer = self._open_writer(
                pa.schema([(name, kinds.get(name, pa.string())) for name in names])
            )
        self._writer.close()


def _nested_value(event: Mapping[str, Any], path: NestedPath) -> Any:
    """The value at the end of a path, or `_MISSING`."""
    for key, rest, _ in path:
        if key in event:
            value = event[key]
            if rest is None:
                return value
            return _nested_value(value, rest) if isinstance(value, Mapping) else _MISSING
    return _MISSING


def _text(value: Any) -> str | None:
    """A value as text; a list or an object as JSON."""
    if value is None:
        return None
    return event_json(value) if isinstance(value, (list, dict)) else str(value)


def rows_of(batch: Any, rows: npt.NDArray[np.int64] | None = None) -> Iterator[Mapping[str, Any]]:
    """Events of a batch as dicts, all of them or those rows; without a table's nulls and NaN."""
    if isinstance(batch, list):
        yield from batch if rows is None else (batch[row] for row in rows.tolist())
        return
    from boxmatch.model.keys import is_absent

    for event in (batch if rows is None else batch.take(rows)).to_pylist():
        yield {name: value for name, value in event.items() if not is_absent(value)}


def event_json(event: Mapping[str, Any] | list[Any]) -> str:
    """An event, or a part of one, on one line."""
    return json.dumps(event, ensure_ascii=False, default=str)
