"""Tasks that fail, and tasks that run twice: no match is lost, and none comes twice.

On one machine a failed task fails the job, which is run again; executors of their own try the task
again, and start a second attempt of one that takes long.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boxmatch as bm
from boxmatch.spark import build_index, match, read_version

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = bm.Schema({"price": "int"})
EVENTS, SUBSCRIPTIONS = 400, 200
TWICE = os.environ.get("BOXMATCH_TEST_SPARK") == "local-cluster"
"""Does this Spark start a second attempt of a task that takes long?"""


def trouble(
    flag: Path, kind: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows as they come, but the first task to get here fails after some of them, or takes long."""
    path = str(flag)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import time

        for batch in batches:
            yield batch
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            if kind == "failure":
                raise OSError("the disk is full")
            time.sleep(2)

    return run


def troubled(frame: DataFrame, flag: Path, kind: str) -> DataFrame:
    return frame.mapInArrow(trouble(flag, kind), frame.schema)


def insist(work: Callable[[], Any]) -> Any:
    from pyspark.errors import PySparkException

    try:
        return work()
    except PySparkException as error:
        if "the disk is full" not in str(error):
            raise
        return work()


@pytest.mark.portable
@pytest.mark.parametrize("kind", ["failure", "delay"] if TWICE else ["failure"])
def test_attempts(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    events = spark.range(EVENTS, numPartitions=4).selectExpr("id AS event_id", "id % 50 AS price")
    subscriptions = spark.range(SUBSCRIPTIONS, numPartitions=4).selectExpr(
        "id AS subscription_id", "'price = ' || (id % 60) AS filter"
    )
    index = tmp_path / "index"
    slow = troubled(subscriptions, tmp_path / "build", kind)
    insist(lambda: build_index(slow, index, schema=SCHEMA, shards=2))
    assert (tmp_path / "build").exists()
    assert read_version(index).subscriptions == SUBSCRIPTIONS
    expected = sorted(
        (event, subscription)
        for event in range(EVENTS)
        for subscription in range(SUBSCRIPTIONS)
        if event % 50 == subscription % 60
    )
    for plan in ("replicated", "sharded"):
        out = str(tmp_path / plan)
        arriving = troubled(events, tmp_path / f"match {plan}", kind)
        after = troubled(match(arriving, index, plan=plan), tmp_path / f"write {plan}", kind)
        write = partial(after.write.mode("overwrite").parquet, out)
        insist(partial(insist, write))  # there are two troubles on the way
        assert (tmp_path / f"write {plan}").exists()
        assert sorted(map(tuple, spark.read.parquet(out).collect())) == expected
