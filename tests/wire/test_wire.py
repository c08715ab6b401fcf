"""What goes over the network: how it is written, read, and refused with the place."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import msgspec
import pytest

from boxmatch.broker.store.rows import Notification as StoredNotification
from boxmatch.wire import overview, requests, responses
from boxmatch.wire.codec import decode, encode, faults, stored


def found(kind: Any, value: Any) -> dict[str, str]:
    return {one.place: one.message for one in faults(value, kind)}


def test_every_wrong_place_is_named() -> None:
    asked = {
        "name": "bad name",
        "kind": "foo",
        "schema": {
            "a": 3,
            "c": [1],
            "d": {"type": "x", "q": 1},
            "e": [],
            "f": "int",
        },
        "spaces": {"a b": {}},
        "extra": 1,
    }
    told = found(requests.NewFeed, asked)
    assert list(told) == [
        "body/name",
        "body/kind",
        *(f"body/schema/{name}" for name in ("a", "c/0", "d/q", "e")),
        "body/spaces/a b",
        "body/extra",
    ]
    assert told["body/kind"] == "must be one of events, state"
    assert told["body/schema/a"].startswith(
        "unknown type; known types are int, float, decimal(p, s)"
    )
    assert told["body/schema/c/0"] == "Expected `str`, got `int`"
    assert told["body/schema/d/q"] == told["body/extra"] == "there is no such field"
    assert "matching regex" in told["body/spaces/a b"]


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (requests.NewFeed, 3, {"body": "Expected `object`, got `int`"}),
        (requests.NewFeed, {}, {"body/name": "this is missing"}),
        (
            requests.Acknowledgement,
            {"sequence": 3.0},
            {"body/sequence": "Expected `int`, got `float`"},
        ),
        (
            requests.Acknowledgement,
            {"sequence": True},
            {"body/sequence": "Expected `int`, got `bool`"},
        ),
        (requests.Acknowledgement, {"sequence": -1}, {"body/sequence": "Expected `int` >= 0"}),
        (requests.Adaptive, {"step": "0.1"}, {"body/step": "Expected `float`, got `str`"}),
        (requests.Numbers, {"numbers": [1, -1]}, {"body/numbers/1": "Expected `int` >= 0"}),
        (
            requests.PublicationChange,
            {"ttl": -1, "filter": 3, "regions": {"a": {"x": {"lo": 3}}, "b": 3}},
            {
                "body/regions/a/x/lo": "there is no such field",
                "body/regions/b": "Expected `object | null`, got `int`",
                "body/filter": "Expected `str | null`, got `int`",
                "body/ttl": "Expected `float` > 0.0",
            },
        ),
        (
            requests.Wanted,
            {"feed": "x", "regions": {}},
            {"body/regions": "Expected `object` of length >= 1"},
        ),
        (
            requests.Wanted,
            {"feed": "x", "region": {"x": [1]}},
            {"body/region/x": "Expected `array` of length >= 2"},
        ),
    ],
)
def test_what_is_wrong_is_said_where_it_is(kind: Any, value: Any, told: dict[str, str]) -> None:
    assert found(kind, value) == told
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(value, kind)


def test_what_is_right_has_no_faults() -> None:
    region = {"x": {"low": 1, "high_open": True}, "y": [None, 2], "z": "a"}
    asked = {"feed": "f", "regions": {"r": region}, "ttl": 3}
    assert not found(requests.Wanted, asked)
    read = msgspec.convert(asked, requests.Wanted)
    assert msgspec.to_builtins(read.regions) == {"r": region}  # and nothing that was not said


def test_of_a_million_faults_only_as_many_are_looked_for_as_are_wanted() -> None:
    looked = 0

    class Counted(list[Any]):
        def __iter__(self) -> Any:
            nonlocal looked
            for one in super().__iter__():
                looked += 1
                yield one

    first = list(islice(faults({"numbers": Counted(["x"] * 1_000)}, requests.Numbers), 3))
    assert [one.place for one in first] == [f"body/numbers/{place}" for place in range(3)]
    assert looked < 10


@pytest.mark.parametrize("kind", ["events", "state"])
@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_a_notification_is_written_as_it_is_stored_and_read_again(kind: Any, rate: float) -> None:
    body = b'{"price" :  1.50}'
    text = StoredNotification(3, "ticks", 1.5, ["a", "b"], body, kind, rate).to_json()
    assert body in text
    name = "event" if kind == "events" else "change"
    whole = {"sequence": 3, "feed": "ticks", "at": 1.5, "subscriptions": ["a", "b"], "rate": rate}
    assert json.loads(text) == {**whole, name: {"price": 1.5}}
    read = decode(text, responses.Notification)
    assert getattr(read, name) == read.body == {"price": 1.5}
    assert read.subscriptions == ("a", "b")
    assert encode(read) == text.replace(body, b'{"price":1.5}')


def test_stored_json_goes_out_as_it_is() -> None:
    page = responses.EventPage([responses.LoggedEvent(1, 0.5, stored(b'{"a" : 1}'))], 1, 9, 1)
    assert b'"event":{"a" : 1}}' in encode(page)


def test_names_are_used_once() -> None:
    """They are those of the schemas in the description of the API."""
    names = [
        one.__name__
        for module in (requests, responses, overview)
        for one in vars(module).values()
        if isinstance(one, type)
        and issubclass(one, msgspec.Struct)
        and one.__module__ == module.__name__
    ]
    assert len(set(names)) == len(names)
