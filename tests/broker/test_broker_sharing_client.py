"""Shared notifications with both clients and the command, from a real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import httpx
import pytest
from broker_server import RunningBroker
from test_broker_http_streams import listen_to, publish
from test_broker_sharing_http import poll, share, status, wait_until

from boxmatch.client import AsyncClient, Client
from boxmatch.errors import ClientError
from command_line import Command


@pytest.fixture
def client(open_broker: RunningBroker) -> Iterator[Client]:
    with Client(open_broker.url, retry_seconds=20) as one:
        yield one


def test_workers_share_and_acknowledge_one_by_one(http: httpx.Client, client: Client) -> None:
    name = listen_to(http, "s.client")
    assert client.share(name, max_in_flight=50).mode == "shared"
    numbers = publish(http, name, *range(20))
    found: list[list[int]] = [[], []]

    def work(place: int) -> None:
        with client.work(name, window=3, idle=3) as notifications:
            found[place] = [one.sequence for one in notifications]

    threads = [threading.Thread(target=work, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found[0] + found[1]) == numbers
    wait_until(lambda: client.subscriber(name).cursor == numbers[-1])
    assert client.subscriber(name).redelivered == 0


def test_what_a_worker_fails_at_is_rejected_and_the_rest_was_not_begun(
    http: httpx.Client, client: Client
) -> None:
    name = share(http, "s.fails", max_deliveries=1)
    numbers = publish(http, name, *range(5))

    def handle() -> None:
        with client.work(name) as notifications:
            for notification in notifications:
                if notification.sequence == numbers[1]:
                    raise ValueError("cannot handle it")

    with pytest.raises(ValueError, match="cannot"):
        handle()
    wait_until(lambda: client.dead_letters(name))
    [letter] = client.dead_letters(name)
    assert (letter.first, letter.reason) == (numbers[1], "ValueError: cannot handle it")
    page = client.notifications(name)
    assert [(one.sequence, one.deliveries) for one in page.notifications] == [
        (number, 1) for number in numbers[2:]
    ]
    assert client.acknowledge(name, sequences=numbers[2:]) == numbers[-1]
    assert client.replay(name) == 1
    [again] = client.notifications(name).notifications
    assert client.extend(name, [again.sequence], seconds=60) == 1
    assert client.reject(name, [again.sequence], reason="no", delay=1) == 1
    client.unshare(name)
    assert client.subscriber(name).mode == "cursor"


def test_a_worker_may_acknowledge_and_reject_by_hand(http: httpx.Client, client: Client) -> None:
    name = share(http, "s.hand")
    first, second, third = publish(http, name, 1, 2, 3)
    with client.work(name, acknowledge=False, window=3) as notifications:
        assert next(notifications).sequence == first
        notifications.extend(first)
        assert next(notifications).sequence == second
        notifications.reject(second, "later")
        notifications.acknowledge(first)
        found = {
            (one.sequence, one.deliveries) for one in (next(notifications), next(notifications))
        }
        assert found == {(third, 1), (second, 2)}
    wait_until(lambda: client.subscriber(name).in_flight == 0)
    assert client.subscriber(name).cursor == first


def test_async_workers(http: httpx.Client, open_broker: RunningBroker) -> None:
    name = share(http, "s.async")
    first, second, third = publish(http, name, 1, 2, 3)

    async def main() -> list[tuple[int, int]]:
        found = []
        async with (
            AsyncClient(open_broker.url) as client,
            client.work(name, window=1, idle=3) as notifications,
        ):
            async for one in notifications:
                found.append((one.sequence, one.deliveries))
                await notifications.extend(one.sequence, 60)
                if one.sequence == first and one.deliveries == 1:
                    await notifications.reject(first, "not yet")
                elif one.sequence == second:
                    await notifications.acknowledge(second)
        return found

    assert asyncio.run(main()) == [(first, 1), (first, 2), (second, 1), (third, 1)]
    wait_until(lambda: status(http, name)["cursor"] == third)


def test_the_other_way_to_listen_says_so(http: httpx.Client, client: Client) -> None:
    alone, shared = listen_to(http, "s.other"), share(http, "s.another")
    with (
        pytest.raises(ClientError, match="does not share its notifications: use 'listen'"),
        client.work(alone) as working,
    ):
        next(working)
    with (
        pytest.raises(ClientError, match="shares its notifications: use 'work'"),
        client.listen(shared) as listening,
    ):
        next(listening)
    with pytest.raises(ClientError, match="either a sequence or sequences"):
        client.acknowledge(alone)


def test_the_command(http: httpx.Client, open_broker: RunningBroker, run_boxmatch: Command) -> None:
    name = share(http, "s.command")
    numbers = publish(http, name, *range(5))
    url = ["--url", open_broker.url]
    said = run_boxmatch("listen", name, "--shared", "--count", "2", *url).out
    assert [int(line.split()[0]) for line in said.splitlines()] == numbers[:2]
    wait_until(lambda: status(http, name)["in_flight"] == 0)
    assert poll(http, name) == [(number, 1) for number in numbers[2:]]  # were never begun
    assert status(http, name)["cursor"] == numbers[1]
    failed = run_boxmatch("listen", name, "--shared", "--after", "1", *url)
    assert failed.code == 2
    assert "no place to start after" in failed.err
