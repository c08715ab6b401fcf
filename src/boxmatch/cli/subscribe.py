"""`boxmatch subscribe`: make or replace a subscription."""

from __future__ import annotations

from typing import Annotated

import typer

from boxmatch.cli.completion import feed_names
from boxmatch.cli.connect import DEFAULT_URL, Key, Trust, Url, connect
from boxmatch.cli.help import examples
from boxmatch.cli.schemas import given_filter
from boxmatch.cli.terminal import AsJson, print_json


@examples(
    """boxmatch subscribe alice cheap ticks "symbol = 'IBM' AND price < 30\"""",
    """boxmatch subscribe alice large ticks '{"volume": {"low": 5000}}'""",
    "boxmatch subscribe alice large ticks 'volume >= 5000' --dry-run",
)
def subscribe(
    subscriber: Annotated[str, typer.Argument(metavar="SUBSCRIBER", help="Who wants it.")],
    id_: Annotated[str, typer.Argument(metavar="ID", help="The subscription's id.")],
    feed: Annotated[
        str, typer.Argument(metavar="FEED", help="The feed.", autocompletion=feed_names)
    ],
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
    as_json: AsJson = False,
) -> None:
    """Subscribe a subscriber to the events that a filter wants.

    A subscription of the same id is replaced.
    """
    wanted = given_filter(filter_)
    with connect(url, key, trust) as client:
        if try_:
            tried = client.dry_run(feed, wanted)
            if as_json:
                print_json({"matches": tried.matches, "events": tried.events})
            else:
                typer.echo(f"{tried.matches:,} of the last {tried.events:,} events")
            return
        made = client.subscribe(subscriber, id_, feed, wanted, exact=exact)
    if as_json:
        print_json({"subscriber": made.subscriber, "id": made.id, "feed": feed, "filter": wanted})
    else:
        typer.echo(f"{made.subscriber}/{made.id} wants {feed}: {filter_}")
