"""`boxmatch listen`: an owner's notes, one line each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from boxmatch.cli.connect import DEFAULT_URL, Key, Trust, Url, connect
from boxmatch.cli.help import examples
from boxmatch.cli.terminal import AsJson

if TYPE_CHECKING:
    from boxmatch.client import Note


@examples(
    "boxmatch listen alice",
    "boxmatch listen alice --count 10 --json",
    "boxmatch listen alice --after 0 --idle 5   # all that is kept, then end",
)
def listen(
    owner: Annotated[str, typer.Argument(metavar="OWNER", help="Whose notes.")],
    url: Url = DEFAULT_URL,
    key: Key = None,
    trust: Trust = None,
    after: Annotated[
        int | None,
        typer.Option(min=0, help="Begin after this number, not where the owner has got to."),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many notes.")] = None,
    idle: Annotated[
        float | None, typer.Option(min=0, help="End when none came for so many seconds.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what an owner's subscriptions match, as it comes.

    A note is acknowledged once it is printed. Ends with Ctrl-C.
    """
    with connect(url, key, trust) as client:
        if not client.owner(owner).subscriptions:  # a name that is misspelt, or too early
            typer.echo(f"boxmatch: owner {owner!r} has no subscription so far", err=True)
        with client.listen(owner, after=after, idle=idle) as notes:
            for number, note in enumerate(notes, 1):
                print(_line(note, as_json=as_json), flush=True)
                if number == count:
                    break


def _line(note: Note, *, as_json: bool) -> str:
    if as_json:
        told = {name: value for name, value in note._asdict().items() if value is not None}
        return json.dumps(told, ensure_ascii=False)
    names = ", ".join(note.subscriptions)
    body = json.dumps(note.body, ensure_ascii=False)
    return f"{note.sequence}  {note.time:%H:%M:%S}  {note.feed}  {names}  {body}"
