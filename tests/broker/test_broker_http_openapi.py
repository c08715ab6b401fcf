"""The description of the API is complete, says what is answered, and is shown without the net."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from jsonschema_rs import Draft4Validator


@pytest.fixture(scope="module")
def described(open_broker: Any) -> dict[str, Any]:
    told: dict[str, Any] = httpx.get(f"{open_broker.url}/openapi.json").json()
    return told


def operations(described: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def test_every_route_says_what_it_takes_and_answers(described: dict[str, Any]) -> None:
    for method, path, operation in operations(described):
        where = f"{method} {path}"
        assert operation["description"], where
        answers = operation["responses"]
        assert any(status.startswith("2") for status in answers), where
        named = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", path)), where
        if path in ("/healthz", "/readyz"):
            continue
        assert {"401", "403", "422", "429", "503"} <= set(answers), where
        if "requestBody" in operation:
            assert {"400", "413", "415"} <= set(answers), where
        assert ("requestBody" in operation) == (method in ("post", "put", "patch")), where
        for status, answer in answers.items():
            if status.startswith("4"):
                assert list(answer["content"]) == ["application/problem+json"], (where, status)


def test_all_references_lead_somewhere(described: dict[str, Any]) -> None:
    known = set(described["components"]["schemas"])
    used = set(re.findall(r"'#/components/schemas/([^']+)'", repr(described)))
    assert used <= known
    assert {"Problem", "NewFeed", "NewSubscription", "NewPublication"} <= used
    assert "null" not in re.findall(r"'type': '(\w+)'", repr(described))  # not in OpenAPI 3.0


def test_answers_have_the_shapes_that_are_described(
    http: httpx.Client, described: dict[str, Any]
) -> None:
    """A problem is one too."""
    feed = {"name": "o.shapes", "schema": {"price": {"type": "float", "domain": [0, 9]}}}
    wanted = {"feed": "o.shapes", "filter": "price < 5"}
    state = {"name": "o.state", "kind": "state", "spaces": {"s": {"x": "int"}}}
    hook = {"url": "https://example.com/hook", "paused": True}
    question = {"event": {"price": 3}, "filter": "price < 5"}
    asked: list[tuple[str, str, Any]] = [
        ("post", "/feeds", feed),
        ("post", "/feeds", feed),
        ("post", "/feeds", state),
        ("get", "/feeds", None),
        ("put", "/subscribers/{subscriber}/subscriptions/{id}", wanted),
        ("put", "/subscribers/{subscriber}/subscriptions/{id}", {**wanted, "filter": "price"}),
        ("get", "/subscribers/{subscriber}/subscriptions", None),
        ("post", "/feeds/{feed}/events", {"price": 3}),
        ("post", "/feeds/{feed}/events", {"price": 30}),
        ("get", "/feeds/{feed}/events", None),
        ("get", "/subscribers/{subscriber}/notifications", None),
        ("get", "/subscribers/{subscriber}/notifications?format=cloudevents", None),
        ("put", "/subscribers/{subscriber}/webhook", hook),
        ("get", "/subscribers/{subscriber}/webhook", None),
        ("get", "/subscribers/{subscriber}", None),
        ("get", "/subscribers", None),
        ("post", "/feeds/{feed}/dry-run", {"filter": "price < 5"}),
        ("post", "/feeds/{feed}/explain", question),
        ("post", "/feeds/{feed}/dry-run", {"filter": "price < 5", "recent": 50}),
        ("post", "/feeds/{feed}/trace", {"event": {"price": 3}}),
        ("post", "/feeds/{feed}/trace", {"event": {"price": 8}, "publish": True}),
        ("get", "/feeds/{feed}/subscriptions", None),
        ("get", "/overview", None),
        ("get", "/overview/history", None),
        ("get", "/subscribers/{subscriber}/dead-letters", None),
        ("delete", "/subscribers/{subscriber}/dead-letters", None),
        ("post", "/subscribers/{subscriber}/acknowledge", {"sequence": 0}),
        ("delete", "/subscribers/{subscriber}/webhook", None),
        ("get", "/healthz", None),
    ]
    for method, path, body in asked:
        url = path.format(subscriber="o.subscriber", feed="o.shapes", id="s")
        answer = http.request(method, url, json=body)
        declared = described["paths"][path.partition("?")[0]][method]["responses"][
            str(answer.status_code)
        ]
        if answer.status_code == 204:
            continue
        kind = answer.headers["content-type"]
        schema = {**declared["content"][kind]["schema"], "components": described["components"]}
        errors = [str(one) for one in Draft4Validator(_plain(schema)).iter_errors(answer.json())]
        assert not errors, (method, path, errors)


def _plain(schema: Any) -> Any:
    """`nullable` is a word of OpenAPI, not of JSON Schema."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: _plain(value) for key, value in schema.items() if key != "nullable"}
    return {"anyOf": [result, {"type": "null"}]} if schema.get("nullable") is True else result


def test_the_page_needs_nothing_from_elsewhere(http: httpx.Client) -> None:
    page = http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "//" not in page.text
    files = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(files) == 4
    for file in files:
        answer = http.get(f"/{file}")
        assert answer.status_code == 200, file
        assert len(answer.content) > 100
    assert http.get("/docs/other.js").status_code == 404
    assert http.get("/docs/..%2fsecret").status_code == 404
