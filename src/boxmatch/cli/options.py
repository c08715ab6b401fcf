"""Options that several commands share: of logs, and as the annotated fields of dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, get_origin, get_type_hints

import typer

LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option(help="Minimum level of log messages."),
]
LogFormat = Annotated[
    Literal["auto", "json", "text"],
    typer.Option(help="JSON lines or text; auto is text on a terminal, else JSON."),
]


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """A command that has, for each parameter that is a dataclass, its annotated fields as options.

    The dataclass checks their values: what it refuses is a bad parameter.
    """
    hints = get_type_hints(function, include_extras=True)
    options: dict[str, list[str]] = {}
    parameters: list[Parameter] = []
    for name, parameter in signature(function).parameters.items():
        kind = hints[name]
        if not is_dataclass(kind):
            parameters.append(parameter.replace(annotation=kind))
            continue
        its = get_type_hints(kind, include_extras=True)
        options[name] = [one for one in its if get_origin(its[one]) is Annotated]
        parameters += [
            Parameter(one, parameter.kind, default=getattr(kind, one), annotation=its[one])
            for one in options[name]
        ]

    @wraps(function)
    def command(**given: Any) -> None:
        with refused_parameters():
            made = {
                name: hints[name](**{one: given.pop(one) for one in its})
                for name, its in options.items()
            }
        function(**made, **given)

    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # read by Typer
    return command


@contextmanager
def refused_parameters() -> Iterator[None]:
    """A `ValueError` becomes a message about parameters."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
