"""Appends until it is killed: `broker_store_job.py FOLDER SYNC`. Prints what is acknowledged."""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path

from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.settings import Retention
from boxmatch.broker.store import Store
from boxmatch.broker.store.recipients import Recipients
from boxmatch.model.schema import Schema

SUBSCRIBERS = 5


def body(sequence_in_call: int, call: int) -> bytes:
    return b'{"call":%d,"place":%d}' % (call, sequence_in_call)


def main(folder: Path, sync: str) -> None:
    store = Store.open(folder, sync=sync, pace=0.0)  # type: ignore[arg-type]
    spec = FeedSpec(name="f", spaces={"f": Schema({"call": "int"})})
    feeds = store.reader.feeds()
    feed = feeds[0][0] if feeds else store.write(lambda t: t.put_feed(spec)).result()
    subscribers = store.write(
        lambda t: [t.put_subscriber(f"o{n}") for n in range(SUBSCRIBERS)]
    ).result()
    printing = threading.Lock()

    def publish(seed: int) -> None:
        random_ = random.Random(seed)
        while True:
            call = random_.getrandbits(48)
            bodies = [body(place, call) for place in range(random_.randint(1, 20))]
            subscriber = random_.choice(subscribers)
            inbox = {subscriber: [(place, [f"s{call}"]) for place in range(len(bodies))]}
            done = store.write(
                lambda t: t.append(feed, time.time(), bodies, Recipients.of(inbox))  # noqa: B023
            ).result()
            with printing:
                sys.stdout.write(f"{done.first} {done.last} {call} {subscriber}\n")
                sys.stdout.flush()

    for seed in random.sample(range(1_000_000), 3):
        threading.Thread(target=publish, args=(seed,), daemon=True).start()
    while True:
        time.sleep(0.05)
        store.tidy(time.time(), Retention())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
