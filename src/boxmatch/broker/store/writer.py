"""How changes come to the disk, and what becomes of them when that is full."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from boxmatch.broker.store.transaction import StoreTransaction
from boxmatch.storage.group_commit import GroupCommit, Queued, space_groups
from boxmatch.storage.sqlite import checkpoint

_log = logging.getLogger(__name__)

_CHECKPOINT_BYTES = 16 << 20

RESERVE = "reserve"
_MOST_BYTES = 16 << 20
"""More than one transaction of tidying takes in the write-ahead log."""
_SHARE = 16
"""Of a small disk it is not more than this part."""


class Reserve:
    """A file that holds room without any use, until that is released. For one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / RESERVE
        self.nbytes = min(_MOST_BYTES, shutil.disk_usage(folder).total // _SHARE)
        self.is_whole = False

    def release(self) -> None:
        """Others may have the room."""
        self.is_whole = False
        with suppress(OSError):  # there is none
            os.truncate(self._file, 0)

    def restore(self) -> bool:
        """Take the room if there is enough, and else none of it. Whether it is held."""
        if not self.is_whole:
            try:
                handle = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600)
                try:
                    _allocate(handle, self.nbytes)
                finally:
                    os.close(handle)
                self.is_whole = True
            except OSError as error:
                self.release()
                # Where a file cannot hold room there is none in reserve, but all goes on.
                self.is_whole = error.errno not in (errno.ENOSPC, errno.EDQUOT)
        return self.is_whole


def _allocate(handle: int, nbytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(handle, 0, nbytes)
            return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
    block = bytes(1 << 16)
    for start in range(0, nbytes, len(block)):
        os.pwrite(handle, block[: nbytes - start], start)
    os.fsync(handle)


@dataclass(frozen=True, slots=True)
class Freeing:
    """A change that frees room, and may use the reserve."""

    run: Callable[[StoreTransaction], Any]

    def __call__(self, transaction: StoreTransaction) -> Any:
        return self.run(transaction)


class Writer(GroupCommit[StoreTransaction]):
    """Group commit whose groups begin `pace` seconds apart, and go on after a failed commit.

    When the disk is full, changes that free room may use what is kept in reserve. Others may not,
    unless enough was freed in the database, and are refused while the reserve is not whole, which
    is tried with every group.
    """

    def __init__(
        self,
        file: Path,
        connection: sqlite3.Connection,
        reserve: Reserve,
        next_sequence: int,
        pace: float,
    ) -> None:
        self.next_sequence = next_sequence
        self.failure: str | None = None
        """Why nothing can be written, while that is so."""
        self.grown = threading.Event()
        """Set when the write-ahead log has become long."""
        self._reserve = reserve
        self._admits_all = True
        """Whether changes may write that free no room."""
        super().__init__(
            file,
            StoreTransaction(connection, next_sequence),
            pacing=space_groups(pace),
            stops=False,
            name="store writer",
        )

    def recovered(self) -> None:
        """One can write again. In the writer thread."""
        _log.warning("can write to %s again", self._file)
        self.failure = None

    def _commit_group(self, changes: Iterator[Queued]) -> list[Any] | Exception:
        if not self._reserve.restore():
            self._make_room()
        results = self._try_to_write(changes, self._reserve.is_whole or self._is_roomy())
        if _is_full(results):
            results = self._use_reserve(results)
        if isinstance(results, Exception):
            self._report(results)
            return results
        self.next_sequence = self._transaction.next_sequence
        if not self._reserve.is_whole:
            self._make_room()
        elif self._transaction.written > _CHECKPOINT_BYTES:
            self._transaction.written = 0
            self.grown.set()
        return results

    def _use_reserve(self, error: sqlite3.Error) -> list[Any] | Exception:
        """Try a group again, with the reserve for those who may use it, if there are any."""
        frees = [isinstance(queued.change, Freeing) for queued in self._group]
        admits_all = self._is_roomy()
        if not (admits_all or all(frees)):
            self._report(error)  # some are refused
        if not (admits_all or any(frees)):
            return error
        self._reserve.release()
        return self._try_to_write(iter(self._group), admits_all)

    def _try_to_write(self, changes: Iterator[Queued], admits_all: bool) -> list[Any] | Exception:
        self._admits_all = admits_all
        return self._try(changes)

    def _run_change(self, change: Callable[[StoreTransaction], Any]) -> Any:
        # Those that are refused are so in their turn, as who comes after them has to know.
        self._transaction.refuses = not (self._admits_all or isinstance(change, Freeing))
        return super()._run_change(change)

    def _is_roomy(self) -> bool:
        """Whether so many pages of the database are free that no change makes it grow: then all
        may use the reserve, which is whole again once the write-ahead log is taken up.
        """
        return self._transaction.free_bytes >= self._reserve.nbytes

    def _make_room(self) -> None:
        """Take the write-ahead log into the database, if there is room for all of it, and for the
        reserve what it took. Half of it would take the room, and give none back.
        """
        try:
            self._reserve.release()
            growth = self._transaction.nbytes - self._file.stat().st_size
            if growth <= shutil.disk_usage(self._file.parent).free:
                checkpoint(self._file, "TRUNCATE")
        except (OSError, sqlite3.Error) as error:
            _log.debug("cannot take up the write-ahead log of %s: %s", self._file, error)
        self._reserve.restore()

    def _report(self, error: Exception) -> None:
        """What cannot be written is said once, and until `recovered` no more."""
        if self.failure is None:
            _log.error("cannot write to %s", self._file, exc_info=error)
        self.failure = str(error)


def _is_full(result: object) -> TypeGuard[sqlite3.Error]:
    return isinstance(result, sqlite3.Error) and result.sqlite_errorcode == sqlite3.SQLITE_FULL
