"""What is not needed any more goes, in transactions so small that nobody waits long for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import orjson

from boxmatch.broker.settings import Retention
from boxmatch.broker.store.gathered import json_text
from boxmatch.broker.store.reader import Reader
from boxmatch.broker.store.rows import Notes, Tidied, notes_checksum, pack_notes, unpack_notes
from boxmatch.broker.store.transaction import REPEATABLE, Transaction

Write = Callable[[Callable[[Transaction], Any]], Future[Any]]

_ROWS_AT_ONCE = 2000
_BATCHES_AT_ONCE = 32
_OWNERS_AT_ONCE = 32

# By part, of which each is one transaction: how far which owners' rows go, and their notes.
_ACKNOWLEDGED = f"""
    SELECT json_group_array(json_array(part, owner, bound, notes)) FROM (
        SELECT part, owner, max(last) AS bound, sum(amount) AS notes FROM (
            SELECT i.owner, i.last, i.amount,
                row_number() OVER (ORDER BY i.owner, i.last) / {_ROWS_AT_ONCE} AS part
            FROM owner o CROSS JOIN inbox i ON i.owner = o.number AND i.last <= o.cursor)
        GROUP BY part, owner ORDER BY part)"""
_DELETE_THROUGH = """
    DELETE FROM inbox WHERE (owner, last) IN (
        SELECT i.owner, i.last FROM json_each(?) j CROSS JOIN inbox i
        ON i.owner = json_extract(j.value, '$[0]') AND i.last <= json_extract(j.value, '$[1]'))"""
_AMONG = "first IN (SELECT value FROM json_each(?))"


def tidy(reader: Reader, write: Write, now: float, retention: Retention) -> Tidied:
    """See `Store.tidy`."""
    acknowledged = _drop_acknowledged(reader, write)
    dropped: Counter[int] = Counter()
    batches = 0
    for firsts in _old_batches(reader, now, retention):
        gone, missed = write(partial(_forget, firsts=firsts)).result()
        batches += gone
        dropped.update(missed)
    long = [owner for owner, n in reader.backlogs().items() if n > retention.backlog]
    while long:
        some = long[:_OWNERS_AT_ONCE]
        shortened = write(partial(_shorten_all, owners=some, most=retention.backlog))
        turns = shortened.result()
        dropped.update({owner: gone for owner, (gone, _) in turns.items()})
        again = [owner for owner, (_, more) in turns.items() if more]
        long = again + long[_OWNERS_AT_ONCE:]
    while write(partial(_forget_keys, now=now)).result():
        pass
    return Tidied(batches, acknowledged, {o: count for o, count in dropped.items() if count})


def _drop_acknowledged(reader: Reader, write: Write) -> int:
    with reader.connection() as connection:
        [(text,)] = connection.execute(_ACKNOWLEDGED)
    parts: dict[int, list[tuple[int, int]]] = {}
    total = 0
    for part, owner, bound, notes in orjson.loads(text):
        parts.setdefault(part, []).append((owner, bound))
        total += notes
    for bounds in parts.values():
        write(partial(_delete_through, bounds=bounds)).result()
    return total


def _delete_through(transaction: Transaction, bounds: list[tuple[int, int]]) -> None:
    transaction.execute(_DELETE_THROUGH, json_text(bounds))


def _old_batches(reader: Reader, now: float, retention: Retention) -> Iterator[list[int]]:
    """The oldest batches that are too old or too much, a few at a time."""
    with reader.connection() as connection:
        [(nbytes,)] = connection.execute("SELECT coalesce(sum(nbytes), 0) FROM batch")
    last = -1
    while True:
        with reader.connection() as connection:
            rows = connection.execute(
                "SELECT first, CAST(nbytes AS INTEGER), CAST(at AS REAL) FROM batch "
                f"WHERE first > ? ORDER BY first LIMIT {_BATCHES_AT_ONCE}",
                (last,),
            ).fetchall()
        firsts = []
        for first, size, at in rows:
            if size is None or at is None:  # damaged: it goes with the others
                firsts.append(first)
                continue
            if at >= now - retention.seconds and nbytes <= retention.nbytes:
                break
            firsts.append(first)
            nbytes -= size
        if firsts:
            yield firsts
            last = firsts[-1]
        if len(firsts) < _BATCHES_AT_ONCE:
            return


def _forget(transaction: Transaction, firsts: list[int]) -> tuple[int, dict[int, int]]:
    """Drop batches and the notes in them. How many there were, and who had not read how many."""
    among = json_text(firsts)
    unread = "FROM inbox i JOIN owner o ON o.number = i.owner WHERE i.last > o.cursor AND i."
    rows = transaction.execute(
        f"SELECT i.owner, sum(i.amount), max(i.last) {unread}{_AMONG} GROUP BY i.owner", among
    ).fetchall()
    missed = {owner: count for owner, count, _ in rows}
    through = {owner: last for owner, _, last in rows}
    partly = transaction.execute(
        "SELECT i.owner, o.cursor, i.first, CAST(i.notes AS BLOB), i.checksum "
        f"{unread}{_AMONG} AND i.first <= o.cursor",
        among,
    ).fetchall()
    for owner, cursor, first, text, checksum in partly:
        notes = unpack_notes(owner, first, text, checksum) or []
        missed[owner] -= sum(first + position <= cursor for position, _ in notes)
    for owner, count in missed.items():
        _count_dropped(transaction, owner, count, through[owner])
    transaction.execute(f"DELETE FROM inbox WHERE {_AMONG}", among)
    gone = transaction.execute(f"DELETE FROM batch WHERE {_AMONG}", among).rowcount
    transaction.keep_next()
    return gone, missed


def _count_dropped(transaction: Transaction, owner: int, count: int, through: int) -> None:
    transaction.execute(
        "UPDATE owner SET dropped = dropped + ?, dropped_through = max(dropped_through, ?) "
        "WHERE number = ?",
        *(count, through, owner),
    )


def _shorten_all(
    transaction: Transaction, owners: list[int], most: int
) -> dict[int, tuple[int, bool]]:
    return {owner: _shorten(transaction, owner, most) for owner in owners}


def _shorten(transaction: Transaction, owner: int, most: int) -> tuple[int, bool]:
    """Drop the oldest notes of an owner who has more than `most` waiting. How many went, and
    whether there are still too many: one turn looks at so many rows and no more.
    """
    [(cursor,)] = transaction.execute("SELECT cursor FROM owner WHERE number = ?", owner)
    [(waiting,)] = transaction.execute(
        "SELECT coalesce(sum(amount), 0) FROM inbox WHERE owner = ? AND last > ?", owner, cursor
    )
    rows = transaction.execute(
        "SELECT last, first, amount, CAST(notes AS BLOB), checksum FROM inbox "
        f"WHERE owner = ? AND last > ? ORDER BY last LIMIT {_ROWS_AT_ONCE}",
        *(owner, cursor),
    ).fetchall()
    unread = [_unread(owner, cursor, row) for row in rows]
    excess = waiting - sum(row[2] for row in rows) + sum(amount for amount, _ in unread) - most
    dropped = through = bound = 0
    for (last, first, *_), (amount, notes) in zip(rows, unread, strict=True):
        if dropped >= excess:
            break
        gone = min(amount, excess - dropped)
        if notes is None or gone == amount:
            gone, through, bound = amount, last, last
        else:
            through = first + notes[gone - 1][0]
            _replace_notes(transaction, owner, last, first, notes[gone:])
        dropped += gone
    statement = "DELETE FROM inbox WHERE owner = ? AND last > ? AND last <= ?"
    transaction.execute(statement, owner, cursor, bound)
    if dropped:
        _count_dropped(transaction, owner, dropped, through)
    return dropped, 0 < dropped < excess


def _unread(owner: int, cursor: int, row: Any) -> tuple[int, Notes | None]:
    """How many notes of a row are after the cursor, and these; None if they are damaged."""
    _, first, amount, text, checksum = row
    notes = unpack_notes(owner, first, text, checksum)
    if notes is None:
        return amount, None
    if first <= cursor:
        notes = [note for note in notes if first + note[0] > cursor]
    return len(notes), notes


def _replace_notes(
    transaction: Transaction, owner: int, last: int, first: int, notes: Notes
) -> None:
    text = pack_notes(notes)
    transaction.execute(
        "UPDATE inbox SET amount = ?, notes = ?, checksum = ? WHERE owner = ? AND last = ?",
        *(len(notes), text.decode(), notes_checksum(owner, first, text), owner, last),
    )


def _forget_keys(transaction: Transaction, now: float) -> bool:
    old = f"SELECT feed, key FROM repeat WHERE at <= ? LIMIT {_ROWS_AT_ONCE}"
    statement = f"DELETE FROM repeat WHERE (feed, key) IN ({old})"
    return transaction.execute(statement, now - REPEATABLE).rowcount == _ROWS_AT_ONCE
