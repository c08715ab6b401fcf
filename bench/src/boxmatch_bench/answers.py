"""Compares results as whole sets of ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int64Array

if TYPE_CHECKING:
    from boxmatch.engine.results import MatchResult


class MismatchError(Exception):
    """A result differs from that of the oracle."""


class FailedError(Exception):
    """A part of a benchmark failed, so that there are no figures."""


@contextmanager
def within(label: str) -> Iterator[None]:
    """Prefix the message of a `MismatchError` or `FailedError` with a label."""
    try:
        yield
    except (MismatchError, FailedError) as error:
        raise type(error)(f"{label}: {error}") from None


def by_event(result: MatchResult, events: int) -> list[Int64Array]:
    """Ascending ids of each event, from a result with integer ids."""
    event, ids = np.asarray(result.event), np.asarray(result.subscription)
    order = np.lexsort((ids, event))
    ends = np.searchsorted(event[order], np.arange(1, events))
    return np.split(ids[order].astype(np.int64), ends)


def split(
    counts: Int64Array, positions: npt.NDArray[np.integer], order: Int64Array | None = None
) -> list[Int64Array]:
    """Ascending rows event by event, from positions in an index that stores them in `order`."""
    rows = positions.astype(np.int64) if order is None else order[positions]
    return [np.sort(part) for part in np.split(rows, np.cumsum(counts)[:-1])]


def compare(
    complaint: str, got: list[Int64Array], wanted: list[Int64Array], *, exact: bool = True
) -> None:
    """Raise `MismatchError` if answers differ; unless `exact`, more than wanted is allowed."""
    for event, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
        twice = len(ours) - len(np.unique(ours))
        extra, missing = np.setdiff1d(ours, theirs), np.setdiff1d(theirs, ours)
        if twice or len(missing) or (exact and len(extra)):
            raise MismatchError(
                f"{complaint} at event {event}: {len(extra)} boxes too many "
                f"(such as {extra[:3].tolist()}), {len(missing)} missing "
                f"(such as {missing[:3].tolist()}), {twice} more than once"
            )
