"""Three tables: the ticks, their matches, and the alerts that match most."""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from boxmatch.spark import match_function, read_version

data = Path(__file__).parent.parent / "data"
index = read_version(data / "index")
wanted_by = match_function(index)
spark = SparkSession.active()


@dp.materialized_view
def ticks() -> DataFrame:
    return spark.read.parquet(str(data / "ticks"))


@dp.materialized_view
def matches() -> DataFrame:
    event = f.struct(*index.schema.names)
    return spark.read.table("ticks").select(
        "event_id", "at", f.explode(wanted_by(event)).alias("subscription_id")
    )


@dp.materialized_view
def busiest() -> DataFrame:
    counted = spark.read.table("matches").groupBy("subscription_id").count()
    return counted.orderBy(f.desc("count"), "subscription_id").limit(10)
