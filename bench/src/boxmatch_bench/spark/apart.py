"""Functions in processes of their own, so that one measurement leaves nothing to the next."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from boxmatch.errors import BoxmatchError
from boxmatch_bench.checking import FailedError, MismatchError

P = ParamSpec("P")
T = TypeVar("T")

_LINES = 20


def apart(log: Path, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a function that ran in a new process; what it printed is added to `log`."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        1, mp_context=context, initializer=_print_to, initargs=(str(log),)
    ) as pool:
        try:
            return pool.submit(function, *args, **kwargs).result()
        except (MismatchError, BoxmatchError):
            raise
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            printed = log.read_text(errors="replace").splitlines()[-_LINES:]
            message = f"{function.__name__} failed: {type(error).__name__}: {first}"
            raise FailedError("\n".join([message, *printed])) from error


def _print_to(log: str) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(file, stream.fileno())
    os.close(file)
