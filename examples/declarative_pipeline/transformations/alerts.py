"""Three tables: the ticks, their matches, and the alerts that match most."""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from boxmatch.spark import register

data = Path(__file__).parent.parent / "data"
spark = SparkSession.active()
register(spark, subscription_id="bigint")


@dp.materialized_view
def ticks() -> DataFrame:
    return spark.read.parquet(str(data / "ticks"))


@dp.materialized_view
def matches() -> DataFrame:
    return spark.sql(f"SELECT * FROM boxmatch_pairs(TABLE(ticks), '{data / 'index'}')")


@dp.materialized_view
def busiest() -> DataFrame:
    counted = spark.read.table("matches").groupBy("subscription_id").count()
    return counted.orderBy(f.desc("count"), "subscription_id").limit(10)
