"""Columns of CloudEvents, compared with what the broker reads of the same texts."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from boxmatch import Matcher, Schema
from boxmatch.errors import BoxmatchError, SparkError
from boxmatch.spark import cloudevents, match
from boxmatch.wire.cloudevent_bodies import read_cloudevents
from boxmatch.wire.http import CLOUDEVENT
from boxmatch.wire.problems import Problem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENT = {"specversion": "1.0", "id": "1", "source": "/sensors/7", "type": "reading"}
SCHEMA = Schema(
    {
        "type": "string",
        "time": "timestamp",
        "priority": "int",
        "urgent": "bool",
        "data.temperature": "float",
        "data.count": "int",
        "data.at.place": "string",
        "data.tags": "list of string",
        "data.parts": {
            "type": "list of struct",
            "fields": {"cost": "decimal(10, 2)", "kind.of": "string"},
        },
    }
)

SOUND: list[dict[str, Any]] = [
    {},
    {"data": {"temperature": 31.5, "count": 3, "more": [1, {"a": None}]}},
    {"data": {"temperature": 31, "at": {"place": "ä"}, "tags": ["a", "b"]}},
    {"data": {"parts": [{"cost": 1.25, "kind": {"of": "x"}}, {}]}},
    {"data": {"temperature": None, "tags": None, "at": None}},
    {"data": {}},
    {"data": None},
    {"time": "2026-03-01T09:30:00Z", "priority": 3, "urgent": True, "trace": "x", "number": 5},
    {"time": "2026-03-01T09:30:00.123456+01:00", "priority": "-3", "urgent": "false"},
    {"time": None, "priority": None, "subject": None},
    {"datacontenttype": "application/json; charset=utf-8", "data": {"count": 1}},
    {"datacontenttype": "image/png", "data_base64": "/wA="},
    {"data_base64": "e30="},
]
UNSOUND: list[dict[str, Any]] = [
    {"specversion": "0.3"},
    {"specversion": None},
    {"id": None},
    {"source": ""},
    {"type": ""},
    {"time": "2026-03-01T09:30:00"},
    {"time": "2026-02-29T09:30:00Z"},
    {"time": "soon"},
    {"priority": "high"},
    {"priority": 1.5},
    {"priority": " 5"},
    {"urgent": "yes"},
    {"urgent": 1},
    {"data": {"temperature": "hot"}},
    {"data": {"temperature": {"celsius": 1}}},
    {"data": {"count": 2.5}},
    {"data": {"count": "3"}},
    {"data": {"tags": "a"}},
    {"data": {"tags": [["a"]], "count": 1.5}},
    {"data": "text"},
    {"data": [1]},
    {"data": {"count": 1}, "data_base64": "e30="},
]
NO_JSON = ["", "{", "[]", "null", "5", '{"id": NaN}', json.dumps([EVENT]), "text"]


def texts(spark: SparkSession, events: list[Any]) -> DataFrame:
    rows = [
        (number, one if isinstance(one, str) else json.dumps(EVENT | one))
        for number, one in enumerate(events)
    ]
    return spark.createDataFrame([*rows, (len(rows), None)], "event_id long, value string")


def broker_takes(text: str) -> bool:
    try:
        read = read_cloudevents(text.encode(), [], CLOUDEVENT, SCHEMA, most=1)
        Matcher(SCHEMA).match_batch(read.rows)
    except (Problem, BoxmatchError):
        return False
    return True


@pytest.mark.portable
def test_what_is_no_cloudevent_is_null(spark: SparkSession) -> None:
    events = texts(spark, [*SOUND, *UNSOUND, *NO_JSON])
    read = events.select("event_id", "value", cloudevents("value", SCHEMA).alias("event"))
    for row in read.collect():
        if row["value"] is None:
            assert row["event"] is None
        else:
            assert broker_takes(row["value"]) == (row["event"] is not None), row["value"]
            assert (row["event_id"] < len(SOUND)) == (row["event"] is not None), row["value"]
    malformed = read.where("event IS NULL AND value IS NOT NULL")
    assert malformed.count() == len(UNSOUND) + len(NO_JSON)


@pytest.mark.portable
def test_values_have_the_types_of_the_schema(spark: SparkSession) -> None:
    event = EVENT | {
        "time": "2026-03-01T09:30:00.5+01:00", "priority": 7, "urgent": "true", "other": 1,
        "data": {
            "temperature": 3, "count": 4, "at": {"place": "x", "floor": 2}, "tags": ["a"],
            "parts": [{"cost": 1.25, "kind": {"of": "x"}}],
        },
    }  # fmt: skip
    read = (
        texts(spark, [event]).select(cloudevents("value", SCHEMA).alias("event")).select("event.*")
    )
    assert read.schema.simpleString() == (
        "struct<type:string,time:timestamp,priority:bigint,urgent:boolean,data:struct<"
        "temperature:double,count:bigint,at:struct<place:string>,tags:array<string>,"
        "parts:array<struct<cost:decimal(10,2),kind:struct<of:string>>>>>"
    )
    row = read.where("type IS NOT NULL").collect()[0].asDict(recursive=True)
    assert row.pop("time").astimezone(dt.UTC) == dt.datetime(2026, 3, 1, 8, 30, 0, 500_000, dt.UTC)
    assert row == {
        "type": "reading",
        "priority": 7,
        "urgent": True,
        "data": {
            "temperature": 3.0,
            "count": 4,
            "at": {"place": "x"},
            "tags": ["a"],
            "parts": [{"cost": Decimal("1.25"), "kind": {"of": "x"}}],
        },
    }


@pytest.mark.portable
def test_they_are_matched_as_by_the_broker(spark: SparkSession) -> None:
    filters = {
        "hot": "data.temperature > 30",
        "tagged": "'a' = ANY(data.tags)",
        "urgent": "urgent AND priority = 3",
        "early": "time < TIMESTAMP '2026-03-01 09:00:00+00:00'",
        "parts": "EXISTS(data.parts, p -> p.cost > 1 AND p.kind.of = 'x')",
        "any": "type = 'reading'",
    }
    matcher = Matcher(SCHEMA)
    for id, filter in filters.items():
        matcher.subscribe(id, filter)
    expected = {
        (number, id)
        for number, event in enumerate(SOUND)
        for id in matcher.match(
            read_cloudevents(
                json.dumps(EVENT | event).encode(), [], CLOUDEVENT, SCHEMA, most=1
            ).rows[0]
        )
    }
    assert {id for _, id in expected} == set(filters)
    events = texts(spark, [*SOUND, *UNSOUND]).select(
        "event_id", cloudevents("value", SCHEMA).alias("event")
    )
    subscriptions = spark.createDataFrame(
        list(filters.items()), "subscription_id string, filter string"
    )
    found = match(events.select("event_id", "event.*"), subscriptions)
    assert {(row["event_id"], row["subscription_id"]) for row in found.collect()} == expected


def test_data_that_is_one_value(spark: SparkSession) -> None:
    schema = {"id": "string", "data": "string"}
    events = texts(spark, [{"data": "text"}, {"data": {"a": 1}}, {"id": "2"}])
    read = events.select(cloudevents(events["value"], schema).alias("event")).select("event.*")
    assert [tuple(row) for row in read.collect()] == [
        ("1", "text"), ("1", '{"a":1}'), ("2", None), (None, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"pos.lat": "float"}, "'pos.lat' is not in a CloudEvent"),
        ({"Type": "string"}, "'Type' is not in a CloudEvent"),
        ({"data": "json"}, "'data' is of type json"),
        ({"my_ext": "string"}, "'my_ext' is not in a CloudEvent"),
        ({"tags": "list of string"}, "'tags' is a list"),
        ({"data": "string", "data.a": "int"}, "'data' cannot be a value and have fields"),
    ],
)
def test_schemas_of_no_cloudevent(spark: SparkSession, schema: Any, said: str) -> None:
    with pytest.raises(SparkError, match=said):
        cloudevents("value", schema)
