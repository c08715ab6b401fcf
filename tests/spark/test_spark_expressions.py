"""Expressions have the values and the decimal types that Spark SQL gives them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from spark_expressions import ddl, spark_sql  # in this folder

from boxmatch.model.expressions import temporal
from boxmatch.model.expressions.functions import call
from boxmatch.model.expressions.nodes import (
    STRING,
    TIMESTAMP,
    Call,
    Column,
    Literal,
    Node,
    columns_of,
    walk,
)
from boxmatch.model.expressions.scalar import compile_scalar
from expression_examples import COLUMNS, KINDS, TIMES, ZONES, Examples, events
from property_examples import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

RAISED = "raised"


def is_compared(node: Node) -> bool:
    """Whether Spark is expected to agree about all of a tree."""
    if not isinstance(node, Call):
        return False
    calls = [one for one in walk(node) if isinstance(one, Call)]
    return not any(
        # Spark rounds these to 34 digits.
        (one.function in ("neg", "abs") and one.type.name == "decimal" and one.type.precision > 34)
        # The zone is the session's; see the test of zones.
        or (one.function == "date_trunc" and len(one.arguments) == 3)
        # The last digits are those of Java's own function.
        or (one.function == "power" and one is not node)
        for one in calls
    )


def some_expressions(random: Random, count: int) -> list[Node]:
    made: list[Node] = []
    maker = Examples(random, wide=False)
    while len(made) < count:
        node = maker.expression(random.choice(KINDS), random.choice((1, 1, 2, 3)))
        made += [node] if is_compared(node) else []
    return made


def create_view(spark: SparkSession, rows: list[dict[str, Any]]) -> None:
    times = [name for name, type in COLUMNS.items() if type == TIMESTAMP]
    declared = ", ".join(
        f"{name} {'BIGINT' if name in times else ddl(type)}" for name, type in COLUMNS.items()
    )
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], declared)
    columns = (f"timestamp_micros({n}) AS {n}" if n in times else n for n in COLUMNS)
    frame.selectExpr(*columns).createOrReplaceTempView("expression_events")


def by_spark(spark: SparkSession, nodes: list[Node]) -> list[Any]:
    """The type and the values of each, by one query; those that raise are found by halving."""
    texts = [
        f"unix_micros({spark_sql(node)})" if node.type == TIMESTAMP else spark_sql(node)
        for node in nodes
    ]
    listed = ", ".join(f"{text} AS c{place}" for place, text in enumerate(texts))
    try:
        frame = spark.sql(f"SELECT {listed} FROM expression_events")
        found = frame.collect()
    except Exception:
        if len(nodes) == 1:
            return [RAISED]
        half = len(nodes) // 2
        return by_spark(spark, nodes[:half]) + by_spark(spark, nodes[half:])
    types = [field.dataType.simpleString() for field in frame.schema]
    return [(type, [row[place] for row in found]) for place, type in enumerate(types)]


def differences(nodes: list[Node], results: list[Any], rows: list[dict]) -> Iterator[str]:
    for node, result in zip(nodes, results, strict=True):
        if result == RAISED:
            continue
        type, values = result
        run = compile_scalar(node)
        ours = [run(row) for row in rows]
        if isinstance(node, Call) and node.function == "power":
            values = [one if one is None else pytest.approx(one, rel=1e-14) for one in values]
        if node.type.name == "decimal" and type != str(node.type).replace(" ", ""):
            yield f"{spark_sql(node)} is a {node.type}, in Spark a {type}"
        for row, one, other in zip(rows, ours, values, strict=True):
            used = {name: row[name] for name in columns_of(node)}
            if one != other:
                yield f"{spark_sql(node)} is {one!r}, in Spark {other!r}, for {used}"


@pytest.mark.parametrize("seed", range(examples(8)))
def test_generated_expressions(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    rows = events(random, 10, wide=False)
    nodes = some_expressions(random, 160)
    create_view(spark, rows)
    results = [one for at in range(0, 160, 40) for one in by_spark(spark, nodes[at : at + 40])]
    assert list(differences(nodes, results, rows))[:3] == []
    assert results.count(RAISED) < 16


@pytest.mark.parametrize("zone", [*ZONES, "America/Sao_Paulo", "Africa/Cairo"])
def test_zones(spark: SparkSession, zone: str) -> None:
    """Around changes of clocks in the zones, of which Brazil's and Egypt's are at midnight."""
    changes = (*TIMES[1:], 1_289_703_600_000_000, 1_541_300_400_000_000, 1_714_082_400_000_000)
    shifts = (-5_400_000_000, -1, 0, 1_799_000_000, 12_345_678_900)
    times = [time + shift for time in changes for shift in shifts if abs(time) < 2**57]
    column, name = Column("t", TIMESTAMP), Literal(zone, STRING)
    nodes = [call(part, column, name) for part in temporal.PARTS]
    nodes += [call("date_trunc", Literal(unit, STRING), column, name) for unit in temporal.UNITS]
    frame = spark.createDataFrame([(time,) for time in times], "micros BIGINT")
    frame.selectExpr("timestamp_micros(micros) AS t").createOrReplaceTempView("expression_events")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        texts = [f"{'weekofyear' if part == 'week' else part}(t)" for part in temporal.PARTS]
        texts += [f"unix_micros(date_trunc('{unit}', t))" for unit in temporal.UNITS]
        found = spark.sql(f"SELECT {', '.join(texts)} FROM expression_events").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    runs = [compile_scalar(node) for node in nodes]
    ours = [[run({"t": time}) for run in runs] for time in times]
    wrong = [
        (time, text, one, other)
        for time, mine, row in zip(times, ours, found, strict=True)
        for text, one, other in zip(texts, mine, row, strict=True)
        if one != other
    ]
    assert wrong[:5] == []
