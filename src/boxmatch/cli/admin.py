"""`boxmatch admin`: the keys of a broker, and whether its data is sound."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from boxmatch.cli.help import Command, command_group, examples
from boxmatch.cli.key_descriptions import (
    describe_key,
    describe_limits,
    describe_moment,
    describe_roles,
    grant_document,
    key_document,
)
from boxmatch.cli.terminal import AsJson, format_bytes, output, print_json, show_spinner
from boxmatch.extras import requires

if TYPE_CHECKING:
    from boxmatch.broker.verify import Verification

_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}

admin = command_group(
    "Manage the keys of a broker, and check its data.",
    "boxmatch admin keys create operations --admin --data data",
    "boxmatch admin check --data data",
)
keys = command_group(
    "Manage API keys.\n\nA running broker applies changes within a second.",
    "boxmatch admin keys create exchange --publish ticks --data data",
    "boxmatch admin keys list --data data",
)
admin.add_typer(keys, name="keys")

Data = Annotated[Path, typer.Option(metavar="DIR", help="The broker's data directory.")]
Key = Annotated[
    str, typer.Argument(metavar="KEY", help="Its id, or its label if no other key has it.")
]


@keys.command(cls=Command)
@examples(
    "boxmatch admin keys create operations --admin --data data",
    "boxmatch admin keys create exchange --publish ticks --expires 90d --data data",
    "boxmatch admin keys create alice --subscribe alice --data data",
    "boxmatch admin keys create bo --subscribe bo --subscribe-to ticks --data data",
)
def create(
    label: Annotated[str, typer.Argument(help="What the key is for.")],
    data: Data,
    admin: Annotated[bool, typer.Option("--admin", help="May do everything.")] = False,
    publish: Annotated[
        list[str] | None,
        typer.Option(metavar="FEED", help="May publish to this feed; * for all. Repeatable."),
    ] = None,
    read: Annotated[
        list[str] | None,
        typer.Option(metavar="FEED", help="May read this feed's log; * for all. Repeatable."),
    ] = None,
    subscribe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SUBSCRIBER", help="May act as this subscriber; * for all. Repeatable."
        ),
    ] = None,
    subscribe_to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FEED",
            help="May subscribe to this feed, with --subscribe; default: to all. Repeatable.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="After 30m, 12h, 90d or 4w, or on a date; default: never."
        ),
    ] = None,
    events_per_second: Annotated[
        float | None, typer.Option(min=0, help="Limit; the broker's own by default.")
    ] = None,
    requests_per_second: Annotated[float | None, typer.Option(min=0, help="Limit.")] = None,
    events_per_request: Annotated[int | None, typer.Option(min=0, help="Limit.")] = None,
    body_bytes: Annotated[int | None, typer.Option(min=0, help="Limit per request.")] = None,
    filter_bytes: Annotated[int | None, typer.Option(min=0, help="Limit per filter.")] = None,
    subscriptions: Annotated[int | None, typer.Option(min=0, help="Limit per subscriber.")] = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it.

    The broker stores only its hash: the key cannot be shown again.
    """
    from boxmatch.broker.access import Keys

    given = {
        "events_per_second": events_per_second,
        "requests_per_second": requests_per_second,
        "events_per_request": events_per_request,
        "body_bytes": body_bytes,
        "filter_bytes": filter_bytes,
        "subscriptions": subscriptions,
    }
    limits = {name: value for name, value in given.items() if value is not None}
    with Keys.open(data) as opened:
        grant, text = opened.create(
            label,
            admin=admin,
            publish=publish or (),
            read=read or (),
            subscribe=subscribe or (),
            subscribe_to=subscribe_to or None,
            limits=limits,
            expires=None if expires is None else _moment(expires, time.time()),
        )
    if as_json:
        print_json({"key": text, **grant_document(grant), "limits": limits})
        return
    # The key alone goes to stdout, so that a script can take it from there.
    typer.echo(f"Key {grant.id} may {describe_roles(grant)}. It will not be shown again:", err=True)
    typer.echo(text)


@keys.command("list", cls=Command)
@examples(
    "boxmatch admin keys list --data data",
    "boxmatch admin keys list --data data --json | grep active",
)
def list_keys(data: Data, as_json: AsJson = False) -> None:
    """List all keys, including expired and revoked ones."""
    from boxmatch.broker.access import Keys

    with Keys.open(data, make=False) as opened:
        found = opened.list()
    now = time.time()
    if as_json:
        for info in found:
            print_json(key_document(info, now))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("id", "label", "may", "limits", "created", "expires", "state", box=None)
    for info in found:
        row = (
            info.grant.id,
            info.grant.label,
            describe_roles(info.grant),
            describe_limits(info),
            describe_moment(info.created),
            "never" if info.expires is None else describe_moment(info.expires),
            info.state(now),
        )
        # As Text, since a label may hold what rich takes for markup.
        table.add_row(*map(Text, row))
    output().print(table)


