"""Rows of recipients: one for each transaction, later one for many, in the order of events.

A row has what its subscribers have not acknowledged, and goes once there is nothing left in it.
Only the writer thread changes rows, each time as a whole.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson
import xxhash

from boxmatch.broker.store.recipients import (
    Addressees,
    Details,
    Recipients,
    pack,
    unpack,
    unpack_addressees,
    unpack_details,
)
from boxmatch.broker.store.rows import json_text

MOST_BYTES = 1 << 19
"""Of one row: more than one event's never are. Who changes a row writes all of it."""

TABLE = """CREATE TABLE recipients (
    first INTEGER PRIMARY KEY, last INTEGER NOT NULL, amount INTEGER NOT NULL,
    checksum INTEGER NOT NULL, addressees BLOB NOT NULL, details BLOB NOT NULL)"""
INDEX = "CREATE INDEX recipients_by_last ON recipients (last, first, amount, checksum)"
_PUT = "INSERT INTO recipients VALUES (?, ?, ?, ?, ?, ?)"
COLUMNS = "last, first, amount, checksum"
_LOWER = 0xFFFF_FFFF


_KEYS_AT_ONCE = 256
_FEW = 8
"""Rows that are faster read one by one than as text."""

_OVERLAPPING = (
    f"SELECT json_group_array(json_array({COLUMNS}, nbytes)) FROM (SELECT {COLUMNS}, "
    "coalesce(length(addressees) + length(details), 0) AS nbytes FROM recipients "
    "WHERE first >= coalesce((SELECT max(first) FROM recipients WHERE first <= ?1), ?1) "
    "AND first > ?3 AND first <= ?2 AND last >= ?1 AND typeof(last) = 'integer' "
    "AND typeof(amount) = 'integer' AND typeof(checksum) = 'integer' "
    f"ORDER BY first LIMIT {_KEYS_AT_ONCE})"
)


class RowKey(NamedTuple):
    """What is known of a row without its content."""

    last: int
    first: int
    amount: int
    """Of notifications."""
    checksum: int


class Overlap(NamedTuple):
    """A row that has events of some ranges."""

    key: RowKey
    nbytes: int
    """Of its content, which is not read."""
    is_inside: bool
    """Whether it has no others. Ranges that touch count as one."""


def put(connection: sqlite3.Connection, recipients: Recipients) -> int:
    """Write recipients whose events are sequence numbers. How many bytes that are."""
    written = 0
    for piece in recipients.pieces(MOST_BYTES):
        first, last = int(piece.event.min()), int(piece.event.max())
        addressees, details = pack(piece, first)
        checksum = _checksum(first, last, piece.size, addressees, details)
        row = first, last, piece.size, checksum, addressees, details
        connection.execute(_PUT, row)
        written += len(addressees) + len(details)
    return written


def overlapping(
    connection: sqlite3.Connection, ranges: Iterable[tuple[int, int]]
) -> Iterator[Overlap]:
    """Rows that have events of some ranges, in order."""
    seen = reached = -1
    for low, high in _joined(ranges):
        is_more = reached < high
        while is_more:
            [(text,)] = connection.execute(_OVERLAPPING, (low, high, seen))
            rows = orjson.loads(text)
            for *values, nbytes in rows:
                key = RowKey(*values)
                yield Overlap(key, nbytes, low <= key.first and key.last <= high)
                seen, reached = key.first, max(reached, key.last)
            is_more = len(rows) == _KEYS_AT_ONCE


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            low, high = found[-1][0], max(high, found.pop()[1])
        found.append((low, high))
    return found


def contents(
    connection: sqlite3.Connection, keys: Sequence[RowKey]
) -> list[tuple[int, Recipients]]:
    """What is in some rows, each with its first event. Those that are damaged are left out."""
    firsts = [key.first for key in keys]
    addressees = columns_of(connection, "addressees", firsts)
    details = columns_of(connection, "details", firsts)
    found = [
        (key.first, read(key, addressees.get(key.first), details.get(key.first))) for key in keys
    ]
    return [(first, recipients) for first, recipients in found if recipients is not None]


def columns_of(
    connection: sqlite3.Connection, name: str, firsts: Sequence[int]
) -> dict[int, bytes]:
    """A column of some rows, by their first events; without those where it is no blob."""
    whose = f"FROM recipients WHERE first IN (SELECT value FROM json_each(?)) AND typeof({name})"
    which = (json_text(list(firsts)),)
    if len(firsts) <= _FEW:
        return dict(connection.execute(f"SELECT first, {name} {whose} = 'blob'", which).fetchall())
    # As one row: each by itself would ask for the interpreter again.
    statement = f"SELECT json_group_array(json_array(first, hex({name}))) {whose} = 'blob'"
    [(text,)] = connection.execute(statement, which)
    return {first: bytes.fromhex(content) for first, content in orjson.loads(text)}


def delete(connection: sqlite3.Connection, firsts: Sequence[int]) -> None:
    statement = "DELETE FROM recipients WHERE first IN (SELECT value FROM json_each(?))"
    connection.execute(statement, (json_text(list(firsts)),))


def read(key: RowKey, addressees: Any, details: Any) -> Recipients | None:
    """The content of a row; None if it is damaged."""
    if not isinstance(addressees, bytes) or not isinstance(details, bytes):
        return None
    if _checksum(key.first, key.last, key.amount, addressees, details) != key.checksum:
        return None
    return unpack(addressees, details, key.first)


def read_addressees(key: RowKey, content: Any) -> Addressees | None:
    """The first half of the content; None if it is damaged."""
    if not isinstance(content, bytes) or not isinstance(key.checksum, int):
        return None
    if _upper(key.first, key.last, key.amount, content) != key.checksum >> 32:
        return None
    return unpack_addressees(content, key.first)


def read_details(key: RowKey, content: Any) -> Details | None:
    """The second half of the content; None if it is damaged."""
    if not isinstance(content, bytes) or _lower(key.first, content) != key.checksum & _LOWER:
        return None
    return unpack_details(content)


def _checksum(first: int, last: int, amount: int, addressees: bytes, details: bytes) -> int:
    """One of each half of the content, as one half is mostly read without the other."""
    return _upper(first, last, amount, addressees) << 32 | _lower(first, details)


def _upper(first: int, last: int, amount: int, addressees: bytes) -> int:
    state = xxhash.xxh3_64(b"%d %d %d " % (first, last, amount))
    state.update(addressees)
    return (state.intdigest() & _LOWER) - 2**31  # SQLite's integers have a sign


def _lower(first: int, details: bytes) -> int:
    return xxhash.xxh3_64_intdigest(details, first) & _LOWER
