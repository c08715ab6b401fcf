"""CloudEvents that a real broker delivers: by every way, as they were published."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import pytest
from broker_server import RunningBroker
from cloudevent_calls import (
    BATCHED,
    EVENT,
    STRUCTURED,
    logged,
    make,
    plain,
    polled,
    post,
)
from websockets.sync.client import connect

PUBLISHED: list[dict[str, Any]] = [
    EVENT | {"id": "json", "data": {"temperature": 31.5}, "ext": "x", "number": -3, "flag": True},
    EVENT | {"id": "null", "data": None},
    EVENT | {"id": "none"},
    EVENT | {"id": "none but its type", "datacontenttype": "text/plain"},
    EVENT | {"id": "list", "data": [1, 2.5, "a"], "datacontenttype": "application/x+json"},
    EVENT | {"id": "text €", "data": "a\n€", "datacontenttype": "text/plain", "subject": 'a "b" %'},
    EVENT | {"id": "latin", "data": "ä", "datacontenttype": "text/plain; charset=iso-8859-1"},
    EVENT | {"id": "empty text", "data": "", "datacontenttype": "text/plain"},
    EVENT | {"id": "bytes", "data_base64": "/wA=", "datacontenttype": "image/png"},
    EVENT | {"id": "bytes of no type", "data_base64": "e30="},
    EVENT | {"id": "empty", "data_base64": ""},
    EVENT | {"id": "all", "time": "2016-12-31T23:59:60.1234567+01:00", "dataschema": "urn:x"},
]  # fmt: skip


class Hook:
    """A receiver of webhooks that takes everything, or refuses as often as it is told."""

    def __init__(self) -> None:
        requests = self.requests = list[tuple[dict[str, str], bytes]]()
        refusals = self.refusals = list[int]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = refusals.pop() if refusals else 204
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                if status == 204:
                    requests.append(
                        ({name.lower(): value for name, value in self.headers.items()}, body)
                    )

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait(self, count: int) -> list[tuple[dict[str, str], bytes]]:
        deadline = time.monotonic() + 20
        while len(self.requests) < count and time.monotonic() < deadline:
            time.sleep(0.02)
        return list(self.requests)


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    data = tmp_path_factory.mktemp("hooks") / "data"
    with RunningBroker(data, ["--allow-private-webhooks"]) as running:
        yield running


@pytest.fixture
def hooked(private: RunningBroker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=private.url, timeout=30) as client:
        yield client


def republished(http: httpx.Client, requests: list[tuple[dict[str, str], bytes]]) -> list[Any]:
    """What the broker reads of the very requests that it has sent."""
    url = make(http, f"ce.back{time.monotonic_ns()}", {"type": "string"})
    for headers, body in requests:
        kept = {n: v for n, v in headers.items() if n.startswith("ce-") or n == "content-type"}
        answer = http.post(url, content=body, headers=kept)
        assert answer.status_code == 200, answer.text
    return [plain(event) for event in logged(http, url)]


def in_binary(event: dict[str, Any]) -> dict[str, Any]:
    """What is left of an event that was in binary mode."""
    more: dict[str, Any] = {}
    if "data" in event and "datacontenttype" not in event:
        more["datacontenttype"] = "application/json"
    if event.get("data_base64") == "" or event.get("data") == "":  # as if there were none
        event = {name: value for name, value in event.items() if not name.startswith("data_b")}
        event = {name: value for name, value in event.items() if name != "data"}
    if "ext" in event:  # headers are text, and nothing says what it stands for
        more |= {"number": "-3", "flag": "true"}
    return event | more


@pytest.mark.parametrize("mode", ["structured", "batched", "binary"])
def test_webhooks_get_what_was_published(hooked: httpx.Client, hook: Hook, mode: str) -> None:
    name = f"ce.hook.{mode}"
    url = make(hooked, name, {"type": "string"})
    post(hooked, url, PUBLISHED, BATCHED)
    put = hooked.put(
        f"/subscribers/{name}/webhook", json={"url": hook.url, "cloudevents": mode, "batch": 10}
    )
    assert put.json()["cloudevents"] == mode
    assert hooked.get(f"/subscribers/{name}/webhook").json()["cloudevents"] == mode
    requests = hook.wait(2 if mode == "batched" else len(PUBLISHED))
    kinds = {"structured": STRUCTURED, "batched": BATCHED}
    if mode == "binary":
        assert republished(hooked, requests) == list(map(in_binary, PUBLISHED))
        for headers, _ in requests:
            assert headers["ce-boxmatchmatched"] == "all"
            assert headers["ce-boxmatchsequence"] == headers["boxmatch-first"]
        headers, body = requests[5]
        assert headers["ce-id"] == "text%20%E2%82%AC"
        assert headers["ce-subject"] == "a%20%22b%22%20%25"
        assert body.decode() == "a\n€"
        assert requests[6][1] == b"\xe4"
        assert requests[8][1] == b"\xff\0"
        assert "content-type" not in requests[9][0]
        return
    assert {headers["content-type"] for headers, _ in requests} == {kinds[mode]}
    if mode == "batched":
        assert [len(json.loads(body)) for _, body in requests] == [10, 2]
    assert republished(hooked, requests) == PUBLISHED


def test_dead_letters_are_kept_in_one_form_and_sent_in_that_of_today(
    hooked: httpx.Client, hook: Hook
) -> None:
    url = make(hooked, "ce.dead", {"type": "string"})
    hook.refusals.append(500)
    where = "/subscribers/ce.dead/webhook"
    hooked.put(where, json={"url": hook.url, "cloudevents": "batched", "attempts": 1})
    events = [EVENT | {"data": 1}, EVENT | {"id": "2", "data": {"a": 1.0}}]
    receipt = post(hooked, url, events, BATCHED)
    deadline = time.monotonic() + 20
    letters: list[Any] = []
    while not letters and time.monotonic() < deadline:
        letters = hooked.get("/subscribers/ce.dead/dead-letters").json()["dead_letters"]
    (letter,) = letters
    assert (letter["first"], letter["last"]) == (receipt["first"], receipt["last"])
    assert [one["event"] for one in letter["body"]["notifications"]] == events
    hooked.put(where, json={"url": hook.url, "cloudevents": "structured"})
    told = hooked.post("/subscribers/ce.dead/dead-letters/replay", json={})
    assert told.json() == {"replayed": 1}
    assert [plain(json.loads(body)) for _, body in hook.wait(2)] == events
    assert [headers["boxmatch-attempt"] for headers, _ in hook.requests] == ["2", "2"]
    feed = url.split("/")[2]
    delivered = f'boxmatch_notifications_delivered_total{{feed="{feed}",way="webhook"}} 2.0'
    assert delivered in hooked.get("/metrics").text


def test_a_socket_whose_messages_are_cloudevents(
    http: httpx.Client, open_broker: RunningBroker
) -> None:
    url = make(http, "ce.socket", {"type": "string"})
    post(http, url, PUBLISHED, BATCHED)
    address = f"{open_broker.socket_url}/subscribers/ce.socket/notifications/socket"
    offered: Any = ["cloudevents.avro", "cloudevents.json"]
    with connect(f"{address}?window={len(PUBLISHED)}", subprotocols=offered) as socket:
        assert socket.subprotocol == "cloudevents.json"
        told = [json.loads(socket.recv(10)) for _ in PUBLISHED]
        assert list(map(plain, told)) == PUBLISHED
        post(http, url, EVENT | {"id": "more"})
        with pytest.raises(TimeoutError):
            socket.recv(0.3)  # the window is full
        sequence = int(told[-1]["boxmatchsequence"])
        socket.send(json.dumps({"type": "acknowledge", "sequence": sequence}))
        assert json.loads(socket.recv(10))["id"] == "more"
        assert http.get("/subscribers/ce.socket").json()["cursor"] == sequence
        socket.send("nonsense")
        with pytest.raises(Exception, match="1008"):  # and no message that is no CloudEvent
            socket.recv(10)
    other: Any = ["cloudevents.avro"]
    with connect(address, subprotocols=other) as socket:
        assert socket.subprotocol is None
        assert json.loads(socket.recv(10))["type"] == "ready"


def test_server_sent_events(http: httpx.Client) -> None:
    url = make(http, "ce.sse", {"type": "string"})
    post(http, url, PUBLISHED, BATCHED)
    where = "/subscribers/ce.sse/notifications/stream"
    told: list[dict[str, Any]] = []
    with http.stream("GET", where, params={"format": "cloudevents"}) as answer:
        number = ""
        for line in answer.iter_lines():
            if line.startswith("id: "):
                number = line.removeprefix("id: ")
            elif line.startswith("data: "):
                told.append(json.loads(line.removeprefix("data: ")))
                assert told[-1]["boxmatchsequence"] == number
                if len(told) == len(PUBLISHED):
                    break
    assert list(map(plain, told)) == PUBLISHED
    assert http.get(where, params={"format": "other"}).status_code == 422


def test_polling_in_pages(http: httpx.Client) -> None:
    url = make(http, "ce.poll", {"type": "string"})
    receipt = post(http, url, PUBLISHED, BATCHED)
    assert list(map(plain, polled(http, "ce.poll"))) == PUBLISHED
    where = "/subscribers/ce.poll/notifications"
    query: dict[str, Any] = {"format": "cloudevents", "limit": 5}
    told: list[Any] = []
    while page := http.get(where, params=query).json():
        told += page
        query["after"] = page[-1]["boxmatchsequence"]
    assert list(map(plain, told)) == PUBLISHED
    answer = http.get(where, params=query)
    assert answer.headers["boxmatch-next"] == str(receipt["last"])
    assert (answer.headers["boxmatch-cursor"], answer.headers["boxmatch-dropped"]) == ("0", "0")


def test_other_events_are_inside_of_one(http: httpx.Client) -> None:
    make(http, "ce.wrapped", {"price": "float", "type": "string"})
    event = {"price": 1.0, "type": "a", "specversion": "1.0"}  # a CloudEvent has more than that
    number = http.post("/feeds/ce.wrapped/events", json=event).json()["first"]
    whole = EVENT | {"data": 5}  # this is one, whatever it was sent as
    http.post("/feeds/ce.wrapped/events", json=whole)
    ours = EVENT | {"id": "2", "boxmatchmatched": "of another broker"}
    post(http, "/feeds/ce.wrapped/events", ours)
    first, second, third = polled(http, "ce.wrapped")
    at = http.get("/subscribers/ce.wrapped/notifications").json()["notifications"][0]["at"]
    assert first.pop("time").endswith("Z")
    assert at > 0
    assert first == {
        "specversion": "1.0",
        "id": f"ce.wrapped/{number}",
        "source": "/feeds/ce.wrapped",
        "type": "boxmatch.event",
        "datacontenttype": "application/json",
        "boxmatchfeed": "ce.wrapped",
        "boxmatchsequence": str(number),
        "boxmatchmatched": "all",
        "data": event,
    }
    assert plain(second) == whole
    assert third["boxmatchmatched"] == "all"


def test_transitions_are_inside_of_one(hooked: httpx.Client, hook: Hook) -> None:
    name = "ce.fleet"
    hooked.post("/feeds", json={"name": name, "kind": "state", "spaces": {"s": {"x": "int"}}})
    wanted = {"feed": name, "region": {"x": [0, 9]}}
    hooked.put(f"/subscribers/{name}/subscriptions/near", json=wanted)
    hooked.put(f"/subscribers/{name}/webhook", json={"url": hook.url, "cloudevents": "binary"})
    hooked.put(f"/feeds/{name}/publications/truck", json={"region": {"x": 5}})
    ((headers, body),) = hook.wait(1)
    assert headers["ce-type"] == "boxmatch.enter"
    assert headers["ce-subject"] == "truck"
    assert headers["ce-source"] == f"/feeds/{name}"
    assert headers["ce-boxmatchmatched"] == "near"
    assert headers["content-type"] == "application/json"
    told = json.loads(body)
    assert (told["kind"], told["publication"]) == ("enter", "truck")
    page = hooked.get(f"/subscribers/{name}/notifications?after=0").json()
    assert [one["change"] for one in page["notifications"]] in ([], [told])  # acknowledged by now
