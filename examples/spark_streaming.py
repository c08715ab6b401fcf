"""A streaming job on Spark: trades arrive as files, and alerts change while the job runs.

Every micro-batch matches the new trades against the current alerts. Matches are written to a folder
of Parquet files exactly once, even if the job is stopped or killed and started again.

Run it with `python spark_streaming.py`, or `python spark_streaming.py FOLDER` to keep the files. It
needs Boxmatch with the extra `spark`, and Java 17 or later.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from boxmatch.spark import local_session, match_stream

COLUMNS = "event_id long, symbol string, price double, volume long"


def start(spark: SparkSession, folder: str) -> StreamingQuery:
    """The job itself, which would run for months."""
    return match_stream(
        spark.readStream.csv(f"{folder}/trades", header=True, schema=COLUMNS),
        f"{folder}/alerts",
        format="csv",
        options={"header": True},
        sink=f"{folder}/matches",
        checkpoint=f"{folder}/checkpoint",
        keep=["symbol", "price"],
        trigger={"processingTime": "100 milliseconds"},
    )


def add(folder: str, name: str, *rows: str) -> None:
    """Add an input file. It has a hidden name until it is complete."""
    path = Path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    hidden.write_text("\n".join(rows) + "\n")
    hidden.rename(path)


def run(spark: SparkSession, folder: str) -> None:
    header = "event_id,symbol,price,volume"
    add(folder, "alerts/first.csv", "subscription_id,filter", "alice,symbol = 'IBM' AND price < 30")
    add(folder, "trades/monday.csv", header, "1,IBM,24.5,100", "2,SAP,120.0,300")

    query = start(spark, folder)
    query.processAllAvailable()

    print("A new alert, while the job runs")
    add(folder, "alerts/second.csv", "subscription_id,filter", "bob,price > 100")
    add(folder, "trades/tuesday.csv", header, "3,SAP,121.0,50", "4,IBM,29.0,10")
    query.processAllAvailable()
    query.stop()

    print("More trades, while the job is stopped")
    add(folder, "trades/wednesday.csv", header, "5,SAP,119.0,700")
    query = start(spark, folder)
    query.processAllAvailable()
    query.stop()

    written = spark.read.parquet(f"{folder}/matches").orderBy("event_id", "subscription_id")
    written.select("event_id", "symbol", "price", "subscription_id", "index_version").show()


def main() -> None:
    with TemporaryDirectory() as temporary:
        spark = local_session("local[2]")
        run(spark, sys.argv[1] if sys.argv[1:] else temporary)
        spark.stop()


if __name__ == "__main__":
    main()
