"""Spark's daemon of Python workers, with the engine in memory before it forks any of them.

A worker that imports Numba and loads the kernels by itself needs one to two seconds of a core
before its first batch. Set `spark.python.daemon.module` to `boxmatch.spark.daemon` when the session
is made; `local_session` does. The Python of the workers must have this package.
"""

from __future__ import annotations

import gc
import os

import pyarrow as pa
from pyspark.daemon import manager

import boxmatch.spark.worker  # noqa: F401 - only to have it in memory
from boxmatch.engine.matcher import Matcher
from boxmatch.kernels.background import SWITCH
from boxmatch.model.schema import Schema


def load_kernels() -> None:
    """Use what workers will use, in this thread: others would not survive a fork."""
    matcher = Matcher(Schema({"name": "string", "value": "float"}))
    wanted = [{"id": n, "filter": f"name = 'a' AND value > {n}"} for n in range(100)]
    matcher.subscribe_many(pa.Table.from_pylist(wanted))
    events = pa.RecordBatch.from_pylist([{"name": "a", "value": 1.5}])
    matcher.match_batch(events, threads=1)
    matcher.count_batch(events, threads=1)


def serve() -> None:
    """Fork workers until Spark ends."""
    os.environ.setdefault(SWITCH, "0")  # a fork must not meet a thread that loads kernels
    load_kernels()
    gc.freeze()  # a worker collects garbage after every task: not of what it shares with all others
    manager()


if __name__ == "__main__":
    serve()
