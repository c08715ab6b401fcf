"""`boxmatch backup`: a copy of a broker's data, also while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from boxmatch.cli.help import examples
from boxmatch.cli.terminal import AsJson, format_bytes, print_json, progress
from boxmatch.extras import requires


@examples(
    "boxmatch backup saved --data data",
    "boxmatch serve --data saved   # the backup",
)
def backup(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="New directory for the backup.")],
    data: Annotated[Path, typer.Option(file_okay=False, help="The broker's data directory.")],
    as_json: AsJson = False,
) -> None:
    """Back up the data of a broker, even while it runs.

    The backup is verified and can be served directly.
    """
    from rich.progress import TaskID

    with requires("broker", "a broker"):
        from boxmatch.broker.backup import back_up

    with progress() as bars:
        tasks: dict[str, TaskID] = {}

        def show(name: str, share: float) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=1.0)
            bars.update(tasks[name], completed=share)

        made = back_up(data, target, show)
    if as_json:
        print_json({"path": str(made.path), "sizes": dict(made.sizes)})
        return
    for name, nbytes in made.sizes.items():
        typer.echo(f"{format_bytes(nbytes):>10}  {name}")
    typer.echo(f"{made.path} is complete and verified; serve it with --data {made.path}")
