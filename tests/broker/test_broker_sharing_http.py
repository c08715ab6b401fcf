"""Shared notifications over HTTP, Server-Sent Events and WebSockets, from a real server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
from broker_server import RunningBroker
from test_broker_http_streams import (
    is_silent,
    listen_to,
    publish,
    receive,
    receive_notifications,
    socket_to,
)
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from property_examples import examples


def share(http: httpx.Client, name: str, **settings: float) -> str:
    """A subscriber of a feed of the same name, who shares its notifications."""
    listen_to(http, name)
    put = http.put(f"/subscribers/{name}/sharing", json=settings)
    assert put.status_code == 200, put.text
    return name


def poll(http: httpx.Client, name: str, **query: Any) -> list[tuple[int, int]]:
    page = http.get(f"/subscribers/{name}/notifications", params=query).json()
    return [(one["sequence"], one["deliveries"]) for one in page["notifications"]]


def post(http: httpx.Client, name: str, what: str, **body: Any) -> Any:
    answer = http.post(f"/subscribers/{name}/{what}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def tell(socket: ClientConnection, type: str, **said: Any) -> None:
    socket.send(json.dumps({"type": type, **said}))


def status(http: httpx.Client, name: str) -> dict[str, Any]:
    found: dict[str, Any] = http.get(f"/subscribers/{name}").json()
    return found


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_polling(http: httpx.Client) -> None:
    name = share(http, "s.poll", max_deliveries=2)
    first, second, third = publish(http, name, 1, 2, 3)
    assert poll(http, name, limit=2) == [(first, 1), (second, 1)]
    assert poll(http, name) == [(third, 1)]
    assert poll(http, name, wait=0.1) == []
    found = post(http, name, "acknowledge", sequences=[second, second + 100])
    assert found == {"cursor": first - 1, "count": 1}
    assert post(http, name, "extend", sequences=[first, second], seconds=600)["count"] == 1
    assert post(http, name, "reject", sequences=[third], begun=False)["count"] == 1
    assert poll(http, name) == [(third, 1)]  # nobody began with it
    assert post(http, name, "reject", sequences=[first, third], reason="no")["count"] == 2
    assert poll(http, name) == [(first, 2), (third, 2)]
    post(http, name, "acknowledge", sequences=[third])
    post(http, name, "reject", sequences=[first], reason="no")
    wait_until(lambda: status(http, name)["dead_letters"])
    found = status(http, name)
    assert (found["mode"], found["cursor"], found["in_flight"]) == ("shared", third, 0)
    assert (found["backlog"], found["redelivered"]) == (0, 2)
    [letter] = http.get(f"/subscribers/{name}/dead-letters").json()["dead_letters"]
    assert (letter["first"], letter["attempts"], letter["reason"]) == (first, 2, "no")
    assert post(http, name, "dead-letters/replay") == {"replayed": 1}
    assert poll(http, name) == [(first, 1)]
    post(http, name, "acknowledge", sequences=[first])
    assert http.get(f"/subscribers/{name}/dead-letters").json()["dead_letters"] == []
    assert http.delete(f"/subscribers/{name}/sharing").status_code == 204
    assert status(http, name)["sharing"] is None


def test_what_makes_no_sense(http: httpx.Client) -> None:
    name = share(http, "s.wrong")
    path = f"/subscribers/{name}"
    for body in ({}, {"sequence": 1, "sequences": [1]}, {"sequences": []}, {"sequences": [-1]}):
        assert http.post(f"{path}/acknowledge", json=body).status_code == 422
    assert http.post(f"{path}/acknowledge", json={"sequence": 1}).status_code == 409
    assert http.get(f"{path}/notifications?after=0").status_code == 409
    assert http.get(f"{path}/notifications/stream?after=0").status_code == 409
    assert http.put(f"{path}/sharing", json={"ack_seconds": 0}).status_code == 422
    assert http.put(f"{path}/sharing", json={"max_deliveries": 0}).status_code == 422
    other = listen_to(http, "s.alone")
    for what in ("acknowledge", "reject", "extend"):
        answer = http.post(f"/subscribers/{other}/{what}", json={"sequences": [1]})
        assert answer.status_code == 409
        assert "does not share its notifications" in answer.json()["detail"]


def test_who_shares_cannot_have_a_replay(http: httpx.Client) -> None:
    name = share(http, "s.replay")
    path = f"/subscribers/{name}"
    publish(http, name, 1, 2)
    wanted = {"feed": name, "filter": "n > 1", "from": 1}
    for method, where, body in (
        ("POST", "replay", {"from": 1}),
        ("PUT", "subscriptions/late", wanted),
    ):
        answer = http.request(method, f"{path}/{where}", json=body)
        assert answer.status_code == 409
        assert "end the sharing first" in answer.json()["detail"]
    assert http.get(f"{path}/subscriptions/late").status_code == 404
    assert status(http, name)["replays"] == []
    assert http.delete(f"{path}/sharing").status_code == 204
    assert http.put(f"{path}/subscriptions/late", json=wanted).status_code == 200
    assert len(status(http, name)["replays"]) == 1


def test_who_has_a_replay_cannot_share(http: httpx.Client) -> None:
    name = listen_to(http, "s.replaying")
    path = f"/subscribers/{name}"
    first, last = publish(http, name, 1, 2)
    post(http, name, "acknowledge", sequence=last)
    post(http, name, "replay", **{"from": first})
    answer = http.put(f"{path}/sharing", json={})
    assert answer.status_code == 409
    assert "has a replay, which cannot be shared: cancel it first" in answer.json()["detail"]
    assert status(http, name)["mode"] == "cursor"
    page = http.get(f"{path}/notifications").json()
    assert [one["sequence"] for one in page["notifications"]] == [first, last]

    assert http.delete(f"{path}/replay").json() == {"cursor": last}
    assert http.put(f"{path}/sharing", json={}).status_code == 200
    assert poll(http, name) == []  # what was acknowledged before the replay is not handed out
    assert http.delete(f"{path}/sharing").status_code == 204

    post(http, name, "replay", **{"from": first})
    http.get(f"{path}/notifications").raise_for_status()
    post(http, name, "acknowledge", sequence=last)  # the end of it
    assert http.put(f"{path}/sharing", json={}).status_code == 200
    [third] = publish(http, name, 3)
    assert poll(http, name) == [(third, 1)]


def test_a_poll_waits_for_what_others_give_back(http: httpx.Client) -> None:
    name = share(http, "s.wait")
    [number] = publish(http, name, 1)
    poll(http, name)
    found: list[tuple[int, int]] = []
    waiting = threading.Thread(target=lambda: found.extend(poll(http, name, wait=30)))
    waiting.start()
    wait_until(lambda: status(http, name)["sessions"])
    post(http, name, "reject", sequences=[number])
    waiting.join(30)
    assert found == [(number, 2)]


def test_sockets_share(http: httpx.Client, open_broker: RunningBroker) -> None:
    name = share(http, "s.sockets", ack_seconds=600)
    with (
        socket_to(open_broker, name, "?window=2") as one,
        socket_to(open_broker, name, "?window=2") as two,
    ):
        ready = {"type": "ready", "cursor": 0, "window": 2, "dropped": 0, "ack_seconds": 600.0}
        assert receive(one) == receive(two) == ready
        numbers = publish(http, name, *range(4))
        had = {}
        for socket in (one, two):
            had[socket] = [n["sequence"] for n in receive_notifications(socket, 2)]
        assert sorted(had[one] + had[two]) == numbers
        assert is_silent(one)
        tell(two, "reject", sequences=had[one])  # it does not have them
        tell(two, "extend", sequences=had[two], seconds=1000)
        tell(two, "acknowledge", sequences=had[two][:1])
        [last] = publish(http, name, 5)
        assert [n["sequence"] for n in receive_notifications(two, 1)] == [last]
        tell(two, "reject", sequences=[last], reason="busy")
        [again] = receive_notifications(two, 1)
        assert (again["sequence"], again["deliveries"]) == (last, 2)
        one.close()  # two has no room for what one had
        assert is_silent(two)
        tell(two, "acknowledge", sequences=[had[two][1], last])
        found = [(n["sequence"], n["deliveries"]) for n in receive_notifications(two, 2)]
        assert found == [(number, 2) for number in had[one]]
        tell(two, "acknowledge", sequences=had[one])
        wait_until(lambda: status(http, name)["cursor"] == last)
    with socket_to(open_broker, name) as socket:
        assert receive(socket)["window"] == 10


def test_what_a_socket_gives_back_is_for_others(
    http: httpx.Client, open_broker: RunningBroker
) -> None:
    name = share(http, "s.back", ack_seconds=600)
    with socket_to(open_broker, name) as one:
        receive(one)
        numbers = publish(http, name, 1, 2)
        assert [n["sequence"] for n in receive_notifications(one, 2)] == numbers
        tell(one, "reject", sequences=numbers, begun=False)
        wait_until(lambda: status(http, name)["in_flight"] == 0)
        assert is_silent(one)
        assert poll(http, name) == [(number, 1) for number in numbers]


@pytest.mark.parametrize(
    "message",
    [
        {"type": "acknowledge", "sequence": 1},
        {"type": "acknowledge", "sequences": ["1"]},
        {"type": "reject", "sequences": [1], "delay": -1},
        {"type": "extend", "sequences": [1], "hours": 1},
        {"type": "x"},
    ],
    ids=json.dumps,
)
def test_messages_that_make_no_sense(
    http: httpx.Client, open_broker: RunningBroker, message: dict[str, Any]
) -> None:
    name = share(http, "s.messages")
    with socket_to(open_broker, name) as socket:
        receive(socket)
        socket.send(json.dumps(message))
        assert receive(socket)["type"] == "error"
        with pytest.raises(ConnectionClosed) as caught:
            socket.recv(10)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1008


def test_a_change_of_mode_closes_connections_that_come_again(
    http: httpx.Client, open_broker: RunningBroker
) -> None:
    name = listen_to(http, "s.mode")
    publish(http, name, 1)
    with socket_to(open_broker, name) as socket:
        assert "ack_seconds" not in receive(socket)
        receive_notifications(socket, 1)
        assert http.put(f"/subscribers/{name}/sharing", json={}).status_code == 200
        with pytest.raises(ConnectionClosed) as caught:
            socket.recv(10)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1012


def test_server_sent_events(http: httpx.Client) -> None:
    name = share(http, "s.sse")
    numbers = publish(http, name, 1, 2)
    path = f"/subscribers/{name}/notifications/stream"
    # A browser that reconnects says which number it had last; here that means nothing.
    with http.stream(
        "GET", path, params={"window": 1}, headers={"Last-Event-ID": str(numbers[1])}
    ) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data:"))
        first = json.loads(next(lines)[5:])
        assert (first["sequence"], first["deliveries"]) == (numbers[0], 1)
        post(http, name, "acknowledge", sequences=[numbers[0]])
        assert json.loads(next(lines)[5:])["sequence"] == numbers[1]
    wait_until(lambda: not status(http, name)["sessions"])
    assert poll(http, name) == [(numbers[1], 2)]


def test_cloudevents_say_how_often_they_were_handed_out(http: httpx.Client) -> None:
    name = share(http, "s.cloud")
    publish(http, name, 1)
    found = http.get(f"/subscribers/{name}/notifications", params={"format": "cloudevents"}).json()
    assert [one["boxmatchdeliveries"] for one in found] == ["1"]


# After a SIGKILL


class Crew:
    """Workers that poll and acknowledge, whatever becomes of the broker."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self.seen: set[int] = set()
        self.acknowledged: set[int] = set()
        self.repeated: set[int] = set()
        """What was handed out after it had been acknowledged."""
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(url,)) for _ in range(3)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _work(self, url: str) -> None:
        with httpx.Client(base_url=url, timeout=5) as http:
            while not self._stop.is_set():
                before = self.acknowledged.copy()
                try:
                    for sequence, _ in poll(http, self.name, limit=5, wait=1):
                        self.seen.add(sequence)
                        self.repeated |= {sequence} & before
                        body = {"sequences": [sequence]}
                        answer = http.post(f"/subscribers/{self.name}/acknowledge", json=body)
                        if answer.status_code == 200 and answer.json()["count"]:
                            self.acknowledged.add(sequence)
                except (httpx.HTTPError, KeyError, ValueError):  # it was killed, or begins
                    time.sleep(0.01)


def test_nothing_that_was_acknowledged_comes_again_after_a_kill(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data") as broker:
        broker.options = ["--port", str(broker.port)]
        with httpx.Client(base_url=broker.url, timeout=5) as http:
            name = share(http, "s.kill", max_deliveries=1_000)
            published: list[int] = []
            with Crew(broker.url, name) as crew:
                for enough in (40, 140, 240)[: examples(3)]:
                    published += publish(http, name, *range(100))
                    wait_until(lambda enough=enough: len(crew.acknowledged) >= enough)
                    broker.kill()
                    broker.start()
                published += publish(http, name, *range(100))
                wait_until(lambda: status(http, name)["cursor"] == published[-1])
            assert crew.seen == set(published)
            assert crew.repeated == set()
            assert poll(http, name) == []
            assert status(http, name)["backlog"] == 0
