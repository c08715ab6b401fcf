"""Feeds of CloudEvents, and calls that publish to them and read from them."""

from __future__ import annotations

import json
from typing import Any

import httpx

from boxmatch.wire.cloudevents import event_faults

STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"
SCHEMA = {
    "type": "string",
    "source": "string",
    "subject": "string",
    "priority": "int",
    "urgent": "bool",
    "data": "string",
}
NESTED = {"type": "string", "priority": "int", "urgent": "bool", "data.temperature": "float"}
EVENT = {"specversion": "1.0", "id": "1", "source": "/sensors/7", "type": "reading"}
HEADERS = {f"ce-{name}": value for name, value in EVENT.items()}
OURS = ("boxmatchfeed", "boxmatchsequence", "boxmatchmatched")


def make(http: httpx.Client, name: str, schema: Any = NESTED, unknown: str = "carry") -> str:
    """A feed, and a subscriber of the same name who wants all readings."""
    made = http.post("/feeds", json={"name": name, "schema": schema, "unknown": unknown})
    assert made.status_code == 201, made.text
    subscribe(http, name, "all", "type IS NOT NULL OR type IS NULL")
    return f"/feeds/{name}/events"


def subscribe(http: httpx.Client, name: str, id: str, filter: str) -> None:
    wanted = {"feed": name, "filter": filter}
    put = http.put(f"/subscribers/{name}/subscriptions/{id}", json=wanted)
    assert put.status_code == 200, put.text


def post(http: httpx.Client, url: str, event: Any, kind: str = STRUCTURED) -> dict[str, Any]:
    answer = http.post(url, content=json.dumps(event), headers={"content-type": kind})
    assert answer.status_code == 200, answer.text
    receipt: dict[str, Any] = answer.json()
    return receipt


def post_binary(
    http: httpx.Client, url: str, body: bytes = b"", kind: str | None = None, **more: Any
) -> dict[str, Any]:
    headers: Any = HEADERS | {f"ce-{name}": value for name, value in more.items()}
    if kind is not None:
        headers["content-type"] = kind
    answer = http.post(url, content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    receipt: dict[str, Any] = answer.json()
    return receipt


def logged(http: httpx.Client, url: str) -> list[Any]:
    return [one["event"] for one in http.get(url).json()["events"]]


def polled(http: httpx.Client, name: str) -> list[dict[str, Any]]:
    answer = http.get(f"/subscribers/{name}/notifications", params={"format": "cloudevents"})
    assert answer.headers["content-type"] == BATCHED
    events: list[dict[str, Any]] = answer.json()
    assert not [one for event in events for one in event_faults(event)]
    return events


def plain(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in OURS}
