"""The directory and the SQLite database that a journal is."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Literal, TypeVar

from boxmatch.errors import StorageError
from boxmatch.storage import folders
from boxmatch.storage import sqlite as database
from boxmatch.storage.folders import sync_folder
from boxmatch.storage.sqlite import Sync, use_wal

__all__ = [
    "DATABASE",
    "Sync",
    "check_folder",
    "connect",
    "forget",
    "is_made",
    "prepare",
    "recorded",
    "sequences",
    "storage_error",
    "take_lock",
]

_T = TypeVar("_T")

FORMAT = 1
_APPLICATION = 0x426F784A
DATABASE = "journal.sqlite"
_OUR_NAMES = r"lock|journal\.sqlite(-wal|-shm|-journal)?"

# Columns without a type keep integers and texts apart, and all 64 bits.
_TABLES = (
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
)


def check_folder(folder: Path) -> None:
    try:
        names = [entry.name for entry in folder.iterdir()]
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error(folder, error) from error
    if any(re.fullmatch(_OUR_NAMES, name) is None for name in names):
        raise StorageError(f"{folder} holds other files; spaces need a directory of their own")


def take_lock(folder: Path) -> int:
    """Hold the directory's lock, where the system has such locks; it dies with the process."""
    try:
        return folders.take_lock(folder)
    except StorageError:
        raise
    except OSError as error:
        raise storage_error(folder, error) from error


def storage_error(folder: Path, error: Exception) -> StorageError:
    return StorageError(f"cannot keep a journal at {folder}: {error}")


def connect(folder: Path, mode: Literal["rw", "rwc"] = "rwc") -> sqlite3.Connection:
    return database.connect(folder / DATABASE, mode)


def prepare(connection: sqlite3.Connection, folder: Path, settings: str, sync: Sync) -> None:
    made = is_made(connection, folder)
    if made and (kept := recorded(connection, folder, "settings", str)) != settings:
        raise StorageError(f"{folder} was made with other settings: {kept}, not {settings}")
    use_wal(connection, folder / DATABASE, sync)
    if not made:
        connection.execute("BEGIN IMMEDIATE")
        for table in _TABLES:
            connection.execute(table)
        about = [("settings", settings), ("first", 1)]
        connection.executemany("INSERT INTO about VALUES (?, ?)", about)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
        sync_folder(folder)
        sync_folder(folder.absolute().parent)


def is_made(connection: sqlite3.Connection, folder: Path) -> bool:
    """Whether the database is a journal, and not one whose making was cut short."""
    return database.is_made(connection, folder / DATABASE, application=_APPLICATION, version=FORMAT)


def recorded(connection: sqlite3.Connection, folder: Path, name: str, kind: type[_T]) -> _T:
    row = connection.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
    if row is None or not isinstance(row[0], kind):
        raise StorageError(f"{folder / DATABASE} is damaged: it lacks {name!r}")
    return row[0]


def sequences(connection: sqlite3.Connection, folder: Path) -> tuple[int, int]:
    """The next number, and the first that was not forgotten."""
    first = recorded(connection, folder, "first", int)
    last = connection.execute("SELECT first + count FROM told ORDER BY first DESC LIMIT 1")
    upcoming = last.fetchone()
    return (first if upcoming is None else max(first, upcoming[0])), first


def forget(connection: sqlite3.Connection, before: int) -> None:
    # The batch across the border stays whole, and is cut when it is read.
    connection.execute("UPDATE about SET value = ? WHERE name = 'first'", (before,))
    connection.execute("DELETE FROM told WHERE first < ?1 AND first + count <= ?1", (before,))
