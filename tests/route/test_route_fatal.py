"""Messages that end the process that matches them: dead letters, and the rest goes on."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from jetstream import PATIENCE, TICKS, RouteOnServer, on_route, until, until_true

from boxmatch.nats.bucket import ReloadError
from boxmatch.nats.operations import subscribe
from boxmatch.nats.settings import RouteSettings

WORKER = """
import os, signal, sys
from boxmatch.cli import main
from boxmatch.nats.subscriptions import RouteSubscriptions

match = RouteSubscriptions.match

def fatal(self, feed, rows):
    if any("poison" in str(row) for row in rows):
        os.kill(os.getpid(), signal.SIGKILL)
    return match(self, feed, rows)

RouteSubscriptions.match = fatal
sys.argv = ["boxmatch", "route", "run", *sys.argv[1:]]
main()
"""
POISON = {"symbol": "poison", "price": 1.0}


def test_a_message_that_kills_its_workers(url: str, tmp_path: Path) -> None:
    async def test(on: RouteOnServer) -> None:
        settings = RouteSettings(feeds=TICKS.feeds, ack_seconds=1, max_deliver=2)
        await on.create(settings)
        await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
        bodies = [{"price": 1.0}] * 10 + [POISON] + [{"price": 1.0}] * 10
        sequences = [await on.publish(body) for body in bodies]
        deaths = 0
        command = [sys.executable, "-c", WORKER, "--route", on.route, "--server", url]
        with (tmp_path / "log").open("ab") as log:
            worker = subprocess.Popen(command, stdout=log, stderr=log)
            try:

                async def drained() -> bool:
                    nonlocal worker, deaths
                    if worker.poll() is not None:
                        assert worker.returncode == -9, (tmp_path / "log").read_text()
                        deaths += 1
                        worker = subprocess.Popen(command, stdout=log, stderr=log)
                    info = await on.js.consumer_info(on.names.events, on.names.consumer(0, 1))
                    floor = info.ack_floor.stream_seq if info.ack_floor else 0
                    return floor >= sequences[-1]

                await until(drained)
            finally:
                worker.kill()
                worker.wait()
        assert 1 <= deaths <= 3  # a delivery can be late on a machine that is busy
        (dead,) = await on.stored(on.names.dead)
        assert dead.headers is not None
        poison = sequences.pop(10)
        assert dead.headers["Boxmatch-Sequence"] == str(poison)
        assert "a worker that matched it alone ended" in dead.headers["Boxmatch-Reason"]
        assert await on.matched() == Counter(("ann", one, 0, "one") for one in sequences)

    on_route(url, test)


def test_only_a_message_that_was_tried_is_a_dead_letter(url: str) -> None:
    """However often messages were delivered, and given back."""

    async def test(on: RouteOnServer) -> None:
        await on.create(RouteSettings(feeds=TICKS.feeds, ack_seconds=2, max_deliver=2))
        await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
        sequences = [await on.publish({"price": 1.0}) for _ in range(6)]
        pull = await on.js.pull_subscribe_bind(on.names.consumer(0, 1), stream=on.names.events)
        for _ in range(2):
            taken = 0
            while taken < len(sequences):
                for message in await pull.fetch(len(sequences) - taken, timeout=PATIENCE):
                    await message.nak()
                    taken += 1
        made = (await on.js.stream_info(on.names.events)).created
        assert made is not None
        incarnation = f"{made.timestamp() * 1e6:.0f}"
        note = on.names.trial(on.names.consumer(0, 1), incarnation, sequences[3])
        await on.js.publish(note, b"a worker that is gone 3")
        async with on.workers() as (worker,):
            await on.drained()
            await until_true(lambda: worker.metrics.look("messages_total") == len(sequences))
            assert worker.metrics.look("dead_letters_total", reason="max-deliver") == 1
        rest = [one for one in sequences if one != sequences[3]]
        assert await on.matched() == Counter(("ann", one, 0, "one") for one in rest)
        (dead,) = await on.stored(on.names.dead)
        assert dead.data == b'{"price":1.0}'
        bucket = await on.js.stream_info(on.names.bucket, subjects_filter=f"{on.names.keys}trial.>")
        assert list(bucket.state.subjects or {}) == [note]

    on_route(url, test)


def test_a_trial_that_is_cut_off_leaves_no_note(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(on: RouteOnServer) -> None:
        await on.create(RouteSettings(feeds=TICKS.feeds, ack_seconds=1, max_deliver=1))
        await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
        sequence = await on.publish({"price": 1.0})
        pull = await on.js.pull_subscribe_bind(on.names.consumer(0, 1), stream=on.names.events)
        (message,) = await pull.fetch(1, timeout=PATIENCE)
        async with on.workers() as (worker,):
            session = worker._session
            assert session is not None

            async def changed(at_once: int = 0) -> None:
                monkeypatch.undo()
                raise ReloadError("the settings were changed")

            monkeypatch.setattr(session, "_take_over", changed)
            await message.nak()
            await on.drained()
            assert worker.metrics.look("dead_letters_total", reason="max-deliver") == 0
        assert await on.matched() == Counter([("ann", sequence, 0, "one")])

    on_route(url, test)
