"""How changes of what a broker keeps are carried out: to their end, and one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")
P = ParamSpec("P")


class Changes:
    """Changes that are under way, and a lock for each name that they concern."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def lock(self, name: str) -> asyncio.Lock:
        """Changes of one name wait for each other, those of different names do not."""
        return self._locks.setdefault(name, asyncio.Lock())

    async def complete(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out all steps of a change, even if the caller is cancelled meanwhile."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait for the changes that are under way."""
        await asyncio.gather(*self._running, return_exceptions=True)


class _Changing(Protocol):
    _changes: Changes


S = TypeVar("S", bound=_Changing)


def uninterrupted(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """A method that is carried out to its end, even if its caller is cancelled."""

    @wraps(method)
    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._changes.complete(method(self, *args, **kwargs))

    return run
