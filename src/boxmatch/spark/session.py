"""Which Spark there must be, and a session on this machine that works as it is."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from boxmatch.errors import SparkError
from boxmatch.extras import requires

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_OLDEST = (4, 2)
"""`repartitionById` and `arrow_udf` came with 4.1, streams of data sources that can be limited (the
broker as a source) with 4.2."""


_UNLIMITED = str(2**31 - 1)
"""With any other limit on the bytes of an Arrow batch, Spark adds up the sizes of all columns
after every row, which takes longer than writing the row. Batches still have at most 10,000 rows."""


_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""The default one asks for links of every file of a checkpoint, and for a local file Hadoop starts
a process `readlink` to answer: 24 of them for each micro-batch."""


def require_spark() -> None:
    """Raise an error unless PySpark is installed, and new enough."""
    with requires("spark", "a Spark session"):
        import pyspark
    found = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if found < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise SparkError(
            f"boxmatch needs PySpark {oldest} or later, and this is {pyspark.__version__}: "
            f"pip install 'pyspark>={oldest}'"
        )
    if "SPARK_LOCAL_REMOTE" in os.environ:  # set by PySpark while such a server runs
        _warn_of_other_python()


@cache
def _warn_of_other_python() -> None:
    """Say so if workers of a local Spark Connect server run another Python than this process.

    They often lack a package then, and Spark's error does not say what to do.
    """
    given = os.environ.get("PYSPARK_PYTHON") or os.environ.get("PYSPARK_DRIVER_PYTHON")
    found = shutil.which(given or "python3")
    if found is None or Path(found).parent != Path(sys.executable).parent:
        log.warning(
            "workers of this Spark Connect server run %s (%s), not %s: if they lack packages, set "
            "PYSPARK_PYTHON before the session starts, or use boxmatch.spark.local_session",
            found or "no Python",
            f"PYSPARK_PYTHON is {given}" if given else "PYSPARK_PYTHON is not set",
            sys.executable,
        )


def local_session(
    master: str = "local[*]",
    *,
    name: str = "boxmatch",
    connect: bool = False,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session that is running, or a local one.

    Workers run the Python that this process runs, timestamps are in UTC, and shuffles make as many
    parts as there are cores. Workers are forked from a process that has the engine in memory
    already (`boxmatch.spark.daemon`), Spark does not measure each Arrow batch after every row, and
    checkpoints of streams start fewer processes. `conf` goes before these defaults. With `connect`
    a local Spark Connect server is started and the session talks to that. On a cluster make the
    session yourself: everything in `boxmatch.spark` takes DataFrames and asks for no particular
    session.
    """
    require_spark()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise SparkError(
            "Spark needs Java 17 or later, and there is none: install it (on Debian and Ubuntu: "
            "apt install openjdk-17-jre-headless), or set JAVA_HOME"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(_cores(master)),
        "spark.sql.execution.arrow.maxBytesPerBatch": _UNLIMITED,
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        **({"spark.python.daemon.module": "boxmatch.spark.daemon"} if _workers_have_us() else {}),
        **(conf or {}),
    }
    builder = SparkSession.builder.appName(name)
    builder = builder.remote(master) if connect else builder.master(master)
    for key, value in settings.items():
        if connect and not key.startswith("spark.sql."):
            continue  # belongs to the server, which is not ours to change
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _workers_have_us() -> bool:
    """Do workers surely run a Python that has this package?"""
    return os.environ.get("PYSPARK_PYTHON") == sys.executable


def _cores(master: str) -> int:
    """Tasks that can run at once, by a master such as `local[4]` or `local-cluster[2,1,1024]`."""
    kind, _, inside = master.rstrip("]").partition("[")
    numbers = [int(part) for part in inside.split(",") if part.strip().isdigit()]
    if kind == "local-cluster" and len(numbers) == 3:
        return numbers[0] * numbers[1]
    return numbers[0] if numbers else os.cpu_count() or 1
