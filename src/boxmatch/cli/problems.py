"""Errors on the command line: one paragraph, and the exit code 2."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import sys
import traceback
from types import FrameType
from typing import Any, NoReturn, Self, TextIO

import typer

from boxmatch.errors import BoxmatchError, ClientError

DEBUG = "--debug"
_VARIABLE = "BOXMATCH_DEBUG"
_INVALID = "Invalid value: "

_HINTS = {401: "\nGive a key with --key or BOXMATCH_KEY."}
"""What to do about a status of the broker."""
_VERBOSE = ("pyarrow", "pyspark", "py4j")
"""Packages whose errors are about the data; only the first line of the text is for the user."""


class Interrupts:
    """Remembers Ctrl-C: a library in C may swallow it and then fail with another error.

    Objects that are finalised after the interrupt may print errors of their own; they are muted.
    """

    happened = False

    def __enter__(self) -> Self:
        self._before = signal.getsignal(signal.SIGINT)
        self._hook = sys.unraisablehook
        # A handler that somebody else has set stays.
        self._ours = self._before is signal.default_int_handler
        if self._ours:
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *failure: object) -> None:
        if self._ours and not self.happened:
            sys.unraisablehook = self._hook
            if signal.getsignal(signal.SIGINT) == self._handle:  # a broker that stops ignores it
                signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.happened = True
        sys.unraisablehook = lambda report: None
        signal.default_int_handler(number, frame)


def wants_traceback(arguments: list[str]) -> tuple[list[str], bool]:
    """The arguments without `--debug`, wherever it stands, and whether it was there.

    After an error, people add it at the end of the line.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    before = [word for word in arguments[:end] if word != DEBUG]
    asked = len(before) < end or os.environ.get(_VARIABLE, "0") not in ("", "0")
    return before + arguments[end:], asked


def report_error(error: BaseException, *, debug: bool) -> int:
    """Print what went wrong on standard error; returns the exit code."""
    if debug and not _about_usage(error):
        traceback.print_exception(error, file=sys.stderr)
    typer.echo(f"boxmatch: {explain(error)}", err=True)
    return 2


def explain(error: BaseException) -> str:
    """What went wrong, in words for the person who typed the command."""
    if _about_usage(error):
        return _usage(error)
    if isinstance(error, MemoryError) and not isinstance(error, BoxmatchError):
        return "not enough memory"
    if isinstance(error, ClientError):
        return str(error) + _HINTS.get(error.status or 0, "")
    if isinstance(error, BoxmatchError):
        return str(error)
    if isinstance(error, OSError):
        return _system(error)
    if isinstance(error, ModuleNotFoundError):
        return f"Boxmatch needs {error.name}, which is not installed"
    if isinstance(error, sqlite3.Error):
        return f"cannot use the database of the broker: {error}"
    first = str(error).strip().partition("\n")[0]
    if type(error).__module__.partition(".")[0] in _VERBOSE:
        return first
    return (
        f"internal error: {type(error).__name__}{': ' if first else ''}{first}\n"
        f"This is a bug in Boxmatch. Run the command with {DEBUG} to see the traceback."
    )


def _about_usage(error: BaseException) -> bool:
    """Whether parsing arguments raised it. Some versions of Typer vendor these classes."""
    return hasattr(error, "format_message")


def _usage(error: Any) -> str:
    text = error.format_message().removeprefix(_INVALID).replace(": Value error, ", ": ").strip()
    text = text[:1].lower() + text[1:]
    context = getattr(error, "ctx", None)
    return text if context is None else f"{text}\nTry: {context.command_path} --help"


def _system(error: OSError) -> str:
    if error.strerror is None:
        return str(error)
    text = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{' and '.join(names)}: {text}" if names else text


def is_call_for_help(error: BaseException) -> bool:
    """A group was called without a command; the error's text is the help."""
    return type(error).__name__ == "NoArgsIsHelpError"


def exit_quietly() -> NoReturn:
    """Exit because the reader of standard output has closed it."""
    discard_unwritable_output()
    sys.exit(1)


def discard_unwritable_output(*streams: TextIO) -> None:
    """Discard what cannot be written to these streams, by default to both.

    Python would try again at exit, print an error, and change the exit code.
    """
    for stream in streams or (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
