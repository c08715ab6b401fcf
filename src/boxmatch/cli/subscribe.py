"""`boxmatch subscribe`: make or replace a subscription."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from boxmatch.cli.connect import DEFAULT_URL, Key, Trust, Url, connect


def subscribe(
    owner: Annotated[str, typer.Argument(metavar="OWNER", help="Who wants it.")],
    id_: Annotated[str, typer.Argument(metavar="ID", help="The subscription's id.")],
    feed: Annotated[str, typer.Argument(metavar="FEED", help="The feed.")],
    filter_: Annotated[
        str, typer.Argument(metavar="FILTER", help="A SQL WHERE expression, or a JSON object.")
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    trust: Trust = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Check matches that were found under an error bound.")
    ] = False,
    try_: Annotated[
        bool, typer.Option("--dry-run", help="Only count which of the last events it wants.")
    ] = False,
) -> None:
    """Subscribe an owner to the events of a feed that a filter wants."""
    wanted = _filter(filter_)
    with connect(url, key, trust) as client:
        if try_:
            tried = client.dry_run(feed, wanted)
            typer.echo(f"{tried.matches:,} of the last {tried.events:,} events")
            return
        made = client.subscribe(owner, id_, feed, wanted, exact=exact)
    typer.echo(f"{made.owner}/{made.id} wants {feed}: {filter_}")


def _filter(text: str) -> Any:
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"the filter is neither SQL nor JSON: {error}") from None
