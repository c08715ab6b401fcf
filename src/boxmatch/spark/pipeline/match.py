"""Match: subscriptions become an index, and events meet it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from boxmatch.model.schema import Schema
from boxmatch.spark.build import build_index
from boxmatch.spark.columns import column, quoted
from boxmatch.spark.matching import MatchOptions, plan_match, run_plan
from boxmatch.spark.pipeline.clean import MALFORMED_ROW, Cleaned
from boxmatch.spark.pipeline.config import MatchConfig
from boxmatch.spark.versions import IndexVersion, read_version, rejected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DEFAULTS = MatchConfig()


def index_subscriptions(
    subscriptions: DataFrame,
    path: str | os.PathLike[str],
    schema: Schema,
    *,
    subscription_id: str = "subscription_id",
    filter: str = "filter",
    settings: MatchConfig = _DEFAULTS,
) -> IndexVersion:
    """The index of the subscriptions at `path`, or its next version."""
    return build_index(
        subscriptions,
        path,
        schema=schema,
        shards=settings.shards,
        subscription_id=subscription_id,
        filter=filter,
        index=settings.index,
        index_options=settings.index_options,
    )


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


def accepted(
    subscriptions: DataFrame, index: IndexVersion, *, subscription_id: str = "subscription_id"
) -> DataFrame:
    """The clean subscriptions whose filters were understood."""
    if not index.rejected:
        return subscriptions
    bad = rejected(subscriptions.sparkSession, index.path, index.version)
    same = subscriptions[quoted(subscription_id)].cast("string") == bad["subscription_id"]
    return subscriptions.join(bad, on=same, how="left_anti")


def match_events(
    events: DataFrame,
    index: IndexVersion | str,
    *,
    event_id: str = "event_id",
    subscription_id: str = "subscription_id",
    keep: Sequence[str] = (),
    settings: MatchConfig = _DEFAULTS,
) -> DataFrame:
    """A row for each event and subscription that match, with the columns `keep` of the event."""
    if isinstance(index, str):
        index = read_version(index)
    options = MatchOptions("pairs", event_id, subscription_id, keep, settings.plan)
    return run_plan(plan_match(events, index, options), events)