@keys.command(cls=Command)
@examples(
    "boxmatch admin keys show exchange --data data",
    "boxmatch admin keys show 4f9c2ab7 --data data   # an id from `keys list`",
)
def show(key: Key, data: Data, as_json: AsJson = False) -> None:
    """Say what a key may do, and for how long."""
    from boxmatch.broker.access import Keys

    with Keys.open(data, make=False) as opened:
        info = opened.find(key)
    now = time.time()
    if as_json:
        print_json(key_document(info, now))
        return
    for sentence in describe_key(info, now):
        typer.echo(sentence)


@keys.command(cls=Command)
@examples(
    "boxmatch admin keys rotate exchange --data data",
    "boxmatch admin keys rotate exchange --overlap 7d --data data",
    "boxmatch admin keys rotate exchange --overlap 0m --data data   # if it leaked",
)
def rotate(
    key: Key,
    data: Data,
    overlap: Annotated[
        str,
        typer.Option(metavar="TIME", help="For how long the old secret stays valid: 30m, 12h, 7d."),
    ] = "1h",
    as_json: AsJson = False,
) -> None:
    """Give a key a new secret and print it.

    Id, permissions, limits and expiry stay. The old secret is valid until the overlap has ended;
    `--overlap 0m` ends all earlier ones at once.
    """
    from boxmatch.broker.access import Keys

    with Keys.open(data, make=False) as opened:
        info, text = opened.rotate(key, _duration(overlap))
    now = time.time()
    if as_json:
        print_json({"key": text, **key_document(info, now)})
        return
    # Without an overlap no earlier secret is left.
    old = f"is valid until {describe_moment(info.earlier[-1])} UTC" if info.earlier else "has ended"
    typer.echo(
        f"Key {info.grant.id} has a new secret; the old one {old}. "
        f"The new one will not be shown again:",
        err=True,
    )
    typer.echo(text)


@keys.command(cls=Command)
@examples("boxmatch admin keys revoke 4f9c2ab7 --data data   # an id from `keys list`")
def revoke(key: Key, data: Data, as_json: AsJson = False) -> None:
    """Revoke a key permanently, with all its secrets.

    A running broker refuses it within a second.
    """
    from boxmatch.broker.access import Keys

    with Keys.open(data, make=False) as opened:
        id = opened.revoke(key)
    if as_json:
        print_json({"id": id, "state": "revoked"})
    else:
        typer.echo(f"Key {id} is revoked.")


@admin.command(cls=Command)
@examples("boxmatch admin check --data data", "boxmatch admin check --data saved --json")
def check(data: Data, as_json: AsJson = False) -> None:
    """Read all data of a broker and report damage.

    Exits with 1 if there is any. The broker must not be running; to check a running one, check a
    backup of it (`boxmatch backup`).
    """
    with requires("broker", "a broker"):
        from boxmatch.broker.verify import verify

    with show_spinner(f"reading {data}"):
        found = verify(data)
    if as_json:
        content = {**found._asdict(), "feeds": [feed._asdict() for feed in found.feeds]}
        print_json(content)
    else:
        _show(found)
    if found.problems:
        raise typer.Exit(1)


def _show(found: Verification) -> None:
    for name, nbytes in found.nbytes.items():
        typer.echo(f"{format_bytes(nbytes):>10}  {name}")
    for feed in found.feeds:
        counts = [f"{feed.events:,} events", f"{feed.subscriptions:,} subscriptions"]
        if feed.kind == "state":
            counts.append(f"{feed.publications:,} publications")
        typer.echo(f"feed {feed.name}: {', '.join(counts)}")
    if not found.problems:
        first, last = found.first_sequence, found.next_sequence - 1
        numbers = f"sequence numbers {first:,} to {last:,}" if first <= last else "an empty log"
        typer.echo(
            f"{found.subscribers:,} subscribers with {found.waiting:,} notifications waiting, "
            f"{found.keys:,} keys, {numbers}"
        )
        typer.echo("No damage found.")
    for problem in found.problems:
        typer.echo(f"damaged: {problem}", err=True)


def _moment(text: str, now: float) -> float:
    """The Unix time that `90d` or `2027-01-31` stands for; UTC, unless it says otherwise."""
    if (seconds := _seconds(text)) is not None:
        return now + seconds
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither like 90d nor a date") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _duration(text: str) -> float:
    seconds = _seconds(text)
    if seconds is None:
        raise typer.BadParameter(f"{text!r} is no time like 30m, 12h, 90d or 4w")
    return seconds


def _seconds(text: str) -> float | None:
    """What `90d` stands for; None if it is nothing of the kind."""
    found = re.fullmatch(r"([0-9]{1,9})([mhdw])", text)
    return int(found[1]) * _SECONDS[found[2]] if found else None
