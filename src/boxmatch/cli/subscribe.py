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
    subscriber: Annotated[str, typer.Argument(metavar="SUBSCRIBER", help="The subscriber.")],
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
        bool, typer.Option("--exact", help="Always match exactly, even if the feed is adaptive.")
    ] = False,
    try_: Annotated[
        bool, typer.Option("--dry-run", help="Only count how many of the last events match.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create or replace a subscription.

    A subscription with the same id is replaced.
    """
    wanted = given_filter(filter_)
    with connect(url, key, trust) as client:
        if try_:
            tried = client.dry_run(feed, wanted)
            if as_json:
                print_json({"matches": tried.matches, "events": tried.events})
            else:
                typer.echo(f"Matches {tried.matches:,} of the last {tried.events:,} events")
            return
        made = client.subscribe(subscriber, id_, feed, wanted, exact=exact)
    if as_json:
        print_json({"subscriber": made.subscriber, "id": made.id, "feed": feed, "filter": wanted})
    else:
        typer.echo(f"Subscribed {made.subscriber}/{made.id} to {feed}: {filter_}")
