"""A journal's tables, and changes as their rows: checked, packed, and unpacked again."""

from __future__ import annotations

import math
import struct
from typing import Any, Literal, NamedTuple

import numpy as np
import xxhash

from boxmatch.engine.ids import IdArray, as_objects, check_id
from boxmatch.errors import StorageError, SubscriptionIdError
from boxmatch.model.ids import SubscriptionId
from boxmatch.spaces.transitions import KINDS, Transitions
from boxmatch.storage.sqlite import Format

Which = Literal["publication", "subscription"]

# Columns without a type keep integers and texts apart, and all 64 bits.
FORMAT = Format(
    application=0x426F784A,
    version=1,
    tables=(
        "CREATE TABLE about (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
        """CREATE TABLE publication (
        place INTEGER PRIMARY KEY, id NOT NULL UNIQUE, body BLOB NOT NULL, expires REAL,
        checksum INTEGER NOT NULL)""",
        """CREATE TABLE subscription (
        place INTEGER PRIMARY KEY, id NOT NULL UNIQUE, body BLOB NOT NULL, expires REAL,
        checksum INTEGER NOT NULL)""",
        """CREATE TABLE told (
        first INTEGER PRIMARY KEY, count INTEGER NOT NULL, columns BLOB NOT NULL,
        checksum INTEGER NOT NULL)""",
    ),
)

# Not REPLACE, which would give the member another place.
_PUT = (
    "INSERT INTO {} (id, body, expires, checksum) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE "
    "SET body = excluded.body, expires = excluded.expires, checksum = excluded.checksum"
)
_REMOVE = "DELETE FROM {} WHERE id = ?"
TELL = "INSERT INTO told VALUES (?, ?, ?, ?)"


class Change(NamedTuple):
    """A member as it is from now on (`body` None: it is no more), and what that tells."""

    which: Which
    id: SubscriptionId
    body: bytes | None
    expires: float | None
    told: Transitions


def table_of(which: Which) -> str:
    if which not in ("publication", "subscription"):
        raise StorageError(f"there are publications and subscriptions, no {which!r}")
    return which


def member_row(change: Change) -> tuple[str, tuple[Any, ...]]:
    """The statement for a change and its values."""
    table = table_of(change.which)
    member_id, _ = check_id(change.id)
    if change.body is None:
        return _REMOVE.format(table), (member_id,)
    # SQLite has no negative zero.
    expires = None if change.expires is None else float(change.expires) + 0.0
    if expires is not None and math.isnan(expires):  # SQLite would make it NULL: never
        raise StorageError(f"{table} {member_id!r} cannot expire at nan")
    checksum = member_checksum(change.which, member_id, change.body, expires)
    return _PUT.format(table), (member_id, change.body, expires, checksum)


def member_checksum(
    which: Which, member_id: SubscriptionId, body: bytes, expires: float | None
) -> int:
    return _checksum(f"{which} {member_id!r} {expires!r} ".encode() + body)


def _checksum(content: bytes) -> int:
    # SQLite's integers have a sign.
    return xxhash.xxh3_64_intdigest(content) - 2**63


def told_row(told: Transitions) -> tuple[Any, ...]:
    columns = [_packed_code(told), _packed_ids(told.publication), _packed_ids(told.subscription)]
    content = b"".join(columns)
    checksum = told_checksum(told.first, len(told), content)
    return told.first, len(told), content, checksum


def told_checksum(first: int, count: int, content: bytes) -> int:
    return _checksum(b"%d %d " % (first, count) + content)


# A column in a batch: its kind, how many values follow (one that is the same everywhere is written
# once), how many bytes follow, and these.
_HEAD = struct.Struct("<cII")


def _packed_code(told: Transitions) -> bytes:
    if told.code.max() >= len(KINDS):
        raise StorageError(f"there is no kind of transition {told.code.max()}")
    values = told.code.astype(np.uint8).tobytes()
    if values.count(values[0]) == len(values):
        values = values[:1]
    return _HEAD.pack(b"c", len(values), len(values)) + values


def _packed_ids(ids: IdArray) -> bytes:
    if ids.dtype == np.int64:
        if (ids == ids[0]).all():
            ids = ids[:1]
        values = ids.astype("<i8").tobytes()
        return _HEAD.pack(b"i", len(ids), len(values)) + values
    texts: list[str] = ids.tolist()
    if texts.count(texts[0]) == len(texts):
        del texts[1:]
    try:
        content = "".join(texts).encode()
    except (TypeError, UnicodeEncodeError) as error:
        raise SubscriptionIdError(
            f"ids in transitions are int64, or valid text: {error}"
        ) from error
    # Lengths in characters: all texts are decoded in one go.
    lengths = np.fromiter(map(len, texts), "<u4", len(texts)).tobytes()
    return _HEAD.pack(b"t", len(texts), len(lengths) + len(content)) + lengths + content


def unpacked(first: int, count: int, content: bytes) -> Transitions:
    code, offset = _unpacked_column(content, 0, count)
    publication, offset = _unpacked_column(content, offset, count)
    subscription, _ = _unpacked_column(content, offset, count)
    return Transitions(first, code, publication, subscription)


def _unpacked_column(content: bytes, offset: int, count: int) -> tuple[Any, int]:
    kind, stored, size = _HEAD.unpack_from(content, offset)
    begin = offset + _HEAD.size
    values: Any
    if kind == b"c":
        values = np.frombuffer(content, np.uint8, stored, begin)
    elif kind == b"i":
        values = np.frombuffer(content, "<i8", stored, begin).astype(np.int64)
    else:
        endpoints = np.cumsum(np.frombuffer(content, "<u4", stored, begin), dtype=np.int64).tolist()
        text = content[begin + 4 * stored : begin + size].decode()
        values = as_objects([text[a:b] for a, b in zip([0, *endpoints], endpoints, strict=False)])
    return (values if stored == count else np.repeat(values, count)), begin + size
