"""The database: where it is, its tables, and what it is prepared with."""

from __future__ import annotations

from boxmatch.storage.sqlite import Format, LockedDatabase

DATABASE = "broker.sqlite"
_WAL_PAGES = 16_384
"""64 MiB. Another thread copies most of it into the database before it has that length."""

# Numbers that are never used again need AUTOINCREMENT. The index on feeds covers all that is asked
# about batches without their payload, which would else be a walk through the whole log.
FORMAT = Format(
    application=0x426F7842,
    version=2,
    tables=(
        "CREATE TABLE about (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
        """CREATE TABLE feed (
        number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
        spec TEXT NOT NULL)""",
        """CREATE TABLE subscriber (
        number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
        cursor INTEGER NOT NULL, dropped INTEGER NOT NULL, dropped_through INTEGER NOT NULL)""",
        """CREATE TABLE subscription (
        number INTEGER PRIMARY KEY AUTOINCREMENT, subscriber INTEGER NOT NULL, id TEXT NOT NULL,
        feed INTEGER NOT NULL, wanted BLOB NOT NULL, created REAL NOT NULL, updated REAL NOT NULL,
        checksum INTEGER NOT NULL, UNIQUE (subscriber, id))""",
        "CREATE INDEX subscription_by_feed ON subscription (feed, number)",
        """CREATE TABLE member (
        place INTEGER PRIMARY KEY, feed INTEGER NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL,
        expires REAL, checksum INTEGER NOT NULL, UNIQUE (feed, id))""",
        "CREATE TABLE webhook (subscriber INTEGER PRIMARY KEY, body BLOB NOT NULL)",
        """CREATE TABLE dead_letter (
        number INTEGER PRIMARY KEY AUTOINCREMENT, subscriber INTEGER NOT NULL, first INTEGER NOT
        NULL, last INTEGER NOT NULL, attempts INTEGER NOT NULL, reason TEXT NOT NULL, at REAL NOT
        NULL, body BLOB NOT NULL)""",
        "CREATE INDEX dead_letter_by_subscriber ON dead_letter (subscriber, number)",
        """CREATE TABLE batch (
        first INTEGER PRIMARY KEY, size INTEGER NOT NULL, feed INTEGER NOT NULL, at REAL NOT NULL,
        rate REAL NOT NULL, checksum INTEGER NOT NULL, nbytes INTEGER NOT NULL,
        payload BLOB NOT NULL)""",
        "CREATE INDEX batch_by_feed ON batch (feed, first, size, nbytes)",
        """CREATE TABLE inbox (
        subscriber INTEGER NOT NULL, last INTEGER NOT NULL, first INTEGER NOT NULL,
        amount INTEGER NOT NULL, notifications TEXT NOT NULL, checksum INTEGER NOT NULL,
        PRIMARY KEY (subscriber, last)) WITHOUT ROWID""",
        "CREATE INDEX inbox_by_batch ON inbox (first)",
        """CREATE TABLE repeat (
        feed INTEGER NOT NULL, key TEXT NOT NULL, at REAL NOT NULL, first INTEGER NOT NULL,
        last INTEGER NOT NULL, PRIMARY KEY (feed, key)) WITHOUT ROWID""",
        "CREATE INDEX repeat_by_time ON repeat (at)",
    ),
)


def prepare(database: LockedDatabase) -> int:
    """Make the tables unless they are there. The next number."""
    database.prepare(FORMAT, next=1)
    connection = database.connection
    connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
    # Some builds fill with zeros what is deleted, which here is most of what is written.
    connection.execute("PRAGMA secure_delete = 0").fetchall()
    # Written down only when batches go: else the last one says it.
    kept = database.read_about("next", int)
    last = connection.execute("SELECT first + size FROM batch ORDER BY first DESC LIMIT 1")
    found = last.fetchone()
    return kept if found is None else int(max(kept, found[0]))
