"""`boxmatch match`: a file of events against a file of subscriptions."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from boxmatch.cli.files import (
    STANDARD,
    Format,
    Nulls,
    csv_types,
    display_name,
    document,
    format_of,
    lines_as_they_come,
    open_input,
    tables,
    translate_errors,
)
from boxmatch.cli.help import examples
from boxmatch.cli.schemas import (
    Attributes,
    Inferred,
    SchemaFile,
    given_id,
    given_schema,
    infer_from_columns,
    infer_from_events,
)
from boxmatch.cli.terminal import AsJson, print_json, show_count, show_spinner
from boxmatch.cli.text_columns import infer_types, read_text
from boxmatch.errors import AttributeValueError, BoxmatchError, EventError

if TYPE_CHECKING:
    from boxmatch.engine.matcher import Matcher
    from boxmatch.engine.results import MatchResult
    from boxmatch.model.schema import Schema

_SAMPLE = 10_000
"""Events of NDJSON or JSON that a schema is inferred from."""
_ROWS = 16_384
"""Rows of a table that are matched at a time."""


@examples(
    "boxmatch match --subscriptions subscriptions.csv --events events.jsonl",
    "boxmatch match -s subscriptions.csv -e events.parquet -o matches.parquet",
    "boxmatch match -s subscriptions.csv -e events.jsonl --explain alice",
    "boxmatch match -s subscriptions.csv -e events.csv --save alerts.bm",
    "boxmatch match -s rules.jsonl -e events.jsonl --dialect eventbridge",
    "tail -f events.jsonl | boxmatch match -s alerts.bm --json",
)
def match(
    subscriptions: Annotated[
        str,
        typer.Option(
            "--subscriptions",
            "-s",
            metavar="FILE",
            help="Columns id and filter, as CSV, Parquet, Arrow, JSON or NDJSON; or a directory "
            "written by --save or Matcher.save.",
        ),
    ],
    events: Annotated[
        str,
        typer.Option(
            "--events",
            "-e",
            metavar="FILE",
            help="The events, in any of these formats; '-' is standard input.",
        ),
    ] = STANDARD,
    schema: SchemaFile = None,
    attribute: Attributes = None,
    dialect: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The language of the filters, such as eventbridge, sns or jms; SQL by default. A "
            "column dialect says it for each filter. Without a schema, events in JSON, Parquet or "
            "Arrow are matched as they are.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write matches to .csv, .parquet or .arrow, one row for each (columns row and "
            "subscription), or to .jsonl, one line for each event as with --json.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="Copy this attribute of the event to --output. Repeatable."
        ),
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Explain for each event why this subscription matches or not."
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Save the compiled subscriptions, for fast loading."),
    ] = None,
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Skip and report invalid subscriptions."),
    ] = False,
    format_: Annotated[
        Format | None,
        typer.Option("--format", help="Format of the events, if the file name does not tell."),
    ] = None,
    null: Nulls = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads; all cores by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Match a file of events against a file of subscriptions.

    Prints the row of each matching event, counted from 0, and its subscriptions. Events from
    standard input are NDJSON and are matched as they arrive.

    Without --schema or --attribute, the schema is inferred from the events, and shown on standard
    error: from the columns of a table, or from the first lines of JSON, where numbers are floats
    and times are strings. A column of CSV is a bool, a number or a time only if all of its values
    are written so; 007 and NA are text.
    """
    from boxmatch.cli.matches import writer_for
    from boxmatch.model.schema import Schema

    if explain is not None and output is not None:
        raise typer.BadParameter("give --explain or --output, not both")
    given = given_schema(schema, attribute or [])
    with open_input(events) as source:
        with show_spinner("loading subscriptions"):
            saved = _load_saved(subscriptions, given)
            known = given if saved is None else saved.schema
            kind = format_of(events, format_)
            if known is None and dialect is not None and kind != "csv":
                known = Schema()
            feed = _Events.open(kind, source, known, null or [])
            write = writer_for(output, keep or [], feed.schema, as_json=as_json)
            matcher = saved
            if saved is None and feed.schema is not None:
                matcher = _load(subscriptions, feed.schema, null or [], dialect, skip_bad=skip_bad)
            if matcher is not None and save is not None:
                matcher.save(save)
        if matcher is not None and explain is not None:
            _explain(matcher, explain, feed, display_name(events), as_json=as_json)
            return
        # Lines that appear on a terminal show the progress themselves.
        quiet = output is None and sys.stdout.isatty()
        with write, show_count("events", shown=not quiet) as count:
            if matcher is not None:  # or else there are no events, and so no schema
                for first, batch, found in _match_batches(
                    matcher, feed, threads, display_name(events)
                ):
                    write.add(first, batch, found)
                    count(len(batch))
    write.conclude()


def _match_batches(
    matcher: Matcher, feed: _Events, threads: int | None, name: str
) -> Iterator[tuple[int, Any, MatchResult]]:
    """Batches, each with the number of its first row and its matches."""
    for first, batch in feed.batches():
        try:
            found = matcher.match_batch(batch, threads=threads)
        except (AttributeValueError, EventError) as error:
            raise _locate_error(error, name, matcher, first, batch) from None
        yield first, batch, found


