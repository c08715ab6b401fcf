"""CloudEvents that are published to a real broker: in every mode, again, and what is refused."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from broker_server import RunningBroker
from cloudevent_calls import (
    BATCHED,
    EVENT,
    HEADERS,
    NESTED,
    SCHEMA,
    STRUCTURED,
    logged,
    make,
    plain,
    polled,
    post,
    post_binary,
    subscribe,
)
from websockets.sync.client import connect

from boxmatch.model.schema import Schema
from boxmatch.wire.cloudevent_bodies import read_cloudevents
from boxmatch.wire.problems import Problem


def test_a_structured_event_is_one_of_the_feed(http: httpx.Client) -> None:
    url = make(http, "ce.structured")
    subscribe(http, "ce.structured", "hot", "data.temperature > 30 AND type = 'reading'")
    subscribe(http, "ce.structured", "cold", "data.temperature < 0")
    event = EVENT | {"priority": 3, "subject": None, "data": {"temperature": 31.5, "unit": "C"}}
    receipt = post(http, url, event, f"{STRUCTURED}; charset=UTF-8")
    assert receipt == {**receipt, "count": 1, "durable": True, "repeated": False}
    del event["subject"]  # null is absent
    assert logged(http, url) == [event]
    (told,) = polled(http, "ce.structured")
    assert plain(told) == event
    assert told["boxmatchfeed"] == "ce.structured"
    assert told["boxmatchsequence"] == str(receipt["first"])
    assert told["boxmatchmatched"].split(",") == ["all", "hot"]


def test_modes_of_the_same_event_are_the_same(http: httpx.Client) -> None:
    url = make(http, "ce.modes")
    subscribe(http, "ce.modes", "hot", "data.temperature > 30 AND priority = 3 AND urgent")
    data = {"temperature": 31.5}
    more = {"priority": 3, "urgent": True, "datacontenttype": "application/json"}
    post(http, url, EVENT | more | {"id": "a", "data": data})
    post(http, url, [EVENT | more | {"id": "b", "data": data}], BATCHED)
    body = json.dumps(data).encode()
    post_binary(http, url, body, "application/json", id="c", priority="3", urgent="true")
    text = base64.b64encode(body).decode()
    post(http, url, EVENT | more | {"id": "d", "data_base64": text})
    post(http, url, EVENT | more | {"id": "e", "priority": "3", "urgent": "true", "data": data})
    assert logged(http, url) == [EVENT | more | {"id": one, "data": data} for one in "abcde"]
    assert [one["boxmatchmatched"] for one in polled(http, "ce.modes")] == ["all,hot"] * 5


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),
        ("%65uro", "euro"),
        ("%e2%82%ac", "€"),
        ('"two words"', "two words"),
        (r'"a \"quoted\" \\ one"', r'a "quoted" \ one'),
        ('before "a b" after', "before a b after"),
        ("%2522", "%22"),
        ('"%41"', "A"),
        ("a,b;c=d", "a,b;c=d"),
    ],
)
def test_headers_are_decoded_once(http: httpx.Client, value: str, read: str) -> None:
    if http.get("/feeds/ce.encoded").status_code == 404:
        make(http, "ce.encoded", SCHEMA)
    url = "/feeds/ce.encoded/events"
    post_binary(http, url, id=value, subject=value)
    assert logged(http, url)[-1] == EVENT | {"id": read, "subject": read}
    assert polled(http, "ce.encoded")[-1]["subject"] == read


@pytest.mark.parametrize(
    ("body", "kind", "read"),
    [
        (b"", None, {}),
        (b"", "application/json", {"datacontenttype": "application/json"}),
        (b"", "image/png", {"datacontenttype": "image/png"}),
        (b"null", "application/json", {"datacontenttype": "application/json", "data": None}),
        (b"1.5", "text/JSON", {"datacontenttype": "text/JSON", "data": 1.5}),
        (b'"a"', "a/b+json;x=y", {"datacontenttype": "a/b+json;x=y", "data": "a"}),
        (b"a\n\xe2\x82\xac", "text/plain", {"datacontenttype": "text/plain", "data": "a\n€"}),
        (b"<a/>", "image/svg+xml", {"datacontenttype": "image/svg+xml", "data": "<a/>"}),
        (
            b"\xe4",
            'text/plain; CharSet="ISO-8859-1"',
            {"datacontenttype": 'text/plain; CharSet="ISO-8859-1"', "data": "ä"},
        ),
        (b"\xe4", "text/plain", {"datacontenttype": "text/plain", "data_base64": "5A=="}),
        (
            b"\0\1",
            "text/plain; charset=utf-16",
            {"datacontenttype": "text/plain; charset=utf-16", "data_base64": "AAE="},
        ),
        (b"\xff\0", "image/png", {"datacontenttype": "image/png", "data_base64": "/wA="}),
        (b"{}", None, {"data_base64": "e30="}),
    ],
)
def test_data_in_binary_mode(
    http: httpx.Client, body: bytes, kind: str | None, read: dict[str, Any]
) -> None:
    if http.get("/feeds/ce.data").status_code == 404:
        make(http, "ce.data", {"type": "string"})
    url = "/feeds/ce.data/events"
    id = f"{body!r} {kind}".replace(" ", "%20").replace('"', "'")
    post_binary(http, url, body, kind, id=id)
    assert logged(http, url)[-1] == EVENT | {"id": unquote(id)} | read


def test_text_is_a_value_to_filter_on(http: httpx.Client) -> None:
    url = make(http, "ce.text", SCHEMA, "refuse")
    subscribe(http, "ce.text", "fire", "data LIKE '%fire%'")
    post_binary(http, url, b"no fire", "text/plain")
    post_binary(http, url, b"fire", "application/octet-stream", id="2")
    matched = [one["boxmatchmatched"] for one in polled(http, "ce.text")]
    assert matched == ["all,fire", "all"]


def test_names_that_the_feed_lacks_follow_its_rule(http: httpx.Client) -> None:
    url = make(http, "ce.strict", NESTED, "refuse")
    whole = EVENT | {
        "subject": "s", "time": "2026-03-01T09:30:00Z", "datacontenttype": "application/json",
        "dataschema": "https://example.com/s", "data": {"temperature": 1},
    }  # fmt: skip
    post(http, url, whole)  # those of the specification are no mistakes
    post(http, url, EVENT | {"id": "2", "data_base64": "AA==", "datacontenttype": "a/b"})
    kind = {"content-type": STRUCTURED}
    for more, name in [
        ({"trace": "x"}, "trace"),
        ({"data": {"temprature": 1}}, "data.temprature"),
    ]:
        answer = http.post(url, json=EVENT | more, headers=kind)
        assert answer.status_code == 422
        assert f"'{name}'" in answer.json()["detail"]
    wrong = http.post(url, json=EVENT | {"data": {"temperature": "hot"}}, headers=kind)
    assert (wrong.status_code, wrong.json()["attribute"]) == (422, "data.temperature")
    text = http.post(url, json=EVENT | {"data": "hot"}, headers=kind)
    assert (text.status_code, text.json()["attribute"]) == (422, "data.temperature")


# Refused


@pytest.mark.parametrize(
    ("event", "place", "said"),
    [
        ({"specversion": None}, "specversion", "missing"),
        ({"specversion": "0.3"}, "specversion", "must be 1.0"),
        ({"specversion": 1.0}, "specversion", "must be 1.0"),
        ({"id": None}, "id", "missing"),
        ({"id": ""}, "id", "not empty"),
        ({"id": 5}, "id", "must be text"),
        ({"id": "a\nb"}, "id", "U+000A"),
        ({"type": "\ufdd0"}, "type", "U+FDD0"),
        ({"subject": "\x85"}, "subject", "U+0085"),
        ({"subject": ""}, "subject", "not empty"),
        ({"source": ""}, "source", "a URI"),
        ({"source": "two words"}, "source", "a URI"),
        ({"source": "/a%2"}, "source", "a URI"),
        ({"time": "2026-03-01"}, "time", "RFC 3339"),
        ({"time": "2026-03-01T09:30:00"}, "time", "RFC 3339"),
        ({"time": "2026-02-29T09:30:00Z"}, "time", "no such time"),
        ({"time": 1772357400}, "time", "RFC 3339"),
        ({"datacontenttype": "json"}, "datacontenttype", "media type"),
        ({"dataschema": "/relative"}, "dataschema", "URI"),
        ({"Foo": "x"}, "Foo", "a to z"),
        ({"my_ext": "x"}, "my_ext", "a to z"),
        ({"ext": 1.5}, "ext", "32 bits"),
        ({"ext": 1 << 31}, "ext", "32 bits"),
        ({"ext": {"a": 1}}, "ext", "32 bits"),
        ({"ext": ["a"]}, "ext", "32 bits"),
        ({"data": 1, "data_base64": "AA=="}, "data_base64", "not both"),
        ({"data_base64": "A"}, "data_base64", "Base64"),
        ({"data_base64": "AA==\n"}, "data_base64", "Base64"),
        ({"data_base64": None}, "data_base64", "Expected `str`"),
        ({"data": {"a": 1}, "datacontenttype": "text/xml"}, "data", "must be text"),
        ({"data": "ä", "datacontenttype": "a/b; charset=us-ascii"}, "data", "data_base64"),
        ({"data": "a", "datacontenttype": "a/b; charset=idna"}, "data", "data_base64"),
    ],
)
def test_an_event_that_is_none(
    http: httpx.Client, event: dict[str, Any], place: str, said: str
) -> None:
    if http.get("/feeds/ce.wrong").status_code == 404:
        make(http, "ce.wrong")
    url = "/feeds/ce.wrong/events"
    wrong = EVENT | event
    answer = http.post(url, json=wrong, headers={"content-type": STRUCTURED})
    assert answer.status_code == 400, answer.text
    told = answer.json()
    assert told["type"] == "urn:boxmatch:problem:cloudevent"
    assert "index" not in told
    (fault,) = told["errors"]
    assert fault["in"] == f"body/{place}"
    assert said in fault["message"]
    answer = http.post(url, json=[EVENT, wrong], headers={"content-type": BATCHED})
    told = answer.json()
    assert (answer.status_code, told["index"]) == (400, 1)
    assert [one["in"] for one in told["errors"]] == [f"body/1/{place}"]
    assert logged(http, url) == []  # none of a batch


@pytest.mark.parametrize(
    ("more", "place", "said"),
    [
        ([("ce-type", None)], "ce-type", "missing"),
        ([("ce-specversion", None)], "ce-specversion", "missing"),
        ([("ce-id", "%")], "ce-id", "hexadecimal"),
        ([("ce-subject", "%C0%A0")], "ce-subject", "UTF-8"),
        ([("ce-subject", "%0A")], "ce-subject", "U+000A"),
        ([("ce-subject", '"open')], "ce-subject", "quote"),
        ([("ce-subject", b"\xc3\xa4")], "ce-subject", "ASCII"),
        ([("ce-subject", "")], "ce-subject", "empty"),
        ([("ce-my-ext", "x")], "ce-my-ext", "a to z"),
        ([("ce-data", "x")], "ce-data", "the body is the data"),
        ([("ce-datacontenttype", "a/b")], "ce-datacontenttype", "Content-Type"),
        ([("ce-ext", "a"), ("CE-Ext", "a")], "ce-ext", "twice"),
        ([("content-type", "json")], "content-type", "media type"),
    ],
)
def test_headers_that_are_refused(
    http: httpx.Client, more: list[tuple[str, Any]], place: str, said: str
) -> None:
    if http.get("/feeds/ce.headers").status_code == 404:
        make(http, "ce.headers")
    given = {name for name, _ in more}
    headers: Any = [(name, value) for name, value in HEADERS.items() if name not in given]
    headers += [(name, value) for name, value in more if value is not None]
    answer = http.post("/feeds/ce.headers/events", content=b"{}", headers=headers)
    assert answer.status_code == 400, answer.text
    (fault,) = answer.json()["errors"]
    assert fault["in"] == f"header.{place}"
    assert said in fault["message"]


def test_bodies_that_are_refused(http: httpx.Client) -> None:
    url = make(http, "ce.bodies")
    for kind, body, status in [
        (STRUCTURED, b"", 400),
        (STRUCTURED, b"[]", 400),
        (STRUCTURED, b'{"id": "a", "id": "b"}', 400),
        (BATCHED, b"{}", 400),
        (BATCHED, b"[5]", 400),
        ("application/cloudevents", b"{}", 415),
        ("application/cloudevents+avro", b"{}", 415),
    ]:
        answer = http.post(url, content=body, headers={"content-type": kind})
        assert answer.status_code == status, (kind, body, answer.text)
    headers = {**HEADERS, "content-type": "application/json"}
    answer = http.post(url, content=b"{", headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:boxmatch:problem:json")
    hidden = base64.b64encode(b"{").decode()
    event = EVENT | {"datacontenttype": "application/json", "data_base64": hidden}
    answer = http.post(url, json=event, headers={"content-type": STRUCTURED})
    assert answer.status_code == 400
    assert "body/data_base64 is not JSON" in answer.json()["detail"]
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    answer = http.post(url, content=deep, headers=headers)
    assert answer.status_code == 400
    with pytest.raises(Problem, match="at most 1 events"):
        read_cloudevents(json.dumps([EVENT] * 2).encode(), [], BATCHED, Schema(NESTED), most=1)
    assert logged(http, url) == []
    assert post(http, url, [], BATCHED)["count"] == 0  # an empty batch is a batch


def test_a_state_feed_takes_no_events(http: httpx.Client) -> None:
    http.post("/feeds", json={"name": "ce.state", "kind": "state", "spaces": {"s": {"x": "int"}}})
    answer = http.post("/feeds/ce.state/events", json=EVENT, headers={"content-type": STRUCTURED})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:boxmatch:problem:conflict")


# Again


def test_an_event_is_stored_once_in_whatever_mode(http: httpx.Client) -> None:
    url = make(http, "ce.again")
    first = post(http, url, EVENT | {"data": {"temperature": 1}})
    again = {**first, "repeated": True}
    assert post(http, url, EVENT) == again  # the id and the source say that it is the same
    assert post(http, url, [EVENT], BATCHED) == again
    assert post(http, url, [EVENT, EVENT], BATCHED) == again
    assert post_binary(http, url) == again
    other = post(http, url, EVENT | {"source": "/sensors/8"})
    assert (other["repeated"], other["first"]) == (False, first["last"] + 1)
    elsewhere = make(http, "ce.again.elsewhere")
    assert not post(http, elsewhere, EVENT)["repeated"]
    assert len(logged(http, url)) == len(polled(http, "ce.again")) == 2


def test_of_a_batch_only_new_events_are_stored(http: httpx.Client) -> None:
    url = make(http, "ce.partial")
    subscribe(http, "ce.partial", "hot", "data.temperature > 30")

    def batch(*ids: int) -> dict[str, Any]:
        events = [EVENT | {"id": str(id), "data": {"temperature": 10 * id}} for id in ids]
        return post(http, url, events, BATCHED)

    one = batch(1, 2)
    two = batch(2, 3, 1, 4, 3, 5)
    start = one["first"]
    assert two == {**two, "first": start + 2, "last": start + 4, "count": 3, "repeated": False}
    assert [event["id"] for event in logged(http, url)] == ["1", "2", "3", "4", "5"]
    told = [(int(e["id"]), e["boxmatchmatched"]) for e in polled(http, "ce.partial")]
    assert told == [(1, "all"), (2, "all"), (3, "all"), (4, "all,hot"), (5, "all,hot")]
    # Whose numbers are apart: how many they are is said all the same.
    assert batch(1, 5, 5) == {**one, "last": start + 4, "count": 2, "repeated": True}
    shown = http.get("/feeds/ce.partial").json()
    assert (shown["events"], shown["matches"]) == (5, 7)


def test_new_events_of_a_batch_are_delivered_at_once(
    http: httpx.Client, open_broker: RunningBroker
) -> None:
    url = make(http, "ce.live")
    post(http, url, EVENT)
    address = f"{open_broker.socket_url}/subscribers/ce.live/notifications/socket?after=0"
    with connect(address) as socket:
        socket.recv(10)
        socket.recv(10)  # the first one, from the disk; the next come from memory
        receipt = post(http, url, [EVENT, EVENT | {"id": "2"}, EVENT, EVENT | {"id": "3"}], BATCHED)
        told: list[dict[str, Any]] = []
        while len(told) < 2:
            told += json.loads(socket.recv(10))["notifications"]
        assert [(one["sequence"], one["event"]["id"]) for one in told] == [
            (receipt["first"], "2"),
            (receipt["last"], "3"),
        ]


def test_keys_of_requests_are_kept_apart_from_events(http: httpx.Client) -> None:
    url = make(http, "ce.keys")
    headers = {"content-type": BATCHED, "idempotency-key": "job-1"}
    first = http.post(url, json=[EVENT], headers=headers).json()
    other = http.post(url, json=[EVENT | {"id": "2"}], headers=headers).json()
    assert other == {**first, "repeated": True}  # the key says that it is the same request
    headers["idempotency-key"] = "job-2"
    assert http.post(url, json=[EVENT], headers=headers).json() == {**first, "repeated": True}
    assert not http.post(url, json=[EVENT | {"id": "3"}], headers=headers).json()["repeated"]


def test_repeats_are_known_after_a_restart_and_with_others_in_one_group(tmp_path: Path) -> None:
    with (
        RunningBroker(tmp_path / "data") as broker,
        httpx.Client(base_url=broker.url, timeout=30) as http,
    ):
        url = make(http, "ce.restart")
        receipts: list[dict[str, Any]] = []

        def publish() -> None:
            with httpx.Client(base_url=broker.url, timeout=30) as own:
                receipts.append(post(own, url, EVENT))

        threads = [threading.Thread(target=publish) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(one["repeated"] for one in receipts) == [False] + [True] * 7
        assert len({one["first"] for one in receipts}) == 1
    with (
        RunningBroker(tmp_path / "data") as broker,
        httpx.Client(base_url=broker.url, timeout=30) as http,
    ):
        assert post(http, url, EVENT)["repeated"]
