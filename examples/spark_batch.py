"""A batch job on Spark: files of trades against a file of alerts.

Builds an index from the alerts, shows which of them are invalid, matches all trades, and writes the
matches as Parquet. On a cluster, `run` stays the same: only the session differs.

Run it with `python spark_batch.py`, or `python spark_batch.py FOLDER` to keep the files. It needs
Boxmatch with the extra `spark`, and Java 17 or later.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import boxmatch as bm
from boxmatch.spark import build_index, local_session, match, rejected

SCHEMA = bm.Schema({"symbol": "string", "price": "float", "volume": "int"})

ALERTS = """\
subscription_id,filter
alice,symbol = 'IBM' AND price BETWEEN 20 AND 30
bob,price > 100 OR volume >= 5000
carol,symbol LIKE 'SA%'
dave,prize > 3
"""
TRADES = {
    "monday.csv": "event_id,symbol,price,volume\n1,IBM,24.5,100\n2,SAP,120.0,300\n",
    "tuesday.csv": "event_id,symbol,price,volume\n3,IBM,99.0,9000\n4,KO,60.0,10\n",
}


def write_files(folder: Path) -> None:
    (folder / "trades").mkdir(parents=True, exist_ok=True)
    (folder / "alerts.csv").write_text(ALERTS)
    for name, text in TRADES.items():
        (folder / "trades" / name).write_text(text)


def run(spark: SparkSession, folder: str) -> None:
    alerts = spark.read.csv(f"{folder}/alerts.csv", header=True)
    index = build_index(alerts, f"{folder}/index", schema=SCHEMA)
    print(f"{index.subscriptions} alerts in the index, {index.rejected} refused:")
    rejected(spark, f"{folder}/index").show(truncate=False)

    columns = "event_id long, symbol string, price double, volume long"
    trades = spark.read.csv(f"{folder}/trades", header=True, schema=columns)
    matches = match(trades, f"{folder}/index", keep=["symbol", "price"])
    matches.write.mode("overwrite").parquet(f"{folder}/matches")

    written = spark.read.parquet(f"{folder}/matches")
    written.orderBy("event_id", "subscription_id").show()
    written.groupBy("subscription_id").agg(f.count("*").alias("trades")).orderBy(
        "subscription_id"
    ).show()


def main() -> None:
    with TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if sys.argv[1:] else temporary)
        write_files(folder)
        spark = local_session("local[2]")
        run(spark, str(folder))
        spark.stop()


if __name__ == "__main__":
    main()
