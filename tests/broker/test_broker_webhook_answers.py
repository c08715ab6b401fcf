"""What a webhook's receiver may answer, and how long it may take."""

import asyncio
import contextlib
import email.utils

import pytest
from webhook_receiver import NOW, Desk, Receiver, answers, hook, never, notification, run, until

from boxmatch.broker.delivery.webhook_targets import MAX_ANSWER


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_every_2xx_takes(status):
    async def scenario(receiver, desk):
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url))
        await until(lambda: desk.cursors.get("ann") == 1)

    empty = f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode()
    run(scenario, lambda request: empty)


def test_back_off_doubles_up_to_five_minutes_and_is_spread():
    async def main():
        async with Desk() as desk:
            waits = [desk.sender.back_off(n) for n in range(1, 12)]
            assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 150, 150, 150]
            assert desk.sender.back_off(10_000) == 150
        async with Desk(jitter=lambda: 0.999) as desk:
            waits = [desk.sender.back_off(n) for n in range(1, 12)]
            assert waits[0] == pytest.approx(2, abs=0.01)
            assert waits[-1] == pytest.approx(300, abs=0.5)
            assert max(waits) <= 300

    asyncio.run(main())


def test_retry_after_is_honoured_up_to_five_minutes():
    date = email.utils.formatdate(NOW + 42, usegmt=True)
    said = [
        f"HTTP/1.1 429 X\r\nRetry-After: {value}\r\nContent-Length: 0\r\n\r\n".encode()
        for value in ("7", date, "99999", "0", "soon")
    ]

    async def scenario(receiver, desk):
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url))
        await until(lambda: desk.cursors.get("ann") == 1)
        assert desk.slept == [7.0, 42.0, 300.0, 8.0, 16.0]

    run(scenario, answers(*said))


def test_410_pauses_without_losing_anything():
    async def scenario(receiver, desk):
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url))
        await until(lambda: desk.outcomes == [("ann", "paused")])
        desk.put("ann", notification(2))
        await asyncio.sleep(0.02)
        assert len(receiver.requests) == 1
        assert desk.dead == []
        assert desk.cursors == {}
        assert "410" in desk.sender.last_error("ann")
        assert desk.open == 0

        desk.sender.start("ann", hook(receiver.url))  # set again
        await until(lambda: desk.cursors.get("ann") == 2)
        assert receiver.sequences == [[1], [1, 2]]

    run(scenario, answers(410))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_failures(status):
    async def main():
        async with Receiver() as inside, Desk() as desk:
            moved = f"HTTP/1.1 {status} X\r\nLocation: {inside.url}\r\nContent-Length: 0\r\n\r\n"
            async with Receiver(lambda request: moved.encode()) as receiver:
                desk.put("ann", notification(1))
                desk.sender.start("ann", hook(receiver.url, attempts=2))
                await until(lambda: desk.dead)
                assert desk.dead[0][4] == f"answered {status}: redirects are not followed"
                assert inside.requests == []

    asyncio.run(main())


async def slow_head(writer):
    for byte in b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.01)


async def slow_body(writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(1000):
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def broken_off(writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nxx")
    await writer.drain()
    writer.close()


async def endless_100(writer):
    while True:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("way", [never, slow_head, slow_body, endless_100])
def test_the_timeout_is_for_the_whole_request(way):
    async def scenario(receiver, desk):
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url, attempts=2, timeout=0.15))
        await until(lambda: desk.dead)
        assert desk.dead[0][4] == "no complete answer within 0.15 s"
        assert len(receiver.requests) == 2

    run(scenario, way if way is never else lambda request: way)


@pytest.mark.parametrize(
    "said",
    [b"", b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", broken_off],
    ids=["nothing", "not HTTP", "bad length", "broken off"],
)
def test_what_is_no_answer_is_a_failure(said):
    async def close(writer):
        if callable(said):
            await said(writer)
        else:
            writer.write(said)
            await writer.drain()
            writer.close()

    async def scenario(receiver, desk):
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url, attempts=2))
        await until(lambda: desk.dead)
        assert "ProtocolError" in desk.dead[0][4] or "ReadError" in desk.dead[0][4]

    run(scenario, lambda request: close)


def test_an_endless_body_is_read_only_so_far():
    sent = []

    async def endless(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
                await writer.drain()
                sent.append(0x4000)

    async def scenario(receiver, desk):
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url, batch=1))
        await until(lambda: desk.cursors.get("ann") == 1)
        size = len(sent)
        await until(lambda: receiver.now == 0)  # hung up on
        assert size * 0x4000 < MAX_ANSWER + 16 * 2**20  # what fits into socket buffers

    run(scenario, lambda request: endless)


def test_huge_headers_are_a_failure():
    async def huge(writer):
        with contextlib.suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\n")
            while True:
                writer.write(b"X: " + b"y" * 10_000 + b"\r\n")
                await writer.drain()

    async def scenario(receiver, desk):
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url, attempts=1))
        await until(lambda: desk.dead)
        assert "ProtocolError" in desk.dead[0][4]

    run(scenario, lambda request: huge)
