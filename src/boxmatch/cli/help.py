"""The format of help: plain text that fits the terminal, commands in groups, with examples."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

Function = TypeVar("Function", bound=Callable[..., Any])
Row = tuple[str, str]

_EXAMPLES = "boxmatch_examples"
_HEADING = re.compile(r"^(?:Usage|[A-Z][\w ,]*):(?=$| boxmatch)", re.MULTILINE)
_TYPES = tuple(
    (re.compile(rf"(?<= )(?:{pattern})$"), word)
    for pattern, word in (
        (r"<(?:int|float)(?: range)?>|(?:INTEGER|FLOAT)(?: RANGE)?", "N"),
        (r"<str>", "TEXT"),
        (r"<path>", "PATH"),
        (r"<file>", "FILE"),
        (r"<dir>|DIRECTORY", "DIR"),
        (r"\[([\w-]+(?:\|[\w-]+)+)\]", r"<\1>"),
    )
)
"""What stands for a value, whichever version of Typer it comes from."""
_RANGES = (
    (re.compile(r"([\d.]+)<=x<=([\d.]+)(?=\]$)"), r"\1 to \2"),
    (re.compile(r"x>=([\d.]+)(?=\]$)"), r"at least \1"),
)


def examples(*lines: str) -> Callable[[Function], Function]:
    """Examples that `--help` shows: lines for a shell, with comments. A test parses each."""

    def keep(function: Function) -> Function:
        setattr(function, _EXAMPLES, lines)
        return function

    return keep


class Command(TyperCommand):
    """A command whose help ends with its examples."""

    def get_help(self, ctx: Any) -> str:
        return _bold_headings(super().get_help(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_parameters("Arguments", "argument", self, ctx, formatter)
        _write_parameters("Options", "option", self, ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(examples_of(self), formatter)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        # Arguments first, as people type them.
        shown = []
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                name = argument_name(parameter) + ("..." if parameter.nargs != 1 else "")
                shown.append(name if parameter.required else f"[{name}]")
        return [*shown, "[OPTIONS]"]


class Group(TyperGroup):
    """Commands, under the headings that `rich_help_panel` gives them, and examples."""

    def get_help(self, ctx: Any) -> str:
        return _bold_headings(super().get_help(ctx))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(examples_of(self), formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        # Commands first: they are what people look for here.
        self.format_commands(ctx, formatter)
        _write_parameters("Options", "option", self, ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[Row]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                heading = getattr(command, "rich_help_panel", None)
                title = heading if isinstance(heading, str) else "Commands"
                panels.setdefault(title, []).append((name, summary_of(command)))
        # A column of the same width under every heading.
        widest = max((len(name) for rows in panels.values() for name, _ in rows), default=0)
        for title, rows in panels.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), text) for name, text in rows])


def command_group(help: str, *examples: str) -> typer.Typer:
    """Commands under one name, with examples."""
    return typer.Typer(
        cls=Group,
        help=help,
        epilog="\n".join(examples),
        no_args_is_help=True,
        rich_markup_mode=None,
    )


class Documented(NamedTuple):
    """A command or group, and all the words that call it."""

    words: tuple[str, ...]
    command: Any

    @property
    def is_group(self) -> bool:
        return isinstance(self.command, TyperGroup)


def walk(command: Any, words: tuple[str, ...] = ("boxmatch",)) -> Iterator[Documented]:
    """A command and all below it that are not hidden, in the order in which help lists them."""
    yield Documented(words, command)
    if isinstance(command, TyperGroup):
        nothing: Any = None  # for a context, which is not looked at
        for name in command.list_commands(nothing):
            below = command.get_command(nothing, name)
            if below is not None and not below.hidden:
                yield from walk(below, (*words, name))


def filter_by_prefix(names: Iterable[str], incomplete: str) -> list[str]:
    """The names that a shell offers after the letters that were typed."""
    return [name for name in names if name.startswith(incomplete)]


def examples_of(command: Any) -> tuple[str, ...]:
    """The examples of a command; those of a group are its epilog."""
    found: tuple[str, ...] | None = getattr(command.callback, _EXAMPLES, None)
    return tuple((command.epilog or "").splitlines()) if found is None else found


def argument_name(parameter: Any) -> str:
    """What stands for an argument."""
    return str(parameter.metavar or parameter.name.upper())


def summary_of(command: Any) -> str:
    """The first paragraph of the help, on one line."""
    return " ".join((command.help or "").split("\n\n")[0].split())


def parameter_rows(command: Any, ctx: Any, kind: Literal["argument", "option"]) -> list[Row]:
    """Arguments or options, each with its help."""
    rows = []
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if parameter.param_type_name == kind and record is not None:
            name, text = record[0], record[1].replace("\\[", "[")
            for pattern, word in _TYPES:
                name = pattern.sub(word, name)
            for pattern, word in _RANGES:
                text = pattern.sub(word, text)
            rows.append((argument_name(parameter) if kind == "argument" else name, text))
    return rows


def _write_parameters(
    title: str, kind: Literal["argument", "option"], command: Any, ctx: Any, formatter: Any
) -> None:
    if rows := parameter_rows(command, ctx, kind):
        with formatter.section(title):
            formatter.write_dl(rows)


def _write_examples(lines: tuple[str, ...], formatter: Any) -> None:
    if lines:
        with formatter.section("Examples"):
            # Not wrapped, so that a copied line runs.
            for line in lines:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def _bold_headings(text: str) -> str:
    if os.environ.get("NO_COLOR"):
        return text
    # `echo` strips the codes where there is no terminal.
    return _HEADING.sub(lambda found: typer.style(found[0], bold=True), text)
