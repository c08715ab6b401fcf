"""Notify: what subscribers are told, by date."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Final

from boxmatch.errors import SparkError
from boxmatch.spark.columns import column, require_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DATE: Final = "date"
"""The column that notifications are partitioned by."""


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
    """A row for each match: whom to tell, of which event, what happened and on which date.

    The columns of the event come with the matches (see `keep` of `boxmatch.spark.match`), or from
    `events`, which are then joined by their id: it must be unique. `columns` says which, all of
    them if left out. The date is that of `event_time` in the time zone of the session, or `on`
    where there is no such column.
    """
    from pyspark.sql import functions as f

    if events is not None:
        pairs = matches.select(column(event_id), column(subscription_id))
        matches = pairs.join(events, on=event_id, how="inner")
    told = [name for name in matches.columns if name not in (event_id, subscription_id)]
    if columns is not None:
        require_columns(matches, columns, "events")
        told = [name for name in told if name in columns]
    if event_time is not None:
        require_columns(matches, [event_time], "events")
        day = f.to_date(column(event_time))
        told = [event_time, *(name for name in told if name != event_time)]
    elif on is not None:
        day = f.lit(on)
    else:
        raise SparkError("notifications need a date: name an event_time, or say which with `on`")
    check_no_date(told)
    return matches.select(
        column(event_id), column(subscription_id), *map(column, told), day.alias(DATE)
    )


def check_no_date(columns: Sequence[str]) -> None:
    """Raise an error if a column of the events is in the way of the notifications' date."""
    if DATE in columns:
        raise SparkError(
            f"the events have a column {DATE!r}, which notifications are partitioned by: "
            "leave it out of output.columns"
        )
