"""`boxmatch check` and `boxmatch info`: look at a filter, look at a saved matcher."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from boxmatch.cli.help import examples
from boxmatch.cli.schemas import Attributes, SchemaFile, given_filter, given_schema
from boxmatch.cli.terminal import AsJson, print_json, show_spinner


@examples(
    "boxmatch check 'price > 3' --attribute price=float",
    """boxmatch check "NOT side = 'buy'" --attribute 'side=buy|sell'""",
    """boxmatch check '{"price": {"low": 3, "high": 5}}' --attribute price=float""",
    "boxmatch check 'price > 3 OR price IS NULL' --schema schema.json --json",
)
def check(
    text: Annotated[
        str, typer.Argument(metavar="FILTER", help="A SQL WHERE expression, or a JSON object.")
    ],
    schema: SchemaFile = None,
    attribute: Attributes = None,
    as_json: AsJson = False,
) -> None:
    """Compile a filter and show its boxes, or the position of an error."""
    from boxmatch.model.filters import compile_filter, render

    known = given_schema(schema, attribute or [])
    if known is None:
        raise typer.BadParameter("give the schema with --schema FILE or --attribute NAME=TYPE")
    compiled = compile_filter(known, given_filter(text))
    boxes = [render(known, [box]) for box in compiled.boxes]
    if as_json:
        normal = render(known, compiled.boxes)
        print_json({"filter": normal, "boxes": boxes, "never": compiled.never})
    elif compiled.never:
        typer.echo("This filter can never match.")
    else:
        typer.echo(f"{len(boxes)} box{'es' if len(boxes) > 1 else ''}:")
        for box in boxes:
            typer.echo(f"  {box}")


@examples("boxmatch info alerts.bm", "boxmatch info alerts.bm --json")
def info(
    path: Annotated[
        Path, typer.Argument(metavar="DIR", help="A directory written by Matcher.save.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show the contents of a saved matcher."""
    from boxmatch.engine.matcher import Matcher

    with show_spinner(f"loading {path}"):
        matcher = Matcher.load(path)
    memory = matcher.memory_usage()
    if as_json:
        content = {
            "subscriptions": len(matcher),
            "schema": json.loads(matcher.schema.to_json()),
            "memory": memory,
        }
        print_json(content)
        return
    typer.echo(f"{len(matcher):,} subscriptions over {len(matcher.schema)} attributes:")
    for attribute in matcher.schema:
        values = f" of {', '.join(attribute.values)}" if attribute.values else ""
        typer.echo(f"  {attribute.name}: {attribute.type}{values}")
    for part, size in memory.items():
        typer.echo(f"{size / 1e6:10,.1f} MB  {part}")
