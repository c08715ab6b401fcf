"""The thread that writes. What is queued together is committed together."""

from __future__ import annotations

import logging
import shutil
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from boxmatch.broker.store.reserve import Reserve
from boxmatch.broker.store.transaction import Transaction
from boxmatch.errors import StorageError
from boxmatch.storage.sqlite import connect

T = TypeVar("T")
_log = logging.getLogger(__name__)

_LONGEST = 0.05
"""After this many seconds a group takes no more changes: those in it wait for the disk too."""
_CHECKPOINT_BYTES = 16 << 20


class _Queued(NamedTuple):
    change: Callable[[Transaction], Any]
    future: Future[Any]
    done: Callable[[Any], None] | None
    frees: bool


class _Attempt(NamedTuple):
    group: list[_Queued]
    results: list[Any]
    error: Exception | None


class _Raised(NamedTuple):
    error: Exception


class Writer:
    """Changes in the order in which they were queued, in one transaction for all that are there.

    `pace` is how many seconds must lie between the beginnings of two groups, so that many small
    changes need not as many waits for the disk. A change that comes after a pause does not wait.

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
        self._file = file
        self._reserve = reserve
        self._transaction = Transaction(connection, next_sequence)
        self._pace = pace
        self._queue: deque[_Queued] = deque()
        self._changed = threading.Condition(threading.Lock())
        self._idle = True
        self._closing = False
        self.grown = threading.Event()
        """Set when the write-ahead log has become long."""
        # A process that ends without closing must not wait for this thread for ever.
        self._thread = threading.Thread(target=self._run, name="store writer", daemon=True)
        self._thread.start()

    def write(
        self,
        change: Callable[[Transaction], T],
        done: Callable[[T | BaseException], None] | None,
        frees: bool,
    ) -> Future[T]:
        future: Future[T] = Future()
        with self._changed:
            if self._closing:
                raise StorageError(f"{self._file.parent} is closed")
            self._queue.append(_Queued(change, future, done, frees))
            if self._idle:
                self._changed.notify()
        return future

    def close(self) -> None:
        """Return when all that is queued is written."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        begun = 0.0
        while True:
            with self._changed:
                while not self._queue and not self._closing:
                    self._idle = True
                    self._changed.wait()
                self._idle = False
                if not self._queue:
                    return
            pause = begun + self._pace - time.monotonic()
            if pause > 0 and not self._closing:
                time.sleep(pause)
            begun = time.monotonic()
            self._write_group(begun + _LONGEST)

    def _write_group(self, deadline: float) -> None:
        if not self._reserve.restore():
            self._make_room()
        admit = self._reserve.is_whole or self._is_roomy()
        group, results, error = self._try(self._taken(deadline), admit)
        if error is not None and _is_full(error):
            admit = self._is_roomy()
            if not (admit or all(one.frees for one in group)):
                self._notification(error)  # some are refused
            if admit or any(one.frees for one in group):
                self._reserve.release()
                group, results, error = self._try(group, admit)
        if error is not None:
            self._notification(error)
            message = f"cannot write to {self._file}: {error}"
            results = [_Raised(_failure(message, error)) for _ in group]
        else:
            self.next_sequence = self._transaction.next_sequence
            if not self._reserve.is_whole:
                self._make_room()
            elif self._transaction.written > _CHECKPOINT_BYTES:
                self._transaction.written = 0
                self.grown.set()
        for queued, result in zip(group, results, strict=True):
            _resolve(queued, result)

    def _try(self, changes: Iterable[_Queued], admit: bool) -> _Attempt:
        """Carry out changes, in one transaction. Unless all are admitted, it is only those that
        free room; the others are refused in their turn, as who comes after them has to know.
        """
        transaction = self._transaction
        taken = iter(changes)
        group: list[_Queued] = []
        results: list[Any] = []
        try:
            transaction.begin()
            for queued in taken:
                group.append(queued)
                transaction.refuses = not (admit or queued.frees)
                results.append(self._run_change(queued.change))
            transaction.commit()
        except Exception as error:
            self._undo_group()
            if not group:  # it could not even begin
                group += islice(taken, 1)
            return _Attempt(group, [], error)
        return _Attempt(group, results, None)

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
                with closing(connect(self._file, "rw")) as connection:
                    connection.execute("PRAGMA busy_timeout = 0").fetchall()
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except (OSError, sqlite3.Error) as error:
            _log.debug("cannot take up the write-ahead log of %s: %s", self._file, error)
        self._reserve.restore()

    def _notification(self, error: Exception) -> None:
        """What cannot be written is said once, and until `recovered` no more."""
        if self.failure is None:
            _log.error("cannot write to %s", self._file, exc_info=error)
        self.failure = str(error)

    def recovered(self) -> None:
        """One can write again. In the writer thread."""
        _log.warning("can write to %s again", self._file)
        self.failure = None

    def _taken(self, deadline: float) -> Iterator[_Queued]:
        """What is queued, up to a time; but one at least."""
        is_first = True
        while self._queue and (is_first or time.monotonic() < deadline):
            if (queued := self._take()) is not None:
                is_first = False
                yield queued

    def _take(self) -> _Queued | None:
        """The next change; None if nobody wants it any more."""
        queued = self._queue.popleft()
        if queued.future.set_running_or_notify_cancel():
            return queued
        _tell(queued.done, CancelledError())
        return None

    def _run_change(self, change: Callable[[Transaction], Any]) -> Any:
        """Its result, or what it has raised, and then it has done nothing."""
        transaction = self._transaction
        transaction.begin_change()
        try:
            result = change(transaction)
            transaction.end_change()
        except Exception as error:
            if not transaction.is_open or _is_of_the_disk(error):
                raise
            transaction.undo_change()
            return _Raised(error)
        return result

    def _undo_group(self) -> None:
        try:
            self._transaction.roll_back()
        except sqlite3.Error:
            _log.exception("cannot undo what was not written to %s", self._file)


def _is_full(error: Exception) -> bool:
    return isinstance(error, sqlite3.Error) and error.sqlite_errorcode == sqlite3.SQLITE_FULL


def _is_of_the_disk(error: Exception) -> bool:
    mistakes = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError)
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(error, mistakes)


def _failure(message: str, cause: Exception) -> StorageError:
    # One for each who hears of it: threads must not share a traceback.
    failure = StorageError(message)
    failure.__cause__ = cause
    return failure


def _resolve(queued: _Queued, result: Any) -> None:
    if isinstance(result, _Raised):
        queued.future.set_exception(result.error)
        _tell(queued.done, result.error)
    else:
        queued.future.set_result(result)
        _tell(queued.done, result)


def _tell(done: Callable[[Any], None] | None, result: Any) -> None:
    if done is not None:
        try:
            done(result)
        except Exception:
            _log.exception("what was to follow a write has failed")
