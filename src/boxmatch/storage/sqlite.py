"""SQLite files that one process writes: connections, how durable they are, and their format."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Literal

from boxmatch.errors import StorageError

Sync = Literal["full", "normal"]
"""`full`: a change that was waited for survives a power cut. `normal`: it survives the end of the
process, however sudden, but the last ones may be lost with the machine; what is left is still the
changes up to one of them."""


def connect(file: Path, mode: Literal["ro", "rw", "rwc"] = "rwc") -> sqlite3.Connection:
    # Transactions are begun and ended by hand; threads take turns by locks of our own.
    return sqlite3.connect(
        f"{file.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
    )


def use_wal(connection: sqlite3.Connection, file: Path, sync: Sync) -> None:
    """Have a connection write ahead, and wait for the disk as `sync` says."""
    if sync not in ("full", "normal"):
        raise StorageError(f"sync is 'full' or 'normal', not {sync!r}")
    [(mode,)] = connection.execute("PRAGMA journal_mode = WAL")
    if mode != "wal":
        raise StorageError(f"{file.parent} is on a file system on which SQLite cannot have a WAL")
    connection.execute(f"PRAGMA synchronous = {sync}")
    if sync == "full":  # on macOS, where fsync does not reach the disk
        connection.execute("PRAGMA fullfsync = 1")
    connection.execute("PRAGMA cache_size = -65536")


def is_made(connection: sqlite3.Connection, file: Path, *, application: int, version: int) -> bool:
    """Whether the database is of this kind and format, and not one whose making was cut short."""
    [(found,)] = connection.execute("PRAGMA application_id")
    [(found_version,)] = connection.execute("PRAGMA user_version")
    [(tables,)] = connection.execute("SELECT count(*) FROM sqlite_master")
    if found == found_version == tables == 0:
        return False
    if found != application:
        raise StorageError(f"{file} is a database of something else")
    if found_version != version:
        raise StorageError(f"{file} has format {found_version}; this version reads {version}")
    return True
