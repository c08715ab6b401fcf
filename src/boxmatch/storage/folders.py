"""Folders of which one process at a time makes use, and whose names are to be on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]  # not a Unix system

from boxmatch.errors import StorageError

LOCK = "lock"


def take_lock(folder: Path) -> int:
    """Hold the directory's lock, where the system has such locks; it dies with the process.

    An OSError that is no StorageError is the system's, as it came.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if isinstance(error, BlockingIOError):
                reason = "is open already, here or in another process"
                raise StorageError(f"{folder} {reason}") from None
            raise
    return handle


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait for others who are alone in the folder, where the system has such locks.

    Leaves nothing behind, since what is locked is the folder itself.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
