"""Webhooks against a real HTTP server on loopback: order, acknowledgement, shutdown."""

import asyncio
import json

import pytest
from webhook_receiver import (
    NOW,
    SECRET,
    Desk,
    Receiver,
    answers,
    hook,
    never,
    notification,
    run,
    until,
)

from boxmatch.broker.delivery import webhook_requests, webhook_sender
from boxmatch.broker.delivery.webhook_requests import split_requests
from boxmatch.broker.store.rows import DeadLetter
from boxmatch.errors import BrokerError, StorageError
from boxmatch.wire.signatures import sign, verify_signature


def test_a_batch_is_posted_signed_and_acknowledged():
    async def scenario(receiver, desk):
        desk.put("ann", notification(3), notification(5))
        desk.sender.start("ann", hook(receiver.url))
        await until(lambda: desk.outcomes == [("ann", "delivered")])
        assert desk.cursors == {"ann": 5}
        (request,) = receiver.requests
        assert request["line"] == "POST /hook?x=1 HTTP/1.1"
        headers = request["headers"]
        assert headers["host"] == f"127.0.0.1:{receiver.port}"
        assert headers["content-type"] == "application/json"
        assert headers["boxmatch-first"] == "3"
        assert headers["boxmatch-last"] == "5"
        assert headers["boxmatch-attempt"] == "1"
        signature = headers["boxmatch-signature"]
        assert verify_signature(SECRET, signature, request["body"], clock=lambda: NOW)
        assert json.loads(request["body"])["notifications"][0] == {
            "sequence": 3,
            "feed": "trades",
            "at": 1.5,
            "subscriptions": ["a", "b"],
            "rate": 0.0,
            "event": {"price": 1},
        }
        assert desk.sender.last_error("ann") is None

    run(scenario)


def test_notifications_go_in_order_in_batches_over_one_connection():
    async def scenario(receiver, desk):
        desk.put("ann", *map(notification, range(1, 8)))
        desk.sender.start("ann", hook(receiver.url, batch=3))
        await until(lambda: desk.cursors.get("ann") == 7)
        desk.put("ann", notification(9))
        await until(lambda: desk.cursors["ann"] == 9)
        assert receiver.sequences == [[1, 2, 3], [4, 5, 6], [7], [9]]
        assert receiver.connections == 1

    run(scenario)


def test_the_next_batch_waits_for_the_one_that_fails():
    async def scenario(receiver, desk):
        desk.put("ann", *map(notification, range(1, 5)))
        desk.sender.start("ann", hook(receiver.url, batch=2))
        await until(lambda: desk.cursors.get("ann") == 4)
        assert receiver.sequences == [[1, 2], [1, 2], [1, 2], [3, 4]]
        attempts = [r["headers"]["boxmatch-attempt"] for r in receiver.requests]
        assert attempts == ["1", "2", "3", "1"]
        assert desk.slept == [1.0, 2.0]

    run(scenario, answers(500, 404))


def test_a_webhook_that_begins_to_fail_is_logged_once(caplog):
    async def scenario(receiver, desk):
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url))
        await until(lambda: desk.cursors.get("ann") == 1)
        assert receiver.sequences == [[1]] * 3

    run(scenario, answers(500, 500))
    assert [one.getMessage() for one in caplog.records] == [
        "webhook of ann: answered 500; trying again"
    ]


def test_nothing_is_acknowledged_before_a_2xx():
    async def scenario(receiver, desk):
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url, attempts=100))
        await until(lambda: len(receiver.requests) > 20)
        assert desk.cursors == {}
        assert desk.dead == []
        assert desk.sender.last_error("ann") == "answered 503"

    run(scenario, lambda request: 503)


def test_after_the_attempts_the_batch_is_a_dead_letter_and_the_stream_goes_on():
    async def scenario(receiver, desk):
        desk.put("ann", notification(1), notification(2), notification(3))
        desk.sender.start("ann", hook(receiver.url, attempts=3, batch=2))
        await until(lambda: ("ann", "delivered") in desk.outcomes)
        assert desk.cursors == {"ann": 3}
        assert receiver.sequences == [[1, 2]] * 3 + [[3]]
        ((subscriber, first, last, attempts, reason, body),) = desk.dead
        assert (subscriber, first, last, attempts) == ("ann", 1, 2, 3)
        assert reason == "answered 500"
        assert body == receiver.requests[0]["body"]
        said = [outcome for _, outcome in desk.outcomes]
        assert said == ["failed", "failed", "failed", "dead", "delivered"]
        assert desk.slept == [1.0, 2.0]

        letter = DeadLetter(1, subscriber, first, last, attempts, reason, 0.0, body)
        assert await desk.sender.repost("ann", hook(receiver.url), letter) is None
        assert receiver.sequences[-1] == [1, 2]
        assert receiver.requests[-1]["headers"]["boxmatch-attempt"] == "4"

    run(scenario, answers(500, 500, 500))


