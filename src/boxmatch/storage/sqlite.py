"""SQLite files that one process writes: connections, how durable they are, and their format."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from boxmatch.errors import StorageError
from boxmatch.storage.folders import replacing, sync_names, take_lock

_T = TypeVar("_T")

Sync = Literal["full", "normal"]
"""`full`: a change that was waited for survives a power cut. `normal`: it survives the end of the
process, however sudden, but the last ones may be lost with the machine; what is left is still the
changes up to one of them."""

Upgrade = Callable[[sqlite3.Connection], None]

_PAGES_AT_ONCE = 1024


class Format(NamedTuple):
    """What kind of database a file is, and of which version."""

    application: int
    version: int
    tables: tuple[str, ...]
    """Statements that make the tables."""
    upgrades: Mapping[int, tuple[str | Upgrade, ...]] = {}
    """By version, what makes of a database of it one of the next version: statements, or what is
    done with a connection."""


class LockedDatabase:
    """A connection to a database in a folder of its own, which one process at a time has open."""

    def __init__(self, file: Path, sync: Sync) -> None:
        _check_sync(sync)
        self.file = file
        self._sync = sync
        self._lock = take_lock(file.parent)
        try:
            self.connection = connect(file)
        except BaseException:
            os.close(self._lock)
            raise

    def prepare(self, format: Format, **about: object) -> None:
        """Have it write ahead; make the tables unless they are there, `about` as in `make`. A
        database of an earlier version is upgraded.
        """
        made = is_made(self.connection, self.file, format)
        use_wal(self.connection, self.file, self._sync)
        if not made:
            make(self.connection, format, **about)
            sync_names(self.file)
        else:
            _upgrade(self.connection, format)

    def read_about(self, name: str, kind: type[_T]) -> _T:
        """What the table `about` says under a name."""
        query = "SELECT value FROM about WHERE name = ?"
        row = self.connection.execute(query, (name,)).fetchone()
        if row is None or not isinstance(row[0], kind):
            raise StorageError(f"{self.file} is damaged: it lacks {name!r}")
        return row[0]

    def close(self) -> None:
        try:
            self.connection.close()
        finally:
            os.close(self._lock)


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
    _check_sync(sync)
    [(mode,)] = connection.execute("PRAGMA journal_mode = WAL")
    if mode != "wal":
        raise StorageError(f"{file.parent} is on a file system on which SQLite cannot have a WAL")
    connection.execute(f"PRAGMA synchronous = {sync}")
    if sync == "full":  # on macOS, where fsync does not reach the disk
        connection.execute("PRAGMA fullfsync = 1")
    connection.execute("PRAGMA cache_size = -65536")


def _check_sync(sync: Sync) -> None:
    if sync not in ("full", "normal"):
        raise StorageError(f"sync is 'full' or 'normal', not {sync!r}")


def is_made(connection: sqlite3.Connection, file: Path, format: Format) -> bool:
    """Whether the database is of this kind and format, or an earlier one that can be upgraded, and
    not one whose making was cut short.
    """
    [(application,)] = connection.execute("PRAGMA application_id")
    [(version,)] = connection.execute("PRAGMA user_version")
    [(tables,)] = connection.execute("SELECT count(*) FROM sqlite_master")
    if application == version == tables == 0:
        return False
    if application != format.application:
        raise StorageError(f"{file} is a database of something else")
    if version != format.version and version not in format.upgrades:
        raise StorageError(f"{file} has format {version}; this version reads {format.version}")
    return True


def make(connection: sqlite3.Connection, format: Format, **about: object) -> None:
    """Make the tables in one transaction, with what the table `about` says to begin with."""
    connection.execute("BEGIN IMMEDIATE")
    for table in format.tables:
        connection.execute(table)
    if about:
        connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())
    connection.execute(f"PRAGMA application_id = {format.application}")
    connection.execute(f"PRAGMA user_version = {format.version}")
    connection.execute("COMMIT")


def _upgrade(connection: sqlite3.Connection, format: Format) -> None:
    """Bring a database of an earlier version up to date, in one transaction."""
    [(version,)] = connection.execute("PRAGMA user_version")
    if version == format.version:
        return
    connection.execute("BEGIN IMMEDIATE")
    for earlier in range(version, format.version):
        for step in format.upgrades[earlier]:
            if isinstance(step, str):
                connection.execute(step)
            else:
                step(connection)
    connection.execute(f"PRAGMA user_version = {format.version}")
    connection.execute("COMMIT")


def checkpoint(file: Path, mode: Literal["PASSIVE", "TRUNCATE"]) -> None:
    """Copy the write-ahead log into the database, as far as that is possible without waiting for
    those who read and write.
    """
    with closing(connect(file, "rw")) as connection:
        if mode != "PASSIVE":
            connection.execute("PRAGMA busy_timeout = 0").fetchall()
        connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()


def copy_database(
    source: Path, target: Path, progress: Callable[[float], None] | None = None
) -> None:
    """One state of a database, as a file that must not be there yet. Any process may do it while
    another writes, which does not wait; `progress` hears the share that is copied.
    """
    if target.exists():
        raise StorageError(f"{target} is there already")
    try:
        with replacing(target) as draft:
            _copy(source, draft, progress)
    except (OSError, sqlite3.Error) as error:
        raise StorageError(f"cannot copy {source} to {target}: {error}") from error


def _copy(source: Path, target: Path, progress: Callable[[float], None] | None) -> None:
    with closing(connect(source, "rw")) as connection, closing(connect(target)) as copy:
        connection.execute("PRAGMA query_only = 1")
        # A transaction holds the state: else every write by others would begin the copy anew.
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()

        def report(_status: int, remaining: int, total: int) -> None:
            if progress is not None:
                progress(1.0 - remaining / max(total, 1))

        connection.backup(copy, pages=_PAGES_AT_ONCE, progress=report)
