"""What a route is compared with: nats-py alone, which forwards every message without looking.

`python -m boxmatch_bench.route.forwarder URL BATCH` runs one until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import nats

STREAM: Final = "boxmatch-in"
CONSUMER: Final = "boxmatch"
SUBJECT: Final = "boxmatch.out.all"


async def forward(url: str, batch: int) -> None:
    """Fetch, store under an id, wait until that is acknowledged, acknowledge."""
    connection = await nats.connect(url)
    js = connection.jetstream()
    pull = await js.pull_subscribe_bind(CONSUMER, stream=STREAM)
    print("ready", flush=True)
    while True:
        try:
            messages = await pull.fetch(batch, timeout=1)
        except TimeoutError:
            continue
        stored = [
            await js.publish_async(SUBJECT, one.data, headers={"Nats-Msg-Id": one.reply})
            for one in messages
        ]
        await asyncio.gather(*stored)
        for one in messages:
            await one.ack()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(forward(sys.argv[1], int(sys.argv[2])))
    else:  # as workers of a route have it
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(forward(sys.argv[1], int(sys.argv[2])))
