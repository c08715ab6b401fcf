"""The process that publishes and receives, for the test bed."""

from __future__ import annotations

import asyncio
import gc
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, Final

import orjson

from boxmatch_bench.broker.generator import Generator
from boxmatch_bench.broker.settings import FEED, Options, Setting
from boxmatch_bench.broker.wire import WireError
from boxmatch_bench.pada.listening import Heard, Listener
from boxmatch_bench.pada.sending import Schedule, Sending

_QUIET: Final = 0.5
"""Nothing false comes any more if nothing came for so long after the last true match."""
_PATIENCE: Final = 15.0


class BedGenerator(Generator):
    """The load on one broker whose feed has an adjuster."""

    def __init__(self, pipe: Connection, port: int, setting: Setting, options: Options) -> None:
        super().__init__(pipe, port, setting, options)
        self._heard = Heard()
        self._received = self._heard

    def _subscriber(self, number: int, after: int) -> Listener:
        every = self._options.acknowledge
        return Listener(number, after, self._heard, every, self._subscriber_lost)

    async def adapt(self, wanted: dict[str, float] | None) -> None:
        """Give the feed an adjuster with these parameters, or none."""
        connection = await self._connect()
        path = f"/feeds/{FEED}/adaptive"
        body = b"" if wanted is None else orjson.dumps(wanted)
        status, text = await connection.ask("DELETE" if wanted is None else "PUT", path, body)
        connection.close()
        if status != 200:
            raise WireError(f"the adjuster was refused: {status} {text[:500]!r}")

    async def send(self, schedule: Schedule) -> dict[str, Any]:
        """Publish as scheduled and wait for all notes. Returns what was sent and what came."""
        requests = await self._prepared(schedule.batch)
        heard = self._heard
        heard.clear()
        sending = Sending(requests, schedule, self._connect)
        self._fail = sending.fail
        # What is made here is arrays and texts: nothing for the collector to find.
        gc.collect()
        gc.freeze()
        gc.disable()
        telling = asyncio.create_task(self._tell_time(schedule.seconds))
        try:
            if self._failure is not None:
                raise self._failure
            await sending.run()
            ended = perf_counter()
            await self._wait_for_matches(self._expected_of(sending, schedule.batch))
        finally:
            gc.enable()
            telling.cancel()
        for subscriber in self._subscribers:
            subscriber.acknowledge()
        return {
            "began": sending.began,
            "ended": ended,
            "published": sending.arrays(),
            "received": heard.arrays(),
            "notes": heard.notes,
            "disordered": heard.disordered,
        }

    def _expected_of(self, sending: Sending, batch: int) -> int:
        """How many matches the requests have that were accepted."""
        by_request = self._expected.reshape(-1, batch).sum(axis=1)
        accepted = sending.accepted.nonzero()[0]
        return int(by_request[accepted % len(by_request)].sum())

    async def _wait_for_matches(self, total: int) -> None:
        """Wait for notes under way; what never comes is found by who compares."""
        arrived, since = -1, perf_counter()
        while True:
            matches = self._heard.matches
            if matches != arrived:
                arrived, since = matches, perf_counter()
            waited = perf_counter() - since
            if waited > (_QUIET if matches >= total else _PATIENCE):
                return
            if self._failure is not None:
                raise self._failure
            await asyncio.sleep(0.02)
