"""Write synthetic ticks as Parquet, and build an index of synthetic alerts."""

from boxmatch.spark import build_index, local_session
from boxmatch.spark.workloads import events, subscriptions
from boxmatch.workloads import MarketWorkload

market = MarketWorkload(symbols=200)
spark = local_session("local[2]")
events(spark, market, 5_000).write.mode("overwrite").parquet("data/ticks")
alerts = subscriptions(spark, market, 2_000, form="filters")
print(build_index(alerts, "data/index", schema=market.schema))
spark.stop()