class _Events(NamedTuple):
    """Events in batches."""

    schema: Schema | None
    """As given, or inferred from the first events; None if there are none."""
    ahead: list[Any]
    """Batches that had to be read for the schema."""
    rest: Iterator[Any]

    @classmethod
    def open(
        cls, kind: Format, source: IO[bytes], known: Schema | None, nulls: list[str]
    ) -> _Events:
        """Says on standard error which schema was inferred, since a wrong one matches wrongly."""
        rest: Iterator[Any]
        remarks: tuple[str, ...] = ()
        if kind == "ndjson":
            rest = lines_as_they_come(source)
        elif kind == "json":
            rest = _documents(source)
        elif kind == "csv" and known is None:
            with translate_errors(kind):
                table, remarks = infer_types(read_text(source, nulls))
            rest = _slices(kind, table.to_batches())
        else:
            types = {} if known is None else csv_types(known)
            rest = _slices(kind, tables(kind, source, types, nulls))
        if known is not None:
            return cls(known, [], rest)
        # Only one batch, which is there already: the writer of a pipe may wait for its matches.
        ahead = [batch for batch in islice(rest, 1) if len(batch)]
        if not ahead:
            return cls(None, [], rest)
        inferred = _infer(ahead[0])._replace(remarks=remarks)
        typer.echo(f"boxmatch: {inferred}", err=True)
        return cls(inferred.schema, ahead, rest)

    def batches(self) -> Iterator[tuple[int, Any]]:
        """Batches, each with the number of its first row."""
        first = 0
        for batch in chain(self.ahead, self.rest):
            yield first, batch
            first += len(batch)


def _documents(source: IO[bytes]) -> Iterator[list[Any]]:
    value = document(source.read())
    yield value if isinstance(value, list) else [value]


def _slices(kind: Format, batches: Iterable[Any]) -> Iterator[Any]:
    with translate_errors(kind):
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS):
                yield batch.slice(start, _ROWS)


def _infer(batch: Any) -> Inferred:
    if isinstance(batch, list):
        return infer_from_events(batch[:_SAMPLE])
    return infer_from_columns(batch.schema)


def _load_saved(path: str, known: Schema | None) -> Matcher | None:
    """The matcher in a directory that `--save` or `Matcher.save` wrote; None for a file."""
    if not Path(path).is_dir():
        return None
    from boxmatch.engine.matcher import Matcher

    if known is not None:
        raise typer.BadParameter(f"{path} has a schema: leave out --schema and --attribute")
    return Matcher.load(path)


def _load(
    path: str, schema: Schema, nulls: list[str], dialect: str | None, *, skip_bad: bool
) -> Matcher:
    from boxmatch.engine.matcher import Matcher

    matcher = Matcher(schema)
    with open_input(path) as source:
        table = _subscriptions(format_of(path), source, schema, nulls)
    try:
        on_error: Literal["raise", "skip"] = "skip" if skip_bad else "raise"
        done = matcher.subscribe_many(table, on_error=on_error, dialect=dialect)
    except (BoxmatchError, ValueError) as error:
        raise BoxmatchError(f"{path}: {error}") from None
    for rejected in done.rejected:
        typer.echo(f"boxmatch: left out row {rejected.row}: {rejected.reason}", err=True)
    return matcher


def _subscriptions(kind: Format, source: IO[bytes], schema: Schema, nulls: list[str]) -> Any:
    if kind == "ndjson":
        return list(chain.from_iterable(lines_as_they_come(source)))
    if kind == "json":
        return next(_documents(source))
    with translate_errors(kind):
        if kind != "csv":
            return tables(kind, source, {}).read_all()
        labels = [one.name for one in schema if one.labelled or one.type == "string"]
        bounds = [f"{name}{end}" for name in labels for end in ("", "_low", "_high")]
        return _with_numbers(
            infer_types(read_text(source, nulls), ["id", "filter", "dialect", *bounds]).table
        )


def _with_numbers(table: Any) -> Any:
    """Ids of a CSV file that all look like integers are integers; 007 is not, and stays text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if "id" not in table.column_names or table.num_rows == 0:
        return table
    column = table["id"]
    numbers = pc.match_substring_regex(column, r"^(0|-?[1-9][0-9]{0,17})$")
    if not pc.all(numbers).as_py():
        return table
    return table.set_column(table.column_names.index("id"), "id", column.cast(pa.int64()))


def _locate_error(
    error: BoxmatchError, name: str, matcher: Matcher, first: int, batch: Any
) -> BoxmatchError:
    """The error with the row of the whole input that it is about."""
    if isinstance(batch, list):
        for row, event in enumerate(batch, first):
            try:
                matcher.match(event)
            except BoxmatchError as alone:
                return BoxmatchError(f"{name}, row {row}: {alone}")
    where = f", counted from row {first}" if first else ""
    return BoxmatchError(f"{name}{where}: {error}")


def _explain(matcher: Matcher, text: str, feed: _Events, name: str, *, as_json: bool) -> None:
    from boxmatch.cli.matches import event_json, rows_of

    explainer = matcher.explainer(given_id(matcher, text))
    for first, batch in feed.batches():
        for row, event in enumerate(rows_of(batch), first):
            try:
                explanation = explainer.explain(event)
            except (AttributeValueError, EventError) as error:
                raise BoxmatchError(f"{name}, row {row}: {error}") from None
            if as_json:
                predicates = [vars(predicate) for predicate in explanation.predicates]
                print_json({"row": row, "subscription": explanation.subscription,
                            "matched": explanation.matched, "predicates": predicates})  # fmt: skip
            else:
                typer.echo(f"row {row}: {event_json(event)}\n{explanation}")
        sys.stdout.flush()
