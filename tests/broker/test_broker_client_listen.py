"""Listening over WebSockets that break, with both clients."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from scripted_broker import (
    ScriptedBroker,
    Session,
    closes,
    denies,
    let_in,
    problem,
    scripted_broker,
    send,
    sends,
    until_closed,
)
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket

from boxmatch.client import AsyncClient, Client, Notification
from boxmatch.client.exchange import RetryPolicy, Sleep
from boxmatch.client.listener import Connect, Deliver, Follower, Lost, Receive, Send, TimedOut
from boxmatch.errors import ClientError


@pytest.fixture(scope="module")
def broker() -> Iterator[ScriptedBroker]:
    with scripted_broker() as one:
        yield one


@pytest.fixture
def fake(broker: ScriptedBroker) -> ScriptedBroker:
    broker.forget()
    return broker


Listen = Callable[..., list[int]]


@pytest.fixture(params=["blocking", "asynchronous"])
def listen(request: pytest.FixtureRequest, fake: ScriptedBroker) -> Listen:
    """The numbers of the first notifications of a subscriber, listened to in a `with` block."""

    def blocking(count: int, **options: Any) -> list[int]:
        found = []
        with (
            Client(fake.url, "bm_key", timeout=5, retry_seconds=3) as client,
            client.listen("ann", **options) as notifications,
        ):
            for notification in notifications:
                assert isinstance(notification, Notification)
                found.append(notification.sequence)
                if len(found) == count:
                    break
        return found

    def asynchronous(count: int, **options: Any) -> list[int]:
        async def run() -> list[int]:
            found = []
            async with (
                AsyncClient(fake.url, "bm_key", timeout=5, retry_seconds=3) as client,
                client.listen("ann", **options) as notifications,
            ):
                async for notification in notifications:
                    found.append(notification.sequence)
                    if len(found) == count:
                        break
            return found

        return asyncio.run(asyncio.wait_for(run(), 20))

    return {"blocking": blocking, "asynchronous": asynchronous}[request.param]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ended(session: Session) -> Session:
    assert session.closed.wait(5)
    return session


def test_notifications_come_in_order_and_are_acknowledged(
    fake: ScriptedBroker, listen: Listen
) -> None:
    fake.plan(sends([3, 4], [7], cursor=2))
    assert listen(3) == [3, 4, 7]
    (session,) = fake.sessions
    assert ended(session).acknowledged[-1] < 7
    assert fake.confirmed == [7]
    assert session.query == {}
    assert session.headers["authorization"] == "Bearer bm_key"


def test_a_socket_that_breaks_is_opened_again_where_it_was(
    fake: ScriptedBroker, listen: Listen
) -> None:
    fake.plan(
        sends([3, 4, 5], cursor=2, break_after=5),
        sends([6], cursor=5, break_after=0),
        sends([8, 9], cursor=6),
    )
    assert listen(6) == [3, 4, 5, 6, 8, 9]
    assert [session.query for session in fake.sessions] == [{}, {"after": "5"}, {"after": "6"}]
    assert fake.confirmed == [9]


def test_what_comes_twice_is_dropped(fake: ScriptedBroker, listen: Listen) -> None:
    fake.plan(sends([3, 4, 5], cursor=2, break_after=0), sends([4, 5, 6], [6, 7], cursor=2))
    assert listen(5) == [3, 4, 5, 6, 7]


def test_acknowledgements_that_were_lost_are_sent_again(
    fake: ScriptedBroker, listen: Listen
) -> None:
    # The second cursor is only the place where the connection goes on.
    fake.plan(sends([3, 4], cursor=2, break_after=4), sends([5], cursor=4))
    assert listen(3) == [3, 4, 5]
    assert ended(fake.sessions[1]).acknowledged == [4]
    assert fake.confirmed == [5]


def test_it_may_begin_elsewhere(fake: ScriptedBroker, listen: Listen) -> None:
    fake.plan(sends([3, 4, 5], cursor=9))
    assert listen(2, after=3, window=10) == [4, 5]
    assert fake.sessions[0].query == {"after": "3", "window": "10"}


def test_nothing_is_acknowledged_unless_asked(fake: ScriptedBroker, listen: Listen) -> None:
    fake.plan(sends([1, 2, 3]))
    assert listen(3, acknowledge=False) == [1, 2, 3]
    assert ended(fake.sessions[0]).acknowledged == []
    assert fake.confirmed == []


def test_it_ends_when_nothing_comes(fake: ScriptedBroker, listen: Listen) -> None:
    fake.plan(sends([1, 2]))
    assert listen(99, idle=0.2) == [1, 2]
    assert ended(fake.sessions[0]).acknowledged[-1] == 2
    assert fake.confirmed == [2]


@pytest.mark.parametrize("code", [1001, 1011, 1012, 1013])
def test_a_broker_that_restarts_is_waited_for(
    fake: ScriptedBroker, listen: Listen, code: int
) -> None:
    fake.plan(closes(code, message="stopping"), sends([1]))
    assert listen(1) == [1]


def test_a_broker_that_is_busy_is_waited_for(fake: ScriptedBroker, listen: Listen) -> None:
    busy = problem(503, "full", headers={"Retry-After": "0.3"})
    fake.plan(denies(busy), denies(problem(429, "slowly")), sends([1]))
    began = time.monotonic()
    assert listen(1) == [1]
    assert time.monotonic() - began > 0.3


@pytest.mark.parametrize("status", [401, 403, 404, 422])
def test_a_refusal_is_final(fake: ScriptedBroker, listen: Listen, status: int) -> None:
    fake.plan(denies(problem(status, "not for you")))
    with pytest.raises(ClientError, match="not for you") as caught:
        listen(1)
    assert caught.value.status == status
    assert len(fake.sessions) == 1


def test_an_error_message_is_final(fake: ScriptedBroker, listen: Listen) -> None:
    fake.plan(closes(1008, message="no such number"))
    with pytest.raises(ClientError, match="no such number") as caught:
        listen(1)
    assert caught.value.problem["code"] == "told"


def test_what_is_not_a_message_is_an_error(fake: ScriptedBroker, listen: Listen) -> None:
    async def script(websocket: WebSocket, session: Session) -> None:
        await let_in(websocket)
        await websocket.send_text("{]")
        await until_closed(websocket, session)

    fake.plan(script)
    with pytest.raises(ClientError, match="not a message"):
        listen(1)
    ended(fake.sessions[0])


def test_messages_of_a_later_broker_are_left_out(fake: ScriptedBroker, listen: Listen) -> None:
    async def script(websocket: WebSocket, session: Session) -> None:
        await let_in(websocket)
        await websocket.send_json({"type": "weather", "fine": True})
        await send(websocket, 1)
        await until_closed(websocket, session)

    fake.plan(script)
    assert listen(1) == [1]


def test_nobody_there() -> None:
    with (
        Client("http://127.0.0.1:9", retry_seconds=0.3) as client,
        pytest.raises(ClientError, match="lost"),
    ):
        next(client.listen("ann"))


def test_a_thread_that_listens_is_ended_from_outside(fake: ScriptedBroker) -> None:
    fake.plan(sends([1, 2]))
    with Client(fake.url) as client:
        notifications = client.listen("ann")
        found: list[int] = []
        thread = threading.Thread(
            target=lambda: found.extend(notification.sequence for notification in notifications)
        )
        thread.start()
        wait_until(lambda: len(found) == 2)
        notifications.close()
        thread.join(5)
        assert not thread.is_alive()
        assert list(notifications) == []
        assert not client._listeners
    assert ended(fake.sessions[0]).acknowledged[-1] == 2
    time.sleep(0.05)
    assert "recv_events" not in str(threading.enumerate())


def test_closing_the_client_ends_all_who_listen(fake: ScriptedBroker) -> None:
    fake.plan(sends())
    client = Client(fake.url)
    threads = [threading.Thread(target=list, args=(client.listen("ann"),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(fake.sessions) == 3)
    client.close()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    for session in fake.sessions:
        ended(session)


def test_closing_ends_a_pause_between_attempts(fake: ScriptedBroker) -> None:
    fake.plan(denies(problem(503, "full", headers={"Retry-After": "50"})))
    with Client(fake.url) as client:
        notifications = client.listen("ann")
        thread = threading.Thread(target=list, args=(notifications,))
        thread.start()
        wait_until(lambda: bool(fake.sessions))
        time.sleep(0.05)
        notifications.close()
        thread.join(5)
        assert not thread.is_alive()


def test_a_notification_whose_handling_failed_is_not_acknowledged(fake: ScriptedBroker) -> None:
    fake.plan(sends([1], [2], [3]))

    def handle() -> None:
        with Client(fake.url) as client, client.listen("ann") as notifications:
            for notification in notifications:
                if notification.sequence == 3:
                    raise RuntimeError("cannot handle it")

    with pytest.raises(RuntimeError):
        handle()
    assert ended(fake.sessions[0]).acknowledged[-1] == 2
    assert fake.confirmed == [2]


def test_one_may_acknowledge_by_hand(fake: ScriptedBroker) -> None:
    fake.plan(sends([1, 2, 3]))
    with Client(fake.url) as client, client.listen("ann", acknowledge=False) as notifications:
        assert [next(notifications).sequence for _ in range(3)] == [1, 2, 3]
        notifications.acknowledge(2)
        notifications.acknowledge(1)  # is done already
    assert ended(fake.sessions[0]).acknowledged == [2]


def test_dropped_notifications_are_counted(fake: ScriptedBroker) -> None:
    fake.plan(sends([5], dropped=4))
    with Client(fake.url) as client, client.listen("ann") as notifications:
        next(notifications)
        assert notifications.dropped == 4


def test_waiting_can_be_cancelled_and_taken_up_again(fake: ScriptedBroker) -> None:
    late = threading.Event()

    async def script(websocket: WebSocket, session: Session) -> None:
        await let_in(websocket)
        await send(websocket, 1)
        while not late.is_set():
            await asyncio.sleep(0.01)
        await send(websocket, 2)
        await until_closed(websocket, session)

    fake.plan(script)

    async def run() -> None:
        async with AsyncClient(fake.url) as client, client.listen("ann") as notifications:
            assert (await anext(notifications)).sequence == 1
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(notifications), 0.1)
            late.set()
            assert (await asyncio.wait_for(anext(notifications), 5)).sequence == 2

    asyncio.run(run())
    assert len(fake.sessions) == 1


def test_an_async_listener_is_ended_by_another_task(fake: ScriptedBroker) -> None:
    fake.plan(sends([1]))

    async def run() -> list[int]:
        async with AsyncClient(fake.url) as client:
            notifications = client.listen("ann")

            async def collect() -> list[int]:
                return [notification.sequence async for notification in notifications]

            task = asyncio.create_task(collect())
            async with asyncio.timeout(5):
                while not fake.sessions or not fake.sessions[0].acknowledged:
                    await asyncio.sleep(0.01)
            await notifications.close()
            return await asyncio.wait_for(task, 5)

    assert asyncio.run(run()) == [1]


def test_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    chain, trusted = tmp_path / "chain.pem", tmp_path / "authority.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(chain))
    authority.cert_pem.write_to_path(str(trusted))
    with scripted_broker(chain) as fake:
        fake.plan(sends([1]))
        fake.answer("GET", "/feeds", JSONResponse({"feeds": []}))
        for verify in (trusted, False):
            with Client(fake.url, verify=verify) as client, client.listen("ann") as notifications:
                assert client.feeds() == []
                assert next(notifications).sequence == 1
        # Whoever is not trusted is not asked again and again.
        began = time.monotonic()
        with Client(fake.url) as client:
            with pytest.raises(ClientError, match=r"(?i)certificate"):
                client.feeds()
            with pytest.raises(ClientError, match=r"(?i)certificate"):
                next(client.listen("ann"))
        assert time.monotonic() - began < 10
    with pytest.raises(ClientError, match="no certificates"):
        Client("https://127.0.0.1:9", verify=tmp_path / "missing.pem")


# Without sockets


def follower(**options: Any) -> Follower:
    given: dict[str, Any] = {"after": None, "acknowledge": True, "window": None, "idle": None}
    retries = RetryPolicy(clock=lambda: 0.0, chance=lambda: 1.0)
    return Follower("ann", **given | options, retries=retries)


READY = '{"type":"ready","cursor":0,"window":10,"dropped":0}'


def message(*sequences: int) -> str:
    notifications = ",".join(
        f'{{"sequence":{one},"feed":"f","at":1.0,"subscriptions":["s"],"event":{{}}}}'
        for one in sequences
    )
    return f'{{"type":"notifications","notifications":[{notifications}]}}'


def test_many_notifications_share_an_acknowledgement() -> None:
    run = follower()
    sent = []
    incoming = [None, READY, message(*range(1, 13)), TimedOut()]
    while run.step is not None:
        if isinstance(run.step, Send):
            sent.append(run.step.text)
            run.answer(None)
        elif isinstance(run.step, Deliver):
            run.answer(None)
        else:
            run.answer(incoming.pop(0))
    # Half the window, the other half, and the rest before it waits again.
    assert [text.rpartition(":")[2] for text in sent] == ["5}", "10}", "12}"]


def test_notifications_that_were_received_outlive_the_connection() -> None:
    run = follower()
    run.answer(None)
    run.answer(READY)
    run.answer(message(*range(1, 8)))
    for expected in range(1, 6):
        assert run.hand_over() is not None
        assert run.hand_over().sequence == expected  # type: ignore[union-attr]
        run.take_back()
    assert isinstance(run.step, Send)
    run.answer(Lost("gone", code=1006))
    assert isinstance(run.step, Sleep)
    run.answer(None)
    assert run.step == Connect("/subscribers/ann/notifications/socket", {"after": "7"})
    run.answer(None)
    assert run.hand_over().sequence == 6  # type: ignore[union-attr]


def test_pauses_grow_while_the_broker_is_away() -> None:
    run = follower()
    run.answer(None)
    run.answer(READY)
    pauses = []
    run.answer(Lost("gone", code=1006))
    for _ in range(8):
        assert isinstance(run.step, Sleep)
        pauses.append(run.step.seconds)
        run.answer(None)
        assert isinstance(run.step, Connect)
        run.answer(Lost("refused"))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_a_step_that_was_interrupted_is_still_to_be_done() -> None:
    run = follower(idle=5.0)
    assert isinstance(run.step, Connect)
    run.take_back()  # nothing was handed over
    assert isinstance(run.step, Connect)
    run.answer(None)
    assert run.step == Receive(5.0)
