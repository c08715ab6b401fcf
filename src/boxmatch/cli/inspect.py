"""`boxmatch check` and `boxmatch info`: look at a filter, look at a saved matcher."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from boxmatch.errors import SchemaError

if TYPE_CHECKING:
    from boxmatch.model.schema import Schema

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def check(
    text: Annotated[str, typer.Argument(metavar="FILTER", help="A SQL WHERE expression.")],
    schema: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Schema as a JSON file.")
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TYPE",
            help="An attribute of the schema; TYPE is int, float, string, bool, timestamp, or "
            "the values of an enumeration separated by '|'. Repeatable.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile a filter and show what it means, or where it is wrong."""
    from boxmatch.model.filters import compile_filter, render

    known = _schema(schema, attribute or [])
    compiled = compile_filter(known, text)
    boxes = [render(known, [box]) for box in compiled.boxes]
    if as_json:
        normal = render(known, compiled.boxes)
        typer.echo(json.dumps({"filter": normal, "boxes": boxes, "never": compiled.never}))
    elif compiled.never:
        typer.echo("This filter can never match.")
    else:
        typer.echo(f"{len(boxes)} box{'es' if len(boxes) > 1 else ''}:")
        for box in boxes:
            typer.echo(f"  {box}")


def _schema(path: Path | None, attributes: list[str]) -> Schema:
    from boxmatch.model.schema import Schema

    if path is not None:
        if attributes:
            raise typer.BadParameter("give --schema or --attribute, not both")
        return Schema.from_json(path.read_text(encoding="utf-8"))
    if not attributes:
        raise typer.BadParameter("give the schema with --schema FILE or --attribute NAME=TYPE")
    types: dict[str, str | list[str]] = {}
    for item in attributes:
        name, equals, kind = item.partition("=")
        if not equals:
            raise SchemaError(f"{item!r} is not NAME=TYPE")
        types[name] = kind.split("|") if "|" in kind else kind
    return Schema(types)


def info(
    path: Annotated[Path, typer.Argument(help="A directory that Matcher.save wrote.")],
    as_json: AsJson = False,
) -> None:
    """Show what a saved matcher holds."""
    from boxmatch.engine.matcher import Matcher

    matcher = Matcher.load(path)
    memory = matcher.memory_usage()
    if as_json:
        content = {
            "subscriptions": len(matcher),
            "schema": json.loads(matcher.schema.to_json()),
            "memory": memory,
        }
        typer.echo(json.dumps(content))
        return
    typer.echo(f"{len(matcher):,} subscriptions over {len(matcher.schema)} attributes:")
    for attribute in matcher.schema:
        values = f" of {', '.join(attribute.values)}" if attribute.values else ""
        typer.echo(f"  {attribute.name}: {attribute.type}{values}")
    for part, size in memory.items():
        typer.echo(f"{size / 1e6:10,.1f} MB  {part}")
