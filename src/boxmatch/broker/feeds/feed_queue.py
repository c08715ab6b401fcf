"""The queue of a feed, and the thread that carries out what is in it, in order.

Each feed has a thread while there is something to do, so that work on one feed, however long it
takes, does not keep the events of another waiting.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_IDLE = 5.0
"""Seconds without work after which the thread of a feed ends; a new one starts when needed."""


class FeedQueue(Generic[T]):
    """Items that a thread works off in order: `take` takes some from the queue, for `work`.

    All methods may be called from any thread.
    """

    def __init__(
        self, name: str, take: Callable[[deque[T]], list[T]], work: Callable[[list[T]], None]
    ) -> None:
        self._name = name
        self._take = take
        self._work = work
        self._queue: deque[T] = deque()
        self._changed = threading.Condition(threading.Lock())
        self._thread: threading.Thread | None = None
        self._stopping = False

    @property
    def is_alive(self) -> bool:
        """False once the thread has ended with an error that is no `Exception`."""
        thread = self._thread
        return thread is None or thread.is_alive()

    def put(self, item: T) -> None:
        """Append an item."""
        with self._changed:
            self._queue.append(item)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            else:
                self._changed.notify()

    def stop(self) -> None:
        """Have the thread end once the queue is empty."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def join(self) -> None:
        """Wait until the thread has ended."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._stopping, _IDLE)
                if not self._queue:
                    self._thread = None
                    return
                items = self._take(self._queue)
            self._work(items)
