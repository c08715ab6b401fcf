"""The directory and the SQLite database that a journal is."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path
from typing import Literal, TypeVar

try:
    import fcntl
except ImportError:  # not a Unix system
    fcntl = None  # type: ignore[assignment]

from boxmatch.engine.storage import sync_folder
from boxmatch.errors import StorageError

_T = TypeVar("_T")

Sync = Literal["full", "normal"]
"""`full`: a change that was waited for survives a power cut. `normal`: it survives the end of the
process, however sudden, but the last ones may be lost with the machine; what is left is still the
changes up to one of them."""

FORMAT = 1
_APPLICATION = 0x426F784A
DATABASE = "journal.sqlite"
_LOCK = "lock"
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
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise storage_error(folder, error) from error
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if isinstance(error, BlockingIOError):
                reason = "is open already, here or in another process"
                raise StorageError(f"{folder} {reason}") from None
            raise storage_error(folder, error) from error
    return handle


def storage_error(folder: Path, error: Exception) -> StorageError:
    return StorageError(f"cannot keep a journal at {folder}: {error}")


def connect(folder: Path, mode: Literal["rw", "rwc"] = "rwc") -> sqlite3.Connection:
    # Transactions are begun and ended by hand; threads take turns by locks of our own.
    return sqlite3.connect(
        f"{(folder / DATABASE).absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
    )


def prepare(connection: sqlite3.Connection, folder: Path, settings: str, sync: Sync) -> None:
    made = is_made(connection, folder)
    if made and (kept := recorded(connection, folder, "settings", str)) != settings:
        raise StorageError(f"{folder} was made with other settings: {kept}, not {settings}")
    [(mode,)] = connection.execute("PRAGMA journal_mode = WAL")
    if mode != "wal":
        raise StorageError(f"{folder} is on a file system on which SQLite cannot have a WAL")
    connection.execute(f"PRAGMA synchronous = {sync}")
    if sync == "full":  # on macOS, where fsync does not reach the disk
        connection.execute("PRAGMA fullfsync = 1")
    connection.execute("PRAGMA cache_size = -65536")
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
    [(application,)] = connection.execute("PRAGMA application_id")
    [(version,)] = connection.execute("PRAGMA user_version")
    [(tables,)] = connection.execute("SELECT count(*) FROM sqlite_master")
    if application == version == tables == 0:
        return False
    if application != _APPLICATION:
        raise StorageError(f"{folder / DATABASE} is a database of something else")
    if version != FORMAT:
        raise StorageError(f"{folder / DATABASE} has format {version}; this version reads {FORMAT}")
    return True


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
