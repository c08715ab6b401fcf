"""How much memory the bodies of requests take, over all of them: large ones wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, Final

from boxmatch.errors import OverloadError

SMALL: Final = 64 * 1024
"""Bodies up to this size are not counted: the server holds as much of every connection anyway."""
PATIENCE: Final = 5.0
"""Seconds that a large body waits for others to go."""

_HELD: Final = "boxmatch.body"


class BodyBudget:
    """Room for the large bodies that are being read, or that wait for their answer."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._free = most
        self._freed = asyncio.Event()

    async def take(self, scope: MutableMapping[str, Any], size: int) -> None:
        """Room for the body of a request, until `give_back`. `OverloadError`: there is none.

        For the whole of it at once: several with half of it each could wait for each other.
        """
        size = min(size, self._most)  # a key may allow larger ones; then it is one at a time
        try:
            async with asyncio.timeout(PATIENCE):
                while size > self._free:
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            raise OverloadError("there are too many large bodies at once", retry_after=1) from None
        self._free -= size
        scope[_HELD] = size

    def give_back(self, scope: MutableMapping[str, Any]) -> None:
        """The request is answered."""
        size = scope.pop(_HELD, 0)
        if size:
            self._free += size
            self._freed.set()
