"""Group commit: one thread runs all changes that are queued and commits them in one transaction.

Callers who come together share the wait for the disk. Whenever the process dies, the database holds
the changes up to one of them, and none after it; every change that was said to be committed is
among them.
"""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from boxmatch.errors import StorageError

_log = logging.getLogger(__name__)

_LONGEST = 0.05
"""After this many seconds a group takes no more changes: those in it wait for the disk too."""


class Transaction:
    """What changes write to, in the writer thread. Subclasses say what a change can do.

    A change gets a savepoint with its first statement, so rows that a subclass only gathers, to
    write them with the commit, take no statement for each change.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._savepoint = False

    def begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    @property
    def is_open(self) -> bool:
        """SQLite ends a transaction by itself after some failures."""
        return self._connection.in_transaction

    def begin_change(self) -> None:
        self._savepoint = False

    def end_change(self) -> None:
        if self._savepoint:
            self._connection.execute("RELEASE change")

    def undo_change(self) -> None:
        if self._savepoint:
            self._connection.execute("ROLLBACK TO change")
            self._connection.execute("RELEASE change")

    def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        """Run a statement, which is undone with its change."""
        self._set_savepoint()
        return self._connection.execute(statement, values)

    def _set_savepoint(self) -> None:
        if not self._savepoint:
            self._connection.execute("SAVEPOINT change")
            self._savepoint = True


class LastGroup(NamedTuple):
    """What the pacing of the next group may depend on."""

    began: float = -math.inf
    """On the monotonic clock."""
    seconds: float = 0.0
    """Until it was committed."""
    callers: int = 0
    """Changes that were in it, and those that were queued when it was committed."""


class Pause(NamedTuple):
    """How long a group waits for more changes, once there is one: until so many are queued."""

    changes: float
    seconds: float


Pacing = Callable[[LastGroup], Pause]


def space_groups(seconds: float) -> Pacing:
    """Groups begin at least so far apart, unless all have come again who were in the last one: many
    small changes need not as many waits for the disk.

    So neither a change that comes after a pause waits, nor that of a caller who is alone.
    """
    return lambda last: Pause(last.callers, last.began + seconds - time.monotonic())


def wait_for_callers(share: float, most: float) -> Pacing:
    """Give those whose changes were just committed the time to come again: a share of what the
    commit took, up to `most` seconds.

    Else callers who write and wait fall into two halves, of which one always just misses the
    commit of the other. A caller who is alone is not waited for.
    """
    return lambda last: Pause(last.callers, min(share * last.seconds, most))


class Queued(NamedTuple):
    """A change that is not committed yet, and who hears of it."""

    change: Callable[[Any], Any]
    done: Callable[[Any], None]


class _Failure(NamedTuple):
    message: str
    cause: BaseException

    def error(self) -> StorageError:
        # One for each who hears of it: threads must not share a traceback.
        error = StorageError(self.message)
        error.__cause__ = self.cause
        return error


class Ticket:
    """Stands for changes that are on their way to the disk. Any thread may wait for it."""

    def __init__(self) -> None:
        self._pending = threading.Lock()  # until it is resolved
        self._pending.acquire()
        self._error: BaseException | None = None

    def wait(self, timeout: float | None = None) -> None:
        """Return once the changes are durable; `StorageError` if they could not be written.

        `TimeoutError` says nothing about what becomes of them.
        """
        if not self._pending.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
            raise TimeoutError(f"not written after {timeout} seconds")
        self._pending.release()
        if self._error is not None:
            # One for each who hears of it: threads must not share a traceback.
            raise StorageError(str(self._error)) from self._error.__cause__

    def resolve(self, result: BaseException | None) -> None:
        """What `enqueue` calls when it is done."""
        self._error = result
        self._pending.release()


T = TypeVar("T")
S = TypeVar("S", bound=Transaction)


class GroupCommit(Generic[S]):
    """Runs changes in the order in which they were queued. Methods may be called by any thread.

    A change that raises has done nothing, and concerns nobody else. A commit that fails loses the
    changes of its group; with `stops` it is the last one, and nothing more is accepted: whether
    what failed is on disk shows when the database is opened again. Else the next group is tried
    afresh. Whatever happens, also if the writer thread ends, all who wait hear of it. The processes
    that `os.fork` makes cannot use it.
    """

    def __init__(
        self, file: Path, transaction: S, *, pacing: Pacing, stops: bool, name: str
    ) -> None:
        self._file = file
        self._transaction = transaction
        self._pacing = pacing
        self._stops = stops
        self._process = os.getpid()
        self._queue: deque[Queued] = deque()
        self._group: deque[Queued] = deque()
        """Taken out of the queue, and not told yet what became of them. In the writer thread."""
        self._changed = threading.Condition(threading.Lock())
        self._awaited: float = 1
        """So many queued changes wake the writer thread."""
        self._last = LastGroup()
        self._led = False
        """Whether a caller's thread commits at the moment."""
        self._closing = False
        self._failure: _Failure | None = None
        # A process that ends without closing must not wait for this thread for ever.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def enqueue(
        self,
        change: Callable[[S], T],
        done: Callable[[T | BaseException], None],
        *,
        here: bool = False,
    ) -> None:
        """Queue a change; does not wait for the disk. After the commit `done` is called in the
        writer thread, with the result or with what kept the change from being committed.

        With `here`, a change that finds the writer thread idle is committed by the calling thread,
        which saves the time until another one runs. All else that holds of the writer thread then
        holds of that one: only one thread commits at a time.

        The queue has no bound: callers who never wait may fill the memory.
        """
        self.check_process()
        with self._changed:
            self._check_usable()
            self._queue.append(Queued(change, done))
            leads = here and self._is_idle() and not self._is_early()
            if leads:
                self._led, self._awaited = True, math.inf
            elif len(self._queue) >= self._awaited:
                self._changed.notify()
        if leads:
            self._lead()

    def check(self) -> None:
        """Raise `StorageError` if nothing can be written any more."""
        self.check_process()
        with self._changed:
            self._check_usable()

    def check_process(self) -> None:
        """Raise `StorageError` in a process that was forked."""
        # Before any lock, which another thread may have held when the processes parted.
        if self.is_forked:
            raise StorageError(f"{self._file.parent} was opened by the process that made this one")

    @property
    def is_forked(self) -> bool:
        """Whether this is another process than that of the writer thread."""
        return self._process != os.getpid()

    @property
    def is_alive(self) -> bool:
        """Whether the writer thread runs. Without it, nothing can be written."""
        return self._thread.is_alive()

    @property
    def failed(self) -> StorageError | None:
        """Why it has stopped, if it has."""
        return None if self._failure is None else self._failure.error()

    def close(self) -> None:
        """Return when all that is queued is written."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure.error()
        if self._closing:
            raise StorageError(f"{self._file.parent} is closed")

    # In the thread of a caller whose change is committed there.

    def _is_idle(self) -> bool:
        """Whether nothing is queued but what just came, and nobody writes."""
        return self._awaited == len(self._queue) == 1 and not self._led

    def _is_early(self) -> bool:
        """Whether the pacing has a change wait for others."""
        pause = self._pacing(self._last)
        return pause.changes > 1 and pause.seconds > 0

    def _lead(self) -> None:
        """Write a group in the place of the writer thread, which waits meanwhile."""
        try:
            self._write_group()
        except BaseException as error:
            self._end(error)
        finally:
            with self._changed:
                self._led, self._awaited = False, 1
                if self._is_awaited(1):
                    self._changed.notify()

    # In the writer thread.

    def _run(self) -> None:
        try:
            while self._failure is None and self._wait_for_changes():
                self._write_group()
        except BaseException as error:
            self._end(error)

    def _end(self, error: BaseException) -> None:
        """Writing itself has failed, and not what was to be written."""
        _log.critical("cannot write to %s any more", self._file, exc_info=True)
        self._undo_group()
        self._fail(_Failure(f"the thread that writes to {self._file} has ended", error))

    def _wait_for_changes(self) -> bool:
        """False when it is closed and all is written."""
        with self._changed:
            self._wait_until(1, None)
            self._wait_until(*self._pacing(self._last))
            self._awaited = math.inf
            return bool(self._queue)

    def _wait_until(self, changes: float, seconds: float | None) -> None:
        if seconds is None or seconds > 0:
            self._awaited = changes
            self._changed.wait_for(lambda: self._is_awaited(changes), seconds)

    def _is_awaited(self, changes: float) -> bool:
        """Whether the writer thread goes on."""
        is_over = self._closing or self._failure is not None
        return not self._led and (len(self._queue) >= changes or is_over)

    def _write_group(self) -> None:
        began = time.monotonic()
        results = self._commit_group(self._take(began + _LONGEST))
        # Before they are notified, else those who come again at once are counted twice.
        callers = len(self._group) + len(self._queue)
        self._last = LastGroup(began, time.monotonic() - began, callers)
        if isinstance(results, list):
            for result in results:
                _call(self._group.popleft().done, result)
            return
        failure = _Failure(f"cannot write to {self._file}: {results}", results)
        if self._stops:
            self._fail(failure)
        while self._group:
            _call(self._group.popleft().done, failure.error())

    def _fail(self, failure: _Failure) -> None:
        """Accept nothing more, and tell all who wait."""
        with self._changed:
            self._failure = failure
        for waiting in (self._group, self._queue):
            while waiting:
                _call(waiting.popleft().done, failure.error())

    def _take(self, deadline: float) -> Iterator[Queued]:
        """What is queued, up to a time; but one at least."""
        while self._queue and (not self._group or time.monotonic() < deadline):
            self._group.append(self._queue.popleft())
            yield self._group[-1]

    def _commit_group(self, changes: Iterator[Queued]) -> list[Any] | Exception:
        """Commit what there is of the changes: their results, or why they are not committed.
        Subclasses may try again, with all of `_group`.
        """
        return self._try(changes)

    def _try(self, changes: Iterator[Queued]) -> list[Any] | Exception:
        """Run changes and commit them."""
        try:
            self._transaction.begin()
            results = [self._run_change(queued.change) for queued in changes]
            self._transaction.commit()
        except Exception as error:  # whatever it is, nobody may wait in vain
            self._undo_group()
            if not self._group:  # it could not even begin
                next(changes, None)
            return error
        return results

    def _run_change(self, change: Callable[[S], Any]) -> Any:
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
            return error
        return result

    def _undo_group(self) -> None:
        try:
            self._transaction.roll_back()
        except sqlite3.Error:
            _log.exception("cannot undo what was not written to %s", self._file)


def _is_of_the_disk(error: Exception) -> bool:
    mistakes = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError)
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(error, mistakes)


def _call(done: Callable[[Any], None], result: Any) -> None:
    try:
        done(result)
    except Exception:
        _log.exception("what was to follow a write has failed")
