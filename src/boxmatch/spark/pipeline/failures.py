"""Failures of Spark as errors of one line, without plans and stack traces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from boxmatch.errors import SparkError

_RAISED = re.compile(r"[\w.]+: ")
_TRACEBACK = "Traceback (most recent call last):"


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Turn what Spark raises into a `SparkError` of one line that begins with `what`."""
    try:
        yield
    except _spark_errors() as error:
        raise SparkError(f"{what}: {cause_of(error)}") from error


def cause_of(error: BaseException) -> str:
    """The line that names the cause."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if _TRACEBACK in lines:  # of a Python worker: what it raised is at the end
        raised = [line for line in lines[lines.index(_TRACEBACK) :] if _RAISED.match(line)]
        return raised[-1] if raised else lines[-1]
    if lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        return lines[1].lstrip(": ")
    return lines[0]


def _spark_errors() -> tuple[type[Exception], ...]:
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # no stubs
    except ImportError:  # a client of Spark Connect only
        return (PySparkException,)
    return PySparkException, Py4JError
