"""Giving memory back."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def release_free_memory() -> None:
    """Hand what was freed back to the system.

    Building an index frees arrays of some ten megabytes each, which glibc keeps for later: at a
    million boxes that is half as much again as the index itself.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # not glibc
        return None
