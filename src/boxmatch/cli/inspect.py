"""`boxmatch check` and `boxmatch info`: look at a filter, look at a saved matcher."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from boxmatch.cli.help import examples
from boxmatch.cli.schemas import (
    Attributes,
    Dialect,
    SchemaFile,
    given_filter,
    given_id,
    given_schema,
)
from boxmatch.cli.terminal import AsJson, format_bytes, print_json, show_spinner

if TYPE_CHECKING:
    from boxmatch.engine.matcher import Matcher
    from boxmatch.model.ids import SubscriptionId

_PARTS = {
    "boxes": "filters",
    "tail": "filters",
    "texts": "filters as written",
    "ids": "ids",
    "lookup": "ids",
    "strings": "strings in filters",
    "finders": "strings in filters",
}
"""What parts of a matcher's memory hold; others are the index, whose parts say little."""

_AXES = {
    "value": "{}",
    "elements": "{}",
    "needles": "strings in {}",
    "regexes": "regular expressions in {}",
}


@examples(
    "boxmatch check 'price > 3' --attribute price=float",
    """boxmatch check "NOT side = 'buy'" --attribute 'side=buy|sell'""",
    """boxmatch check '{"price": {"low": 3, "high": 5}}' --attribute price=float""",
    "boxmatch check 'price > 3 OR price IS NULL' --schema schema.json --json",
    """boxmatch check "'urgent' = ANY(tags)" --attribute 'tags=list of string'""",
    """boxmatch check '{"state": [{"prefix": "stop"}]}' --dialect eventbridge""",
)
def check(
    text: Annotated[
        str,
        typer.Argument(
            metavar="FILTER",
            help="A SQL WHERE expression, a JSON object, or what the dialect has.",
        ),
    ],
    schema: SchemaFile = None,
    attribute: Attributes = None,
    dialect: Dialect = None,
    as_json: AsJson = False,
) -> None:
    """Compile a filter: show its boxes and cost, or where an error is.

    The cost is box (conditions on attributes), axis (values of expressions, worked out once for
    each event), or residual (conditions that are checked for the events in a box). With a dialect
    no schema is needed: events may have any attributes.
    """
    from boxmatch.model.filters import compile_filter, render
    from boxmatch.model.schema import Schema

    known = given_schema(schema, attribute or [])
    if known is None and dialect is not None:
        known = Schema()
    if known is None:
        raise typer.BadParameter("give the schema with --schema FILE or --attribute NAME=TYPE")
    compiled = compile_filter(known, given_filter(text, dialect), dialect=dialect)
    boxes = [render(known, [box], compiled.axes) for box in compiled.boxes]
    axes = [_AXES[axis.kind].format(axis.text) for axis in compiled.axes]
    checked = compiled.checked
    if as_json:
        normal = render(known, compiled.boxes, compiled.axes, compiled.residual)
        content = {
            "filter": normal,
            "boxes": boxes,
            "axes": axes,
            "residual": checked,
            "cost": compiled.cost,
            "never": compiled.never,
        }
        print_json(content | ({"warning": compiled.warning} if compiled.warning else {}))
    elif compiled.never:
        typer.echo("This filter can never match.")
    else:
        if not compiled.unbounded:
            _echo_list(f"{len(boxes)} box{'es' if len(boxes) > 1 else ''}", boxes)
        _echo_list("worked out for every event", axes)
        where = "" if compiled.unbounded else " in a box"
        _echo_list(f"checked for every event{where}", checked)
        typer.echo(f"cost: {compiled.cost}")
        if compiled.warning is not None:
            typer.echo(f"Warning: {compiled.warning}.", err=True)


def _echo_list(title: str, lines: list[str]) -> None:
    if lines:
        typer.echo(f"{title}:")
        for line in lines:
            typer.echo(f"  {line}")


@examples(
    "boxmatch info alerts.bm",
    "boxmatch info alerts.bm --id alice",
    "boxmatch info alerts.bm --filters | grep IBM",
    "boxmatch info alerts.bm --json",
)
def info(
    path: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A directory written by Matcher.save or Matcher.open."),
    ],
    one_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Show the filter of this subscription.")
    ] = None,
    filters: Annotated[
        bool, typer.Option("--filters", help="List all subscriptions with their filters.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the contents of a saved or durable matcher."""
    from boxmatch.engine.matcher import Matcher

    with show_spinner(f"loading {path}"):
        matcher = Matcher.load(path)
    if one_id is not None and filters:
        raise typer.BadParameter("give --id or --filters, not both")
    if filters:
        _show_filters(matcher.items(), as_json=as_json)
    elif one_id is not None:
        known = given_id(matcher, one_id)
        _show_filters([(known, matcher.filter_of(known))], as_json=as_json)
    else:
        _show_summary(matcher, as_json=as_json)


def _show_filters(items: Iterable[tuple[SubscriptionId, str]], *, as_json: bool) -> None:
    for subscription_id, text in items:
        if as_json:
            print_json({"id": subscription_id, "filter": text})
        else:
            typer.echo(f"{subscription_id}\t{text}")


def _show_summary(matcher: Matcher, *, as_json: bool) -> None:
    info = matcher.info()
    if as_json:
        content = {
            "subscriptions": info.subscriptions,
            "boxes": info.boxes,
            "expressions": info.expressions,
            "residuals": info.residuals,
            "schema": json.loads(matcher.schema.to_json()),
            "memory": info.memory | {"total": info.total_memory},
        }
        print_json(content)
        return
    attributes = _count(len(matcher.schema), "attribute")
    typer.echo(f"{_count(info.subscriptions, 'subscription')} over {attributes}:")
    for attribute in matcher.schema:
        values = f" of {', '.join(attribute.values)}" if attribute.values else ""
        typer.echo(f"  {attribute.name}: {attribute.type_name}{values}")
    typer.echo(_count(info.boxes, "box", "boxes"))
    if info.expressions:
        typer.echo(f"{_count(info.expressions, 'expression')}, worked out for every event")
    if info.residuals:
        some = _count(info.residuals, "subscription")
        typer.echo(f"{some} with conditions that are checked event by event")
    typer.echo(f"{format_bytes(info.total_memory)} of memory:")
    held: Counter[str] = Counter()
    for part, size in info.memory.items():
        held[_PARTS.get(part, "index")] += size
    for part, size in held.most_common():
        typer.echo(f"  {part}: {format_bytes(size)}")


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
