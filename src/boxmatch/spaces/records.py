"""Members outside the arrays: one by one, many as columns, and as bytes for the disk.

A record is a line of JSON (the names of the regions, how many constraints each has, the filter, and
the strings that occur) and the constraints, packed. So what is read most often, numbers, is read
for all members at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int64Array, UInt16Array, UInt64Array
from boxmatch.spaces.layout import Actor
from boxmatch.spaces.region_filter import Code

Which = Literal["publication", "subscription"]

OPEN = 16
"""The bit of a constraint from which on it says which endpoints are open: low, high."""

CONSTRAINT = np.dtype([("dimension", "<u2"), ("open", "u1"), ("low", "<i8"), ("high", "<i8")])

Constraints = npt.NDArray[np.void]
"""An array of `CONSTRAINT`."""


class Member(NamedTuple):
    """A publication or a subscription: named regions, and which of them must have a partner.

    Region `i` has the constraints `start[i] : start[i + 1]`, by dimension in ascending order.
    """

    names: tuple[str, ...]
    start: Int64Array
    dimension: UInt16Array
    low: Int64Array
    high: Int64Array
    open: npt.NDArray[np.uint8]
    valid: UInt64Array
    filter: str | None
    code: Code

    @property
    def actor(self) -> Actor:
        """What a search through the other side needs of it."""
        return Actor(self.start, self.dimension, self.low, self.high, self.valid, self.code)

    def has_shape_of(self, other: Member) -> bool:
        """Whether both have the same regions, in the same spaces, and the same filter."""
        same_text = self.names == other.names and self.filter == other.filter
        return same_text and np.array_equal(self.valid, other.valid)


class Shape(NamedTuple):
    """What a member is apart from its constraints: `lengths` says how many each region has."""

    names: tuple[str, ...]
    lengths: tuple[int, ...]
    filter: str | None


class MemberBatch(NamedTuple):
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


def unpack(records: Iterable[bytes]) -> tuple[MemberBatch, list[str], Int64Array]:
    """Many members, all texts, and the first text of each member."""
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
            names, lengths, filter, own_texts = json.loads(head)
            known = Shape(tuple(names), tuple(lengths), filter), own_texts
            if not known[1]:  # others hardly come twice
                heads[head] = known
        shapes.append(known[0])
        packed.append(record[end + 1 :])
        first_text.append(len(texts))
        texts += known[1]
    constraints = np.frombuffer(b"".join(packed), CONSTRAINT).copy()
    return MemberBatch(shapes, constraints), texts, np.array(first_text, np.int64)
