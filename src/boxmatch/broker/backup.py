"""A copy of a broker's data, taken while the broker runs, and checked.

Each database is copied as it is at one moment. The broker is not held up; its write-ahead log
grows until the copy is done.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from boxmatch.broker.access.key_file import FILE as KEYS
from boxmatch.broker.store.store import DATABASE
from boxmatch.errors import StorageError
from boxmatch.storage.folders import sync_folder
from boxmatch.storage.sqlite import copy_database

DATABASES = (DATABASE, KEYS)

Progress = Callable[[str, float], None]


class Backup(NamedTuple):
    """What was copied."""

    path: Path
    sizes: dict[str, int]
    """Bytes of each database."""


def back_up(data: Path, target: Path, progress: Progress = lambda _name, _share: None) -> Backup:
    """Copy the databases in `data` to the new directory `target`, and check the copies.

    `target` can be served as it is. Nothing is there until all of it is complete and checked.
    `progress` is called with the name of a database and the share of it that is copied.
    """
    if not (data / DATABASE).is_file():
        raise StorageError(f"{data} holds no broker: there is no {DATABASE}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StorageError(f"{target} is there already: a backup needs a new directory")
    draft = target.with_name(f"{target.name}.{uuid.uuid4().hex}.partial")
    try:
        draft.mkdir(parents=True, mode=0o700)
        sizes = {}
        for name in DATABASES:
            if (data / name).is_file():  # a broker for this machine only may have no keys
                copy_database(data / name, draft / name, partial(progress, name))
                os.chmod(draft / name, 0o600)
                _check(data / name, draft / name)
                sizes[name] = (draft / name).stat().st_size
        if target.exists():
            target.rmdir()
        draft.rename(target)
        sync_folder(target.absolute().parent)
    except StorageError:
        raise
    except (OSError, sqlite3.Error) as error:
        raise StorageError(f"cannot back up {data} to {target}: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Backup(target, sizes)


def _check(original: Path, copy: Path) -> None:
    with (
        closing(sqlite3.connect(original)) as first,
        closing(sqlite3.connect(copy, isolation_level=None)) as second,
    ):
        # In the mode that leaves one file behind; the broker switches back when it opens it.
        second.execute("PRAGMA journal_mode = DELETE").fetchall()
        (found,) = second.execute("PRAGMA integrity_check(1)").fetchone()
        same = _identity(first) == _identity(second)
    if found != "ok":
        reason = str(found).splitlines()[-1]
        raise StorageError(f"{original} is damaged ({reason}): no backup was made")
    if not same:
        raise StorageError(f"the copy of {original} is not of the same kind: no backup was made")


def _identity(database: sqlite3.Connection) -> tuple[int, ...]:
    names = ("application_id", "user_version", "page_size")
    return tuple(database.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
