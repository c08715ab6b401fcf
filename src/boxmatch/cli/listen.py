"""`boxmatch listen`: a subscriber's notifications, one line each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from boxmatch.cli.connect import DEFAULT_URL, Key, Trust, Url, connect
from boxmatch.cli.help import examples
from boxmatch.cli.terminal import AsJson

if TYPE_CHECKING:
    from boxmatch.client import Notification


@examples(
    "boxmatch listen alice",
    "boxmatch listen alice --count 10 --json",
    "boxmatch listen alice --after 0 --idle 5   # everything that is kept",
)
def listen(
    subscriber: Annotated[str, typer.Argument(metavar="SUBSCRIBER", help="The subscriber.")],
    url: Url = DEFAULT_URL,
    key: Key = None,
    trust: Trust = None,
    after: Annotated[
        int | None,
        typer.Option(min=0, help="Start after this sequence number instead of the cursor."),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many notifications.")
    ] = None,
    idle: Annotated[
        float | None,
        typer.Option(min=0, help="Stop after this many seconds without a notification."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the notifications of a subscriber as they arrive.

    Acknowledges each notification after printing it. Stop it with Ctrl-C.
    """
    with connect(url, key, trust) as client:
        if not client.subscriber(subscriber).subscriptions:  # a name that is misspelt, or too early
            typer.echo(f"boxmatch: subscriber {subscriber!r} has no subscriptions yet", err=True)
        with client.listen(subscriber, after=after, idle=idle) as notifications:
            for number, notification in enumerate(notifications, 1):
                print(_line(notification, as_json=as_json), flush=True)
                if number == count:
                    break


def _line(notification: Notification, *, as_json: bool) -> str:
    if as_json:
        from boxmatch.wire.codec import encode

        return encode(notification).decode()
    names = ", ".join(notification.subscriptions)
    body = json.dumps(notification.body, ensure_ascii=False)
    head = f"{notification.sequence}  {notification.time:%H:%M:%S}  {notification.feed}"
    return f"{head}  {names}  {body}"
