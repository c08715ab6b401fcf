"""Stores of formats up to 3, which had a row for each subscriber and batch in a table `inbox`."""

from __future__ import annotations

import logging
import sqlite3
from itertools import groupby
from operator import itemgetter

import orjson
import xxhash

from boxmatch.broker.store import recipient_rows
from boxmatch.broker.store.recipients import Recipients, join

_log = logging.getLogger(__name__)

_AT_ONCE = 1 << 16
"""Notifications that are put together."""

_BY_BATCH = (
    "SELECT first, subscriber, CAST(notifications AS BLOB), checksum FROM inbox "
    "ORDER BY first, subscriber"
)


def take_over(connection: sqlite3.Connection) -> None:
    """Have rows of recipients instead. Notifications that are damaged are left out and logged."""
    waiting: list[Recipients] = []
    for first, rows in groupby(connection.execute(_BY_BATCH), key=itemgetter(0)):
        boxes = {}
        for _, subscriber, content, checksum in rows:
            if xxhash.xxh3_64_intdigest(content, subscriber ^ first) & 0xFFFF_FFFF == checksum:
                boxes[subscriber] = orjson.loads(content)
            else:
                _log.error("notifications of subscriber %d are damaged: %d", subscriber, first)
        of_batch = Recipients.of(boxes)
        waiting.append(of_batch._replace(event=of_batch.event + first))
        if sum(some.size for some in waiting) >= _AT_ONCE:
            recipient_rows.put(connection, join(waiting))
            waiting = []
    recipient_rows.put(connection, join(waiting))
    connection.execute("DROP TABLE inbox")
