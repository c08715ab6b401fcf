"""Subscription ids: strings or integers, one kind per matcher, held as columns."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int64Array
from boxmatch.errors import DuplicateSubscriptionError, SubscriptionIdError
from boxmatch.kernels.background import Stage, background
from boxmatch.kernels.pieces import equal, listed, pieces, repeat, take
from boxmatch.kernels.radix import stable_order
from boxmatch.model.ids import IdKind, SubscriptionId
from boxmatch.model.tables import as_column

IdArray = npt.NDArray[np.int64] | npt.NDArray[np.object_]

_SIGN = np.uint64(1 << 63)
"""What makes signed numbers ascend as unsigned ones."""


def check_id(value: object) -> tuple[SubscriptionId, IdKind]:
    """The id as a plain `str` or `int`, and its kind."""
    if isinstance(value, str):
        _refuse_broken_text([value])
        # A subclass, such as that of an enum, may show itself otherwise.
        return str.__str__(value), "string"
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        number = int(value)
        if -(2**63) <= number < 2**63:
            return number, "int"
        raise SubscriptionIdError(f"subscription id {number} does not fit into 64 bits")
    raise SubscriptionIdError(
        f"a subscription id is a string or an integer, not {type(value).__name__} ({value!r})"
    )


def check_ids(values: Any, *, duplicates: bool = False) -> tuple[IdArray, IdKind]:
    """Many ids as one array, which must be of one kind and, unless `duplicates`, distinct."""
    if isinstance(values, (str, bytes)):
        raise SubscriptionIdError(f"ids are a list or a column, not the text {values!r}")
    column = as_column(values)
    if isinstance(column, np.ndarray) and column.dtype.kind in "iu":
        if column.max(initial=0) >= 2**63:
            raise SubscriptionIdError(f"subscription id {column.max()} does not fit into 64 bits")
        ids: IdArray = column.astype(np.int64)
        kind: IdKind = "int"
    else:
        ids, kind = _check_values(column)
    if not duplicates:
        _refuse_twins(ids)
    return ids, kind


def _check_values(values: Any) -> tuple[IdArray, IdKind]:
    if isinstance(values, np.ndarray) and values.dtype != object:
        values = listed(values)
    kinds = {type(value) for value in values}
    if kinds == {str}:
        _refuse_broken_text(values)
        return as_objects(values), "string"
    if kinds == {int}:
        try:
            return np.fromiter((value for value in values), np.int64, len(values)), "int"
        except OverflowError:
            pass
    checked = [check_id(value) for value in values]
    found = {kind for _, kind in checked}
    if len(found) > 1:
        raise SubscriptionIdError("subscription ids must be all strings or all integers")
    plain = [value for value, _ in checked]
    if found == {"string"}:
        return as_objects(plain), "string"
    return np.array(plain, np.int64), "int"


def _refuse_broken_text(ids: Sequence[str]) -> None:
    """Lone surrogates have no place in files and tables."""
    for one in ids:
        if not one.isascii():
            try:
                one.encode()
            except UnicodeEncodeError:
                raise SubscriptionIdError(
                    f"subscription id {one!r} is not valid text: it holds a lone surrogate"
                ) from None


def as_objects(values: Sequence[object]) -> npt.NDArray[np.object_]:
    """An object array, without NumPy looking into the values."""
    array = np.empty(len(values), object)
    for piece in pieces(len(values)):
        array[piece] = values[piece]
    return array


def _refuse_twins(ids: IdArray) -> None:
    if ids.dtype == np.int64 and bool((ids[1:] > ids[:-1]).all()):
        return  # numbered one after the other, as most are
    ordered = np.sort(hashes(ids))  # a set of a million strings would hold the GIL for long
    duplicates = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(duplicates) == 0:
        return
    if ids.dtype == np.int64:
        raise DuplicateSubscriptionError(ordered[duplicates[0]].item())
    ((duplicate, count),) = Counter(ids).most_common(1)
    if count > 1:
        raise DuplicateSubscriptionError(duplicate)


def distinct(ids: IdArray) -> IdArray:
    """The ids without those that have been there before."""
    keys = hashes(ids)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    again = np.flatnonzero(keys[1:] == keys[:-1])
    if len(again) == 0:
        return ids
    later = order[again + 1]
    if not equal(take(ids, order[again]), take(ids, later)).all():  # two strings with one hash
        return as_objects(list(dict.fromkeys(ids)))
    keep = np.ones(len(ids), bool)
    keep[later] = False
    return take(ids, np.flatnonzero(keep))


def hashes(ids: IdArray) -> Int64Array:
    """One int64 per id; equal ids have equal ones. Strings' change from process to process."""
    if ids.dtype == np.int64:
        return ids.astype(np.int64, copy=False)
    hashed = np.empty(len(ids), np.int64)
    for piece in pieces(len(ids)):
        hashed[piece] = np.fromiter(map(hash, ids[piece]), np.int64)
    return hashed


class Lookup:
    """Positions by id, in twelve bytes an id."""

    def __init__(self, ids: IdArray) -> None:
        self._ids = ids
        found = hashes(ids)
        if background.has(Stage.INDEX):
            self._order = stable_order(found.view(np.uint64) ^ _SIGN)
        else:
            self._order = np.argsort(found).astype(np.int32)
        self._sorted = found[self._order]
        # Its items are plain ints, which makes a search for one of them twice as quick.
        self._keys = memoryview(self._sorted)  # type: ignore[arg-type]  # a buffer in fact
        self._least = self._keys[0] if len(ids) else 0
        self._greatest = self._keys[-1] if len(ids) else -1

    @property
    def nbytes(self) -> int:
        return self._order.nbytes + self._sorted.nbytes

    def find(self, subscription_id: SubscriptionId) -> list[int]:
        """The positions that hold the id."""
        key = subscription_id if isinstance(subscription_id, int) else hash(subscription_id)
        found: list[int] = []
        if not self._least <= key <= self._greatest:  # so are new ones that ascend
            return found
        keys = self._keys
        place = bisect_left(keys, key)
        while place < len(keys) and keys[place] == key:
            position = int(self._order[place])
            if self._ids[position] == subscription_id:
                found.append(position)
            place += 1
        return found

    def find_many(self, ids: IdArray) -> Int64Array:
        """The positions that hold any of the ids, which are distinct."""
        wanted = hashes(ids)
        first = np.searchsorted(self._sorted, wanted, side="left")
        lengths = np.searchsorted(self._sorted, wanted, side="right") - first
        total = int(lengths.sum())
        if total == 0:
            return np.empty(0, np.int64)
        # All places of all runs of equal hashes, one run after the other.
        ends = np.cumsum(lengths)
        places = np.arange(total) + repeat(first - (ends - lengths), lengths)
        positions: Int64Array = self._order[places].astype(np.int64)
        wanted_ids = take(ids, repeat(np.arange(len(ids)), lengths))
        return positions[equal(take(self._ids, positions), wanted_ids)]
