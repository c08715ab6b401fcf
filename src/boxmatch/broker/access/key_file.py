"""The SQLite file that keys are kept in.

Apart from the broker's database, so that the command line can write it while the broker runs. It
holds the SHA-256 of each secret, not the secret. A slow hash would add nothing: it is there to
make guessing costly where people choose the secrets, and 256 random bits cannot be guessed.

Files of format 1 are converted when they are opened. Versions that know only that format then
refuse them: they would ignore which feeds a key may subscribe to.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from boxmatch.errors import StorageError
from boxmatch.storage.folders import creating, sync_names, write_problem
from boxmatch.storage.sqlite import Format, connect, is_made, make, use_wal

_T = TypeVar("_T")

FILE = "keys.sqlite"
_READER_MILLISECONDS = 100
"""How long one who asks is kept waiting: not for writers, in WAL mode, but for a recovery."""
_FORMAT = Format(
    application=0x426F784B,
    version=2,
    tables=(
        """CREATE TABLE key (
        id TEXT PRIMARY KEY, digest BLOB NOT NULL, label TEXT NOT NULL, roles TEXT NOT NULL,
        limits TEXT NOT NULL, created REAL NOT NULL, expires REAL, revoked REAL,
        earlier TEXT NOT NULL DEFAULT '[]') WITHOUT ROWID""",
    ),
)


class EarlierSecret(NamedTuple):
    """A secret that a rotation replaced."""

    digest: bytes
    ends: float
    """When it ceases to be valid."""


class KeyRow(NamedTuple):
    """A key as it is stored."""

    id: str
    digest: bytes
    label: str
    roles: dict[str, Any]
    limits: dict[str, Any]
    """Only those that are the key's own."""
    created: float
    expires: float | None
    revoked: float | None
    earlier: tuple[EarlierSecret, ...] = ()


class KeyFile:
    """Reads and writes the file. Not for several threads at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._version: int | None = None

    @classmethod
    def open(cls, folder: Path, *, make: bool) -> KeyFile:
        """Open the file of a data folder; make it, and the folder, if that is wanted."""
        path = folder / FILE
        if not make and not path.exists():
            raise StorageError(f"there are no keys in {folder}")
        with _report_errors(path):
            if make and not path.exists():
                _make(path)
            with closing(connect(path, "rw")) as connection:
                _check_format(connection, path)
                use_wal(connection, path, "full")  # a copy from a backup has none
                _bring_up_to_date(connection)
        return cls(path)

    def read_if_changed(self) -> list[KeyRow] | None:
        """All keys, or None if nobody wrote since the last time.

        Notices too that another file was put in its place, such as one from a backup.
        """
        with _report_errors(self.path):
            found = os.stat(self.path)
            identity = (found.st_dev, found.st_ino)
            if self._reader is None or identity != self._identity:
                self.close()
                self._reader = connect(self.path, "rw")
                self._reader.execute(f"PRAGMA busy_timeout = {_READER_MILLISECONDS}")
                _check_format(self._reader, self.path)
                _bring_up_to_date(self._reader)
                self._identity, self._version = identity, None
            # Asked before reading: what comes in between is read twice rather than never.
            [(version,)] = self._reader.execute("PRAGMA data_version")
            if version == self._version:
                return None
            rows = [_row(fields, self.path) for fields in self._reader.execute(_SELECT).fetchall()]
            self._version = version
            return rows

    def insert(self, row: KeyRow) -> None:
        """Add a key; `sqlite3.IntegrityError` if its id is taken."""
        fields = (*row[:3], json.dumps(row.roles), json.dumps(row.limits), *row[5:8])
        values = f"({', '.join('?' * 8)}, '[]')"
        self._write(lambda c: c.execute(f"INSERT INTO key VALUES {values}", fields))

    def replace_secret(self, id: str, change: Callable[[KeyRow], KeyRow]) -> KeyRow | None:
        """Give a key the `digest` and the `earlier` secrets that `change` makes of what is stored:
        all of it, or with an error nothing. None if there is no such key.
        """

        def replace(connection: sqlite3.Connection) -> KeyRow | None:
            found = connection.execute(f"{_SELECT} WHERE id = ?", (id,)).fetchone()
            if found is None:
                return None
            row = change(_row(found, self.path))
            earlier = json.dumps([[digest.hex(), ends] for digest, ends in row.earlier])
            connection.execute(
                "UPDATE key SET digest = ?, earlier = ? WHERE id = ?", (row.digest, earlier, id)
            )
            return row

        return self._write(replace)

    def revoke(self, id: str, now: float) -> bool:
        """Mark a key as revoked, unless it is already; False if there is none."""
        update = "UPDATE key SET revoked = coalesce(revoked, ?) WHERE id = ?"
        return self._write(lambda c: c.execute(update, (now, id)).rowcount) > 0

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _write(self, change: Callable[[sqlite3.Connection], _T]) -> _T:
        # A connection of its own, so that the reader's data_version shows this change as well.
        with _report_errors(self.path), closing(connect(self.path, "rw")) as connection:
            use_wal(connection, self.path, "full")
            with _transaction(connection):
                return change(connection)


_SELECT = "SELECT id, digest, label, roles, limits, created, expires, revoked, earlier FROM key"


@contextmanager
def _report_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (StorageError, sqlite3.IntegrityError):
        raise
    except (OSError, sqlite3.Error) as error:
        reason = write_problem(path) or error
        raise StorageError(f"cannot use the keys in {path}: {reason}") from error


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _make(path: Path) -> None:
    """Put an empty file of keys there, unless someone else is quicker.

    It gets its name when it is complete, so nobody sees it half made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError), creating(path) as draft:
        draft.touch(0o600)  # only its user may read it, and the files that SQLite puts beside it
        with closing(connect(draft, "rw")) as connection:
            use_wal(connection, path, "full")
            make(connection, _FORMAT)
    sync_names(path)


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN")  # one state of the file, which others may be converting
    try:
        [(version,)] = connection.execute("PRAGMA user_version")
        known = _FORMAT._replace(version=1) if version == 1 else _FORMAT
        if not is_made(connection, path, known):
            raise StorageError(f"{path} is empty: it is not a file of keys")
    finally:
        connection.execute("ROLLBACK")


def _bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Convert a file of format 1. Several processes may try at once; one of them does it."""
    if connection.execute("PRAGMA user_version").fetchone() == (_FORMAT.version,):
        return
    with _transaction(connection):
        if connection.execute("PRAGMA user_version").fetchone() == (1,):
            connection.execute("ALTER TABLE key ADD COLUMN earlier TEXT NOT NULL DEFAULT '[]'")
            connection.execute(f"PRAGMA user_version = {_FORMAT.version}")


def _row(fields: tuple[Any, ...], path: Path) -> KeyRow:
    row = KeyRow(*fields)
    try:
        roles, limits = json.loads(fields[3]), json.loads(fields[4])
        earlier = tuple(
            EarlierSecret(bytes.fromhex(digest), float(ends))
            for digest, ends in json.loads(fields[8])
        )
    except (TypeError, ValueError):
        raise StorageError(f"{path} is damaged: key {row.id!r}") from None
    right = isinstance(roles, dict) and isinstance(limits, dict)
    if not right or not isinstance(row.digest, bytes):
        raise StorageError(f"{path} is damaged: key {row.id!r}")
    return row._replace(roles=roles, limits=limits, earlier=earlier)
