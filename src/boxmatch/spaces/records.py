"""Members as bytes, for the disk, and many of them as columns, for loading.

A record is a line of JSON (the names of the regions, how many constraints each has, the filter, and
the strings that occur) and the constraints, packed. So what is read most often, numbers, is read
for all members at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

CONSTRAINT = np.dtype([("dimension", "<u2"), ("open", "u1"), ("low", "<i8"), ("high", "<i8")])

Constraints = npt.NDArray[np.void]
"""An array of `CONSTRAINT`."""


class Shape(NamedTuple):
    """What a member is apart from its constraints: `lengths` says how many each region has."""

    names: tuple[str, ...]
    lengths: tuple[int, ...]
    filter: str | None


class Batch(NamedTuple):
    """Many members: their shapes, and all constraints one after the other."""

    shapes: list[Shape]
    constraints: Constraints


def pack(shape: Shape, constraints: Constraints, texts: Sequence[str]) -> bytes:
    """A record. Constraints refer to `texts` by number, in a way that is left to the caller."""
    head = _plain_head(shape) if not texts else _head(shape, texts)
    return head + constraints.tobytes()


def _head(shape: Shape, texts: Sequence[str]) -> bytes:
    return json.dumps([*shape, list(texts)]).encode() + b"\n"


@lru_cache(maxsize=1_024)
def _plain_head(shape: Shape) -> bytes:
    return _head(shape, ())


class Records(NamedTuple):
    """Records as columns; member `m` refers to `texts[first_text[m] :]`."""

    batch: Batch
    texts: list[str]
    first_text: npt.NDArray[np.int64]


def unpack(records: Iterable[bytes]) -> Records:
    """What many records say."""
    heads: dict[bytes, tuple[Shape, list[str]]] = {}
    shapes: list[Shape] = []
    packed: list[bytes] = []
    texts: list[str] = []
    first_text: list[int] = []
    for record in records:
        end = record.index(b"\n")
        head = record[:end]
        known = heads.get(head)
        if known is None:
            known = _read_head(json.loads(head))
            if not known[1]:  # others hardly come twice
                heads[head] = known
        shapes.append(known[0])
        packed.append(record[end + 1 :])
        first_text.append(len(texts))
        texts += known[1]
    constraints = np.frombuffer(b"".join(packed), CONSTRAINT).copy()
    return Records(Batch(shapes, constraints), texts, np.array(first_text, np.int64))


def _read_head(head: list[Any]) -> tuple[Shape, list[str]]:
    names, lengths, filter, texts = head
    return Shape(tuple(names), tuple(lengths), filter), texts
