"""A Spark session on this machine that works as it is."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from boxmatch.errors import SparkError
from boxmatch.extras import requires

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_session(
    master: str = "local[*]",
    *,
    name: str = "boxmatch",
    connect: bool = False,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session that is running, or a local one.

    Workers run the Python that this process runs, timestamps are in UTC, and shuffles make as many
    parts as there are cores. `conf` goes before these defaults. With `connect` a local Spark
    Connect server is started and the session talks to that. On a cluster make the session
    yourself: everything in `boxmatch.spark` takes DataFrames and asks for no particular session.
    """
    with requires("spark", "a Spark session"):
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
        **(conf or {}),
    }
    builder = SparkSession.builder.appName(name)
    builder = builder.remote(master) if connect else builder.master(master)
    for key, value in settings.items():
        if connect and not key.startswith("spark.sql."):
            continue  # belongs to the server, which is not ours to change
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _cores(master: str) -> int:
    """Tasks that can run at once, by a master such as `local[4]` or `local-cluster[2,1,1024]`."""
    kind, _, inside = master.rstrip("]").partition("[")
    numbers = [int(part) for part in inside.split(",") if part.strip().isdigit()]
    if kind == "local-cluster" and len(numbers) == 3:
        return numbers[0] * numbers[1]
    return numbers[0] if numbers else os.cpu_count() or 1
