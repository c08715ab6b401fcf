"""Notifications over WebSockets and Server-Sent Events, from a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from broker_server import RunningBroker
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect


def listen_to(http: httpx.Client, name: str) -> str:
    """A feed, and a subscriber of the same name who wants all of it."""
    http.post("/feeds", json={"name": name, "schema": {"n": "int", "text": "string"}})
    wanted = {"feed": name, "filter": "n >= 0"}
    put = http.put(f"/subscribers/{name}/subscriptions/all", json=wanted)
    assert put.status_code == 200, put.text
    return name


def publish(http: httpx.Client, name: str, *numbers: int, text: str = "") -> list[int]:
    events = [{"n": number, "text": text} for number in numbers]
    receipt = http.post(f"/feeds/{name}/events", json=events).json()
    return list(range(receipt["first"], receipt["last"] + 1))


def socket_to(
    broker: RunningBroker, subscriber: str, query: str = "", **more: Any
) -> ClientConnection:
    return connect(
        f"{broker.socket_url}/subscribers/{subscriber}/notifications/socket{query}", **more
    )


def receive(socket: ClientConnection, timeout: float = 10) -> dict[str, Any]:
    message = socket.recv(timeout)
    assert isinstance(message, str)  # text frames
    told: dict[str, Any] = json.loads(message)
    return told


def receive_notifications(socket: ClientConnection, count: int) -> list[dict[str, Any]]:
    notifications: list[dict[str, Any]] = []
    while len(notifications) < count:
        message = receive(socket)
        assert message["type"] == "notifications"
        notifications += message["notifications"]
    return notifications


def acknowledge(socket: ClientConnection, sequence: int) -> None:
    socket.send(json.dumps({"type": "acknowledge", "sequence": sequence}))


def is_silent(socket: ClientConnection, seconds: float = 0.3) -> bool:
    try:
        socket.recv(seconds)
    except TimeoutError:
        return True
    return False


def test_notifications_come_as_they_are_published(
    http: httpx.Client, open_broker: RunningBroker
) -> None:
    subscriber = listen_to(http, "w.live")
    before = publish(http, subscriber, 0, 1)
    with socket_to(open_broker, subscriber) as socket:
        ready = receive(socket)
        cursor = ready["cursor"]
        assert ready == {
            "type": "ready", "cursor": cursor, "window": 1000, "dropped": 0, "after": cursor
        }  # fmt: skip
        old = receive_notifications(socket, 2)
        assert [one["sequence"] for one in old] == before
        after = publish(http, subscriber, 2)
        (notification,) = receive_notifications(socket, 1)
        assert notification["event"] == {"n": 2, "text": ""}
        assert (notification["feed"], notification["subscriptions"]) == (subscriber, ["all"])
        acknowledge(socket, before[-1])
        acknowledge(socket, before[0])  # never goes back
        publish(
            http, subscriber, -1, 3
        )  # a notification afterwards: then the ones before were read
        receive_notifications(socket, 1)
    with socket_to(open_broker, subscriber) as socket:
        assert receive(socket)["cursor"] == before[-1]
        assert receive_notifications(socket, 2)[0]["sequence"] == after[0]
    with socket_to(open_broker, subscriber, f"?after={before[0]}") as socket:
        assert receive(socket)["cursor"] == before[-1]
        assert receive_notifications(socket, 3)[0]["sequence"] == before[1]


def test_the_window_limits_what_is_under_way(
    http: httpx.Client, open_broker: RunningBroker
) -> None:
    subscriber = listen_to(http, "w.window")
    with socket_to(open_broker, subscriber, "?window=3") as socket:
        assert receive(socket)["window"] == 3
        numbers = publish(http, subscriber, *range(10))
        notifications = receive_notifications(socket, 3)
        assert [one["sequence"] for one in notifications] == numbers[:3]
        assert is_silent(socket)
        acknowledge(socket, numbers[1])
        assert [one["sequence"] for one in receive_notifications(socket, 2)] == numbers[3:5]
        assert is_silent(socket)
        acknowledge(socket, numbers[4])
        assert [one["sequence"] for one in receive_notifications(socket, 3)] == numbers[5:8]
    with socket_to(open_broker, subscriber, "?window=1000000") as socket:
        assert receive(socket)["window"] == 1000  # what the broker allows


def test_large_notifications_go_in_several_frames(
    http: httpx.Client, open_broker: RunningBroker
) -> None:
    subscriber = listen_to(http, "w.large")
    publish(http, subscriber, *range(8), text="x" * 200_000)
    with socket_to(
        open_broker, subscriber
    ) as socket:  # clients take a megabyte unless told otherwise
        receive(socket)
        assert [one["event"]["n"] for one in receive_notifications(socket, 8)] == list(range(8))


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{",
        "[]",
        "5",
        "{}",
        '{"type":5}',
        '{"type":"subscribe"}',
        '{"type":"acknowledge"}',
        '{"type":"acknowledge","sequence":"1"}',
        '{"type":"acknowledge","sequence":-1}',
        '{"type":"acknowledge","sequence":true}',
        '{"type":"acknowledge","sequence":999999999}',
        '{"type":"acknowledge","sequence":1e400}',
        "[" * 5000,
        b'{"type":"acknowledge","sequence":0}',
    ],
)
def test_wrong_messages_end_the_connection(
    open_broker: RunningBroker, message: str | bytes
) -> None:
    with socket_to(open_broker, "w.wrong") as socket:
        receive(socket)
        socket.send(message)
        told = receive(socket)
        assert (told["type"], told["code"]) == ("error", "message")
        assert told["message"]
        with pytest.raises(ConnectionClosed) as caught:
            socket.recv(5)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1008


@pytest.mark.parametrize("query", ["?after=-1", "?after=x", "?window=0", f"?after={1 << 53}"])
def test_wrong_parameters_are_refused(open_broker: RunningBroker, query: str) -> None:
    with pytest.raises(InvalidStatus) as caught:
        socket_to(open_broker, "w.wrong", query)
    assert caught.value.response.status_code == 422


def test_a_foreign_page_may_not_open_a_socket(open_broker: RunningBroker) -> None:
    with pytest.raises(InvalidStatus) as caught:
        socket_to(open_broker, "w.foreign", origin="https://evil.example")
    assert caught.value.response.status_code == 403


def test_a_socket_that_closes_is_forgotten(http: httpx.Client, open_broker: RunningBroker) -> None:
    subscriber = listen_to(http, "w.gone")
    with socket_to(open_broker, subscriber) as socket:
        receive(socket)
        assert http.get(f"/subscribers/{subscriber}").json()["sessions"] == 1
    while http.get(f"/subscribers/{subscriber}").json()["sessions"]:
        pass


def events_of(answer: httpx.Response) -> Iterator[tuple[int, dict[str, Any]]]:
    id = -1
    for line in answer.iter_lines():
        if line.startswith("id: "):
            id = int(line[4:])
        elif line.startswith("data: "):
            yield id, json.loads(line[6:])


def test_server_sent_events_go_on_from_the_last_id(http: httpx.Client) -> None:
    subscriber = listen_to(http, "e.live")
    url = f"/subscribers/{subscriber}/notifications/stream"
    numbers = publish(http, subscriber, 0, 1, 2)
    with http.stream("GET", url) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = events_of(answer)
        told = [next(events) for _ in range(3)]
        assert [id for id, _ in told] == numbers
        assert [notification["event"]["n"] for _, notification in told] == [0, 1, 2]
    with http.stream("GET", url, headers={"Last-Event-ID": str(numbers[1])}) as answer:
        events = events_of(answer)
        assert next(events)[0] == numbers[2]
        assert http.get(f"/subscribers/{subscriber}").json()["cursor"] == numbers[1]
        (live,) = publish(http, subscriber, 3)
        assert next(events)[0] == live
    with http.stream("GET", url, params={"after": numbers[2]}) as answer:
        assert next(events_of(answer))[0] == live
    while http.get(f"/subscribers/{subscriber}").json()["sessions"]:  # that we left was noticed
        pass
    assert http.get(url, headers={"Last-Event-ID": "x"}).status_code == 422


def test_a_stop_ends_all_streams(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data") as broker:
        with httpx.Client(base_url=broker.url, timeout=30) as http:
            subscriber = listen_to(http, "stop")
            with (
                socket_to(broker, subscriber) as socket,
                http.stream("GET", f"/subscribers/{subscriber}/notifications/stream") as answer,
            ):
                receive(socket)
                assert broker.stop() == 0
                assert list(events_of(answer)) == []
                with pytest.raises(ConnectionClosed) as caught:
                    socket.recv(5)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1012
