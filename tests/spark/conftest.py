from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import quick_spark  # in this folder

from boxmatch.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND = os.environ.get("BOXMATCH_TEST_SPARK", "local")
"""The kind of Spark that tests run on: local, connect or local-cluster."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ.update(quick_spark.variables())  # before Spark starts a process
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        **quick_spark.SETTINGS,
    }
    if KIND == "connect":
        session = local_session("local[2]", connect=True, conf=conf)
    else:
        master = {"local": "local[2]", "local-cluster": "local-cluster[2,1,1024]"}[KIND]
        if KIND == "local-cluster":  # where tasks can run twice, let them
            conf |= {
                "spark.speculation": "true",
                "spark.speculation.quantile": "0.4",
                "spark.speculation.multiplier": "1.2",
                "spark.speculation.interval": "50ms",
            }
        session = local_session(master, conf=conf)
    yield session
    session.stop()
