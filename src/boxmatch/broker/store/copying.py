"""Copies of a database that is being written."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from boxmatch.errors import StorageError
from boxmatch.storage.folders import sync_folder
from boxmatch.storage.sqlite import connect

_PAGES_AT_ONCE = 1024


def copy_database(
    source: Path, target: Path, progress: Callable[[float], None] | None = None
) -> None:
    """One state of a database, as a file that must not be there yet. Any process may do it while
    another writes, which does not wait; `progress` hears the share that is copied.
    """
    if target.exists():
        raise StorageError(f"{target} is there already")
    draft = target.with_name(f"{target.name}.partial")
    try:
        draft.unlink(missing_ok=True)
        with closing(connect(source, "rw")) as connection, closing(connect(draft)) as copy:
            connection.execute("PRAGMA query_only = 1")
            # A transaction holds the state: else every write by others would begin the copy anew.
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()

            def tell(_status: int, remaining: int, total: int) -> None:
                if progress is not None:
                    progress(1.0 - remaining / max(total, 1))

            connection.backup(copy, pages=_PAGES_AT_ONCE, progress=tell)
        _sync(draft)
        os.replace(draft, target)
        sync_folder(target.absolute().parent)
    except (OSError, sqlite3.Error) as error:
        draft.unlink(missing_ok=True)
        raise StorageError(f"cannot copy {source} to {target}: {error}") from error


def _sync(file: Path) -> None:
    handle = os.open(file, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