def test_a_dead_letter_that_fails_again_says_why():
    async def scenario(receiver, desk):
        letter = DeadLetter(1, "ann", 1, 2, 3, "", 0.0, b"{}")
        assert await desk.sender.repost("ann", hook(receiver.url), letter) == "answered 500"
        assert desk.cursors == {}

    run(scenario, answers(500))


def test_a_paused_webhook_stops_the_earlier_one():
    async def scenario(receiver, desk):
        desk.sender.start("ann", hook(receiver.url))
        await until(lambda: desk.open == 1)
        desk.sender.start("ann", hook(receiver.url, paused=True))
        await until(lambda: desk.open == 0)
        desk.put("ann", notification(1))
        await asyncio.sleep(0.02)
        assert receiver.requests == []

    run(scenario)


def test_proxies_of_the_environment_are_not_used(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    test_a_batch_is_posted_signed_and_acknowledged()


def test_many_subscribers_share_a_bounded_number_of_requests():
    async def slowly(request):
        await asyncio.sleep(0.01)
        return 200

    async def scenario(receiver, desk):
        subscribers = [f"subscriber{n}" for n in range(60)]
        for subscriber in subscribers:
            desk.put(subscriber, *map(notification, range(1, 4)))
            desk.sender.start(subscriber, hook(receiver.url, batch=1))
        await until(lambda: all(desk.cursors.get(subscriber) == 3 for subscriber in subscribers))
        assert receiver.most == 8
        assert len(receiver.requests) == 180

    run(scenario, slowly, requests=8)


def test_receivers_that_hang_leave_room_for_the_others():
    async def main():
        async with Receiver(never) as hanging, Receiver() as receiver, Desk(requests=4) as desk:
            for n in range(12):
                desk.put(f"bad{n}", notification(1))
                desk.sender.start(f"bad{n}", hook(hanging.url, timeout=0.2, attempts=100))
            await until(lambda: len(hanging.requests) >= 12)  # all have been found out
            before = asyncio.get_running_loop().time()
            desk.put("good", *map(notification, range(1, 21)))
            desk.sender.start("good", hook(receiver.url, batch=1))
            await until(lambda: desk.cursors.get("good") == 20)
            # One by one behind those that hang, it would be 20 times the timeout.
            assert asyncio.get_running_loop().time() - before < 1.0

    asyncio.run(main())


def test_shutdown_in_the_middle_of_a_request_acknowledges_nothing():
    async def scenario(receiver, desk):
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url, timeout=60))
        await until(lambda: receiver.requests)
        async with asyncio.timeout(1):
            await desk.sender.close()
        assert desk.cursors == {}
        assert desk.dead == []
        assert desk.outcomes == []
        with pytest.raises(BrokerError, match="closed"):
            desk.sender.start("ann", hook(receiver.url))

    run(scenario, never)


def test_shutdown_with_grace_lets_the_request_finish_but_begins_none():
    release = asyncio.Event()

    async def held(request):
        await release.wait()
        return 200

    async def scenario(receiver, desk):
        desk.put("ann", notification(1), notification(2))
        desk.sender.start("ann", hook(receiver.url, batch=1))
        desk.sender.start("idle", hook(receiver.url))
        await until(lambda: receiver.requests)
        closing = asyncio.create_task(desk.sender.close(grace=5))
        await asyncio.sleep(0.01)
        release.set()
        async with asyncio.timeout(1):
            await closing
        assert receiver.sequences == [[1]]
        assert desk.cursors == {"ann": 1}

    run(scenario, held)


def test_grace_ends():
    async def scenario(receiver, desk):
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url, timeout=60))
        await until(lambda: receiver.requests)
        async with asyncio.timeout(1):
            await desk.sender.close(grace=0.05)
        assert desk.cursors == {}

    run(scenario, never)


def test_shutdown_while_an_acknowledgement_is_stored_waits_for_it():
    async def scenario(receiver, desk):
        desk.storing = asyncio.Event()
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url))
        await until(lambda: receiver.requests)
        await asyncio.sleep(0.02)
        stopping = asyncio.create_task(desk.sender.stop("ann"))
        await asyncio.sleep(0.01)
        assert not stopping.done()
        desk.storing.set()
        await stopping
        assert desk.cursors == {"ann": 1}

    run(scenario)


