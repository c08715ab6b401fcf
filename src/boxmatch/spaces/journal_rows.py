"""A journal's tables, and changes as their rows: checked, packed, and unpacked again."""

from __future__ import annotations

import math
import struct
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import xxhash

from boxmatch.engine.ids import as_objects, check_id
from boxmatch.errors import StorageError, SubscriptionIdError
from boxmatch.model.ids import SubscriptionId
from boxmatch.spaces.records import Which
from boxmatch.spaces.transitions import KINDS, Transitions
from boxmatch.storage.sqlite import Format

_MEMBERS = """CREATE TABLE {} (
        place INTEGER PRIMARY KEY, id NOT NULL UNIQUE, body BLOB NOT NULL, expires REAL,
        checksum INTEGER NOT NULL)"""

# Columns without a type keep integers and texts apart, and all 64 bits.
FORMAT = Format(
    application=0x426F784A,
    version=2,
    tables=(
        "CREATE TABLE about (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
        *map(_MEMBERS.format, get_args(Which)),
        """CREATE TABLE notified (
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
NOTIFY = "INSERT INTO notified VALUES (?, ?, ?, ?)"


class MemberChange(NamedTuple):
    """A member as it is from now on (`body` None: it is gone), and the transitions that follow."""

    which: Which
    id: SubscriptionId
    body: bytes | None
    expires: float | None
    notified: Transitions


def table_of(which: Which) -> str:
    if which not in get_args(Which):
        raise StorageError(f"there are publications and subscriptions, no {which!r}")
    return which


def member_row(change: MemberChange) -> tuple[str, tuple[Any, ...]]:
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


def notified_row(notified: Transitions) -> tuple[int, int, bytes, int]:
    """First number, count, columns and checksum."""
    if notified.code.max() >= len(KINDS):
        raise StorageError(f"there is no kind of transition {notified.code.max()}")
    columns = notified.code, notified.publication, notified.subscription
    content = b"".join(map(_pack_column, columns))
    checksum = notified_checksum(notified.first, len(notified), content)
    return notified.first, len(notified), content, checksum


def notified_checksum(first: int, count: int, content: bytes) -> int:
    return _checksum(b"%d %d " % (first, count) + content)


# A column in a batch: its kind, how many values follow (one that is the same everywhere is written
# once), how many bytes follow, and these.
_HEAD = struct.Struct("<cII")
_NUMBERS = {b"c": "u1", b"i": "<i8"}


def _pack_column(values: npt.NDArray[Any]) -> bytes:
    if (values == values[0]).all():
        values = values[:1]
    if values.dtype != object:
        kind = b"c" if values.dtype == np.uint8 else b"i"
        content = values.astype(_NUMBERS[kind]).tobytes()
        return _HEAD.pack(kind, len(values), len(content)) + content
    texts = values.tolist()
    try:
        content = "".join(texts).encode()
    except (TypeError, UnicodeEncodeError) as error:
        raise SubscriptionIdError(
            f"ids in transitions are int64, or valid text: {error}"
        ) from error
    # Lengths in characters: all texts are decoded in one go.
    lengths = np.fromiter(map(len, texts), "<u4", len(texts)).tobytes()
    return _HEAD.pack(b"t", len(texts), len(lengths) + len(content)) + lengths + content


def unpack_transitions(first: int, count: int, content: bytes) -> Transitions:
    """The transitions of which `notified_row` made a row."""
    columns, offset = [], 0
    for _ in range(3):
        kind, stored, size = _HEAD.unpack_from(content, offset)
        begin, offset = offset + _HEAD.size, offset + _HEAD.size + size
        values: Any
        if kind in _NUMBERS:
            values = np.frombuffer(content, _NUMBERS[kind], stored, begin)
        else:
            lengths = np.frombuffer(content, "<u4", stored, begin).tolist()
            text = content[begin + 4 * stored : offset].decode()
            ends = pairwise(accumulate(lengths, initial=0))
            values = as_objects([text[start:end] for start, end in ends])
        columns.append(np.repeat(values, count // stored))
    return Transitions(first, *columns)
