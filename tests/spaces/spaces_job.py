"""Operations from several threads, for a process that a test kills: `spaces_job.py FOLDER SEED`.

After every operation it writes a line: what was done, and the sequence numbers of its transitions.
"""

from __future__ import annotations

import random
import sys
import threading

import boxmatch as bm

SPACES = {"s": bm.Schema({"x": "int", "name": "string"})}


def main(folder: str, seed: int) -> None:
    spaces = bm.Spaces.open(folder, SPACES)
    writing = threading.Lock()

    def say(*words: object) -> None:
        with writing:
            print(*words, flush=True)

    def work(thread: int) -> None:
        rng = random.Random(seed * 10 + thread)
        for step in range(100_000):
            own = f"{thread}-{rng.randrange(20)}"
            x = rng.randrange(10)
            if own not in set(spaces.publications()):
                notified = spaces.publish(own, {"x": x, "name": own})
                say("publication", own, x, step, *notified.sequence)
            elif rng.random() < 0.1:
                notified = spaces.retract(own)
                say("publication", own, "gone", step, *notified.sequence)
            else:
                notified = spaces.update_publication(own, {"x": x})
                say("publication", own, x, step, *notified.sequence)

    for number in range(20):
        if f"sub-{number}" not in set(spaces.subscriptions()):
            spaces.subscribe(f"sub-{number}", {"x": (number % 10, number % 10 + 2)})
    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
