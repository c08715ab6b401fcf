"""`boxmatch backup`: a copy of a broker's data, also while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def backup(
    target: Annotated[Path, typer.Argument(help="New directory for the copy.")],
    data: Annotated[Path, typer.Option(file_okay=False, help="Directory of the broker.")],
) -> None:
    """Copy a broker's data to a new directory, also while it runs, and check the copy."""
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from boxmatch.broker.backup import back_up

    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(name: str, share: float) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=1.0)
            bars.update(tasks[name], completed=share)

        made = back_up(data, target, show)
    for name, nbytes in made.sizes.items():
        typer.echo(f"{nbytes / 1e6:12,.1f} MB  {name}")
    typer.echo(f"{made.path} is complete and checked; serve it with --data {made.path}")
