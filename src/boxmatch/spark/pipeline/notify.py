"""Notify: what an index left out, and the notifications that its matches become."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Final

from boxmatch.errors import SparkError
from boxmatch.spark.columns import column, quote, require_columns
from boxmatch.spark.pipeline.clean import MALFORMED_ROW, Cleaned
from boxmatch.spark.versions import IndexVersion, rejected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DATES: Final = ("date", "event_date", "notification_date")
"""What the column that notifications are partitioned by may be called."""


def rejections(
    index: IndexVersion,
    cleaned: Cleaned,
    *,
    subscription_id: str = "subscription_id",
    filter: str = "filter",
) -> DataFrame:
    """All that were left out, when cleaning or compiling: id and `filter` as text, and `reason`."""
    from pyspark.sql import functions as f

    text = column("row")
    if filter in cleaned.good.columns:
        own = f.get_json_object("row", f"$['{filter}']")
        text = f.when(column("reason") == MALFORMED_ROW, text).otherwise(own)
    before = cleaned.quarantined.select(
        column(subscription_id).alias("subscription_id"), text.alias("filter"), "reason"
    )
    return before.unionByName(rejected(cleaned.good.sparkSession, index.path, index.version))


def drop_rejected(
    subscriptions: DataFrame, index: IndexVersion, *, subscription_id: str = "subscription_id"
) -> DataFrame:
    """The clean subscriptions whose filters were understood."""
    if not index.rejected:
        return subscriptions
    bad = rejected(subscriptions.sparkSession, index.path, index.version)
    same = subscriptions[quote(subscription_id)].cast("string") == bad["subscription_id"]
    return subscriptions.join(bad, on=same, how="left_anti")


def notifications(
    matches: DataFrame,
    events: DataFrame | None = None,
    *,
    event_id: str = "event_id",
    subscription_id: str = "subscription_id",
    event_time: str | None = None,
    columns: Sequence[str] | None = None,
    on: date | None = None,
) -> DataFrame:
    """A row for each match: the subscription, the event, its columns and the date.

    The columns of the event come with the matches (see `keep` of `boxmatch.spark.match`), or from
    `events`, which are then joined by their id: it must be unique. `columns` says which, all of
    them if left out. The date is that of `event_time` in the time zone of the session, or `on`
    where there is no such column.
    """
    from pyspark.sql import functions as f

    if events is not None:
        pairs = matches.select(column(event_id), column(subscription_id))
        matches = pairs.join(events, on=event_id, how="inner")
    shown = [name for name in matches.columns if name not in (event_id, subscription_id)]
    if columns is not None:
        require_columns(matches, columns, "events")
        shown = [name for name in shown if name in columns]
    if event_time is not None:
        require_columns(matches, [event_time], "events")
        day = f.to_date(column(event_time))
        shown = [event_time, *(name for name in shown if name != event_time)]
    elif on is not None:
        day = f.lit(on)
    else:
        raise SparkError("notifications need a date: name an event_time, or say which with `on`")
    own = (event_id, subscription_id, *shown)
    return matches.select(*map(column, own), day.alias(date_column(own)))


def date_column(columns: Sequence[str]) -> str:
    """The column of the date: `date`, or another name if the notifications have such a column."""
    taken = {name.lower() for name in columns}
    free = [name for name in _DATES if name not in taken]
    if not free:
        raise SparkError(
            f"the notifications have columns {', '.join(_DATES)}, one of which must be free for "
            "their date: leave one out of output.columns"
        )
    return free[0]
