"""Make an archive of the Java classes that Spark loads, with which it starts in half the time.

`make test` calls it once: python tests/spark/class_archive.py .venv/spark.jsa
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path


def use_spark(archive: Path, folder: str) -> None:
    """Load the classes that most tests need, and wait until Java has written the archive."""
    import pyarrow as pa

    from boxmatch.spark import local_session

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={archive}"
    conf = {
        "spark.driver.extraJavaOptions": f"{options} -Xlog:disable",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    spark = local_session("local[2]", conf=conf)
    events = spark.range(100).selectExpr("id", "cast(id AS double) AS x", "cast(id AS string) AS s")
    events.write.parquet(f"{folder}/events")
    read = spark.read.schema(events.schema)
    mapped = read.parquet(f"{folder}/events").mapInArrow(same, events.schema)
    mapped.join(spark.range(10), "id").groupBy("s").count().orderBy("s").collect()
    stream = spark.readStream.schema(events.schema).parquet(f"{folder}/events")
    written = stream.writeStream.trigger(availableNow=True).format("parquet")
    written = written.option("checkpointLocation", f"{folder}/checkpoint")
    written.start(f"{folder}/out").awaitTermination()
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # of a session in this process
    spark.stop()
    java.stdin.close()
    java.wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        use_spark(Path(sys.argv[1]).absolute(), folder)
