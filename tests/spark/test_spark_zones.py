"""Times without a zone: local to the session, as in Spark SQL, which is the reference here."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from test_spark_match import pairs, subscriptions_of

import boxmatch as bm
from boxmatch.spark import build_index, match, match_function, read_version, register, rejected
from boxmatch.spark.pipeline.selectivity import measure_selectivities
from boxmatch.spark.zones import zone_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ZONE = "Europe/Zurich"
SCHEMA = bm.Schema(dict.fromkeys(("at", "local", "day"), "timestamp"))
SKIPPED = "2024-03-31 02:30:00"
"""A time that clocks skip. Spark compares such a local time as an instant or as it is written,
depending on how it optimizes a query, so no local time is compared with it here."""
MOMENTS = [
    "2024-07-01 12:00:00",
    "2024-01-01 00:00:00",
    SKIPPED,
    "2024-03-31 03:30:00",
    "2024-10-27 02:30:00",  # which they show twice
    "1850-06-01 00:00:00",  # before there were time zones
    "0100-03-31 02:30:00",
]
CONSTANTS = [
    *(f"TIMESTAMP '{moment}'" for moment in MOMENTS),
    "TIMESTAMP '2024-07-01 10:00:00Z'",
    "TIMESTAMP '2024-07-01T12:00:00.000001+02:00'",
    "DATE '2024-07-01'",
    "DATE '2024-01-01'",
]


@pytest.fixture
def zoned(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def events_of(spark: SparkSession) -> DataFrame:
    rows = " UNION ALL ".join(
        f"SELECT {number}L AS event_id, TIMESTAMP '{moment}' AS at, "
        f"TIMESTAMP_NTZ '{moment.replace(SKIPPED, '2024-03-31 01:30:00')}' AS local, "
        f"DATE '{moment[:10]}' AS day"
        for number, moment in enumerate(MOMENTS)
    )
    return spark.sql(rows).coalesce(1)


@pytest.mark.portable
def test_times_compare_as_in_spark(zoned: SparkSession, tmp_path: Path) -> None:
    events = events_of(zoned).cache()
    tests = [
        f"{name} {operator} {constant}"
        for name in SCHEMA.names
        for operator in ("=", "<", ">=")
        for constant in CONSTANTS
    ]
    tests += [f"{name} > '{moment}'" for name in ("at", "local") for moment in MOMENTS]
    tests = [test for test in tests if SKIPPED not in test or not test.startswith("local")]
    tests += [f"local BETWEEN '{MOMENTS[1]}' AND DATE '2024-07-02' OR day IN (DATE '2024-01-01')"]
    answers = events.selectExpr(
        "event_id", *(f"coalesce({test}, FALSE) AS t{n}" for n, test in enumerate(tests))
    ).collect()
    wanted = sorted(
        (row["event_id"], test) for row in answers for n, test in enumerate(tests) if row[f"t{n}"]
    )
    assert len(wanted) > 100
    path = tmp_path / "index"
    table = subscriptions_of(zoned, ((test, test) for test in tests))
    version = build_index(table, path, schema=SCHEMA)
    assert version.time_zone == ZONE
    assert rejected(zoned, path).collect() == []
    found = match(events, path, keep=["local", "day"])
    assert pairs(found) == wanted
    kept = {row["event_id"]: row for row in found.collect()}
    assert str(kept[0]["local"]) == MOMENTS[0]
    assert pairs(match(events, path, plan="sharded")) == wanted

    bounds = events.selectExpr(
        "CAST(event_id AS string) AS subscription_id",
        *(f"{name} AS {name}_{end}" for name in SCHEMA.names for end in ("low", "high")),
    )
    same = [(number, str(number)) for number in range(len(MOMENTS))]
    assert pairs(match(events, bounds, schema=SCHEMA)) == same

    # In SQL there is no such help, but a word on what to write.
    register(zoned)
    events.createOrReplaceTempView("zoned_ticks")
    call = f"boxmatch_pairs(TABLE(SELECT event_id, {{}} FROM zoned_ticks), '{path}')"
    casts = ", ".join(f"CAST({name} AS TIMESTAMP) AS {name}" for name in SCHEMA.names)
    assert pairs(zoned.sql(f"SELECT * FROM {call.format(casts)}")) == wanted
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    message = f"'local' is of type .* are in the time zone {ZONE}: write CAST.local AS TIMESTAMP"
    with pytest.raises(PySparkException, match=message):
        zoned.sql(f"SELECT * FROM {call.format('at, local, day')}").collect()
    with pytest.raises(PySparkException, match=message):
        events.select(match_function(path)(f.struct(*SCHEMA.names))).collect()


def test_an_index_keeps_its_zone(zoned: SparkSession, tmp_path: Path) -> None:
    table = subscriptions_of(zoned, [("noon", "at = '2024-07-01 12:00'"), ("far", "at > '9999'")])
    far = [("year", "at < TIMESTAMP '+12000-01-01 00:00:00'")]
    build_index(table.union(subscriptions_of(zoned, far)), tmp_path, schema=SCHEMA)
    told = {row["subscription_id"]: row["reason"] for row in rejected(zoned, tmp_path).collect()}
    assert "outside the years 1 to 9999: its time in Europe/Zurich is not known" in told["year"]
    assert "is not a timestamp" in told["far"]
    events = events_of(zoned)
    events = zoned.createDataFrame(events.collect(), events.schema)  # as instants
    zoned.conf.set("spark.sql.session.timeZone", "America/New_York")
    assert pairs(match(events, tmp_path)) == [(0, "noon")]
    assert build_index(table, tmp_path, schema=SCHEMA).time_zone == "America/New_York"
    assert pairs(match(events, tmp_path)) == []
    assert pairs(match(events, read_version(tmp_path, 1))) == [(0, "noon")]
    zoned.conf.set("spark.sql.session.timeZone", "PST")
    with pytest.raises(bm.SparkError, match="Python knows no time zone 'PST'"):
        build_index(table, tmp_path, schema=SCHEMA)


def test_selectivities_of_local_times(zoned: SparkSession) -> None:
    noon = zoned.sql(f"SELECT 1 AS event_id, TIMESTAMP '{MOMENTS[0]}' AS at")
    at = bm.Schema({"at": "timestamp"})
    for table in (
        subscriptions_of(zoned, [("a", f"at = '{MOMENTS[0]}'")]),
        zoned.sql(f"SELECT 'a' AS subscription_id, TIMESTAMP_NTZ '{MOMENTS[0]}' AS at"),
    ):
        (measured,) = measure_selectivities(noon, table, at).attributes
        assert measured.selectivity == 1.0


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        ("UTC", None), ("Z", None), ("+00:00", None), ("GMT", None),
        ("+02:00", timezone(timedelta(hours=2))),
        ("-2", timezone(timedelta(hours=-2))),
        ("GMT+1", timezone(timedelta(hours=1))),
        ("UTC-01:30", timezone(timedelta(hours=-1, minutes=-30))),
        ("+02:00:30", timezone(timedelta(hours=2, seconds=30))),
        ("Europe/Zurich", ZoneInfo("Europe/Zurich")),
    ],
)  # fmt: skip
def test_names_of_zones(name: str, zone: object) -> None:
    assert zone_of(name) == zone
