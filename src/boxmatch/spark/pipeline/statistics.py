"""Statistics: matches by subscription and by event, and how long they took."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from boxmatch.model.schema import Schema
from boxmatch.spark.columns import column
from boxmatch.spark.subscription_tables import subscription_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LATENCY_SHARES: Final = (0.5, 0.95, 0.99)


def select_filters(
    subscriptions: DataFrame, schema: Schema, subscription_id: str, filter: str
) -> DataFrame:
    """Each subscription's id and its `filter` as text; bounds in columns are shown as JSON."""
    from pyspark.sql import functions as f

    _, wanted = subscription_columns(subscriptions, schema, subscription_id, filter)
    bounds = f.to_json(f.struct(*map(column, wanted.values())))
    text = column(filter) if filter in subscriptions.columns else bounds
    return subscriptions.select(column(subscription_id), text.alias("filter"))


def matches_per_subscription(
    matches: DataFrame,
    subscriptions: DataFrame,
    *,
    subscription_id: str = "subscription_id",
    events: int,
) -> DataFrame:
    """The subscriptions with two more columns: `matches`, 0 included, and the `share` of events."""
    from pyspark.sql import functions as f

    counted = matches.groupBy(column(subscription_id)).agg(f.count(f.lit(1)).alias("matches"))
    joined = subscriptions.join(counted, on=subscription_id, how="left")
    found = f.coalesce(f.col("matches"), f.lit(0))
    return joined.withColumn("matches", found).withColumn("share", found / f.lit(max(1, events)))


def matches_per_event(
    matches: DataFrame, events: DataFrame, *, event_id: str = "event_id"
) -> DataFrame:
    """How many events have how many matches: rows `matches`, 0 included, and `events`.

    Events with the same id count as one.
    """
    from pyspark.sql import functions as f

    one = f.count(f.lit(1))
    per_event = matches.groupBy(column(event_id)).agg(one.alias("matches"))
    everyone = events.select(column(event_id)).distinct().join(per_event, on=event_id, how="left")
    return (
        everyone.select(f.coalesce(f.col("matches"), f.lit(0)).alias("matches"))
        .groupBy("matches")
        .agg(one.alias("events"))
    )


def dead_subscriptions(per_subscription: DataFrame) -> DataFrame:
    """Those that matched nothing."""
    from pyspark.sql import functions as f

    return per_subscription.where(f.col("matches") == 0)


def too_broad_subscriptions(per_subscription: DataFrame, share: float) -> DataFrame:
    """Those that matched more than a share of the events."""
    from pyspark.sql import functions as f

    return per_subscription.where(f.col("share") > share)


def latency(events: DataFrame, event_time: str, *, processed: datetime) -> dict[str, float] | None:
    """Seconds from the time of events to when they were processed; None without events.

    Shares of the events took at most so long; they are good to a thousandth of the events.
    """
    from pyspark.sql import functions as f

    time = f.unix_micros(column(event_time))
    shares = [1 - share for share in LATENCY_SHARES]
    row = events.agg(
        f.min(time).alias("first"),
        f.max(time).alias("last"),
        f.percentile_approx(time, shares, 1000).alias("at"),
    ).collect()[0]
    if row["first"] is None:
        return None

    def since(micros: int) -> float:
        return round(processed.timestamp() - micros / 1e6, 3)

    found = {"least": since(row["last"])}
    for share, at in zip(LATENCY_SHARES, row["at"], strict=True):
        found[f"p{share * 100:g}"] = since(at)
    return {**found, "most": since(row["first"])}


def power_buckets(counts: DataFrame, value: str, weight: str | None = None) -> list[dict[str, Any]]:
    """A histogram that stays small: 0, 1, 2–3, 4–7, … with how many rows have such a value.

    `weight` names a column with the number that a row stands for.
    """
    from pyspark.sql import functions as f

    # Counted in binary digits: a logarithm may fall just short of a power of two.
    size = f.when(f.col(value) > 0, f.length(f.bin(value))).otherwise(f.lit(0))
    number = f.count(f.lit(1)) if weight is None else f.sum(weight)
    rows = counts.groupBy(size.alias("size")).agg(number.alias("number")).collect()
    found = {row["size"]: row["number"] for row in rows}
    return [
        {
            "from": (1 << size) >> 1,
            "to": max(0, (1 << size) - 1),
            "number": int(found.get(size, 0)),
        }
        for size in range(max(found, default=-1) + 1)
    ]