def test_an_acknowledgement_that_cannot_be_stored_is_tried_again_without_posting():
    async def scenario(receiver, desk):
        desk.acknowledge_errors = [StorageError("disk full")] * 3
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url))
        await until(lambda: desk.outcomes == [("ann", "delivered")])
        assert desk.cursors == {"ann": 1}
        assert len(receiver.requests) == 1
        assert desk.slept == [1.0, 2.0, 4.0]
        assert desk.sender.last_error("ann") is None

    run(scenario)


def test_a_dead_letter_that_cannot_be_stored_is_not_acknowledged():
    async def scenario(receiver, desk):
        desk.letter_errors = [StorageError("disk full")] * 2
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url, attempts=1))
        await until(lambda: desk.cursors.get("ann") == 1)
        assert len(desk.dead) == 1
        assert desk.dead[0][4] == "answered 500"

    run(scenario, answers(500))


def test_a_stream_that_fails_is_opened_again_from_the_cursor(caplog):
    async def scenario(receiver, desk):
        desk.take_errors = [StorageError("cannot read"), RuntimeError("unforeseen")]
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url))
        await until(lambda: desk.cursors.get("ann") == 1)
        assert receiver.sequences == [[1]]
        assert desk.slept == [1.0, 2.0]

    run(scenario)
    assert "unforeseen" in caplog.text


def test_a_counter_that_fails_does_not_stop_delivery(caplog):
    async def main():
        async with Receiver() as receiver, Desk() as desk:
            desk.sender._on_result = lambda subscriber, outcome: 1 / 0
            desk.put("ann", notification(1), notification(2))
            desk.sender.start("ann", hook(receiver.url, batch=1))
            await until(lambda: desk.cursors.get("ann") == 2)
            assert receiver.sequences == [[1], [2]]

    asyncio.run(main())
    assert "ZeroDivisionError" in caplog.text


def test_a_webhook_that_is_replaced_again_and_again_never_posts_twice_at_once():
    async def slowly(request):
        await asyncio.sleep(0.005)
        return 200

    async def scenario(receiver, desk):
        desk.put("ann", *map(notification, range(1, 31)))
        for n in range(30):
            desk.sender.start("ann", hook(receiver.url, batch=1))
            await asyncio.sleep(0.001 * (n % 9))
        await until(lambda: desk.cursors.get("ann") == 30)
        first = [numbers[0] for numbers in receiver.sequences]
        assert first == sorted(first)  # again perhaps, but never out of order
        assert set(first) == set(range(1, 31))
        await desk.sender.stop("ann")
        await desk.sender.stop("ann")
        assert desk.sender.last_error("ann") is None

    run(scenario, slowly)


def test_an_idle_connection_is_closed(monkeypatch):
    monkeypatch.setattr(webhook_sender, "KEEP_ALIVE", 0.02)

    async def scenario(receiver, desk):
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url))
        await until(lambda: desk.cursors.get("ann") == 1)
        await asyncio.sleep(0.1)
        desk.put("ann", notification(2))
        await until(lambda: desk.cursors["ann"] == 2)
        assert receiver.connections == 2

    run(scenario)


def test_large_notifications_are_cut_into_requests(monkeypatch):
    monkeypatch.setattr(webhook_requests, "MAX_BODY", 500)
    sizes = [10, 10, 1000, 10, 200, 200, 200]
    notifications = [
        notification(n, json.dumps("x" * size).encode()) for n, size in enumerate(sizes, 1)
    ]
    cut = list(split_requests(notifications))
    assert [(letter.first, letter.last) for letter in cut] == [
        (1, 2),
        (3, 3),
        (4, 5),
        (6, 6),
        (7, 7),
    ]
    bodies = [n["sequence"] for letter in cut for n in json.loads(letter.body)["notifications"]]
    assert bodies == list(range(1, 8))
    assert list(split_requests([])) == []


def test_signatures():
    header = sign("secret", b"body", 1000.9)
    assert header.startswith("t=1000,v1=")

    def verified(secret="secret", header=header, body=b"body", now=1000.0, tolerance=300.0):
        return verify_signature(secret, header, body, tolerance, clock=lambda: now)

    digest = header.split("v1=")[1]
    assert verified()
    assert verified(now=1300)
    assert verified(now=700)
    assert verified(header=f"t=1000, v1={'0' * 64}, v1={digest}, v2=later")
    assert not verified(now=1301)
    assert not verified(now=699)
    assert not verified(tolerance=float("nan"))
    assert not verified(secret="other")
    assert not verified(body=b"other")
    assert not verified(header=f"t=1001,v1={digest}")
    for bad in ("", "t=1000", f"v1={digest}", f"t=,v1={digest}", f"t=١٠٠٠,v1={digest}",
                f"t=+1000,v1={digest}", f"t=1000,t=1000,v1={digest}", "t=1000,v1=é",
                f"t={'9' * 5000},v1={digest}"):  # fmt: skip
        assert not verified(header=bad)
