"""The data source itself: what `format("boxmatch")` can do, and with which options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from boxmatch.errors import SparkError
from boxmatch.spark.broker.options import Connection, switch
from boxmatch.spark.broker.rows import feed_columns, notification_columns
from boxmatch.spark.broker.sink import BrokerStreamWriter, BrokerWriter, Writing
from boxmatch.spark.broker.source import BrokerReader, BrokerStreamReader, SourceReading

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class BrokerDataSource(DataSource):
    """A broker, for reading and writing, in batch and as a stream.

    | option | |
    | --- | --- |
    | `url` | where the broker is |
    | `key` | an API key; else the environment variable BOXMATCH_KEY of the driver |
    | `feed` or `subscriber` | what to read; `feed` is what to write to |
    | `startingSequence` | the first number to read, `earliest` (default) or `latest`; a stream with a checkpoint goes on where it was |
    | `endingSequence` | the last number that a batch reads; `latest` if not given |
    | `maxPerTrigger` | rows that a micro-batch has at the most |
    | `partitions` | tasks that read a batch, at the most; 4 |
    | `failOnDataLoss` | `true`: rows that retention removed before they were read are an error |
    | `includeBody` | `true`: a column `_body` with the JSON of the event |
    | `acknowledge` | `true`: a stream of a subscriber's notifications acknowledges what it has dealt with |
    | `checkpointLocation`, `stagingLocation`, `idempotencyKey`, `inDoubt` | see `boxmatch.spark.broker.sink` |

    A feed has a column for each of its attributes, then `_sequence` and `_at`; a subscriber's notifications
    have `sequence`, `feed`, `at`, `subscriptions` and `body`. Times are instants, in UTC on the
    wire. A query keeps the columns that it started with: attributes that the feed gains meanwhile
    appear when it is started again, null for older events. With `.schema(...)` other columns may
    be chosen, by name.
    """  # noqa: E501

    @classmethod
    def name(cls) -> str:
        return "boxmatch"

    def schema(self) -> StructType:
        if self.options.get("subscriber"):
            return notification_columns()
        name = self.options.get("feed")
        if not name:
            raise SparkError("format('boxmatch') needs option 'feed' or 'subscriber'")
        feed = Connection.of(self.options).feed(name)
        return feed_columns(feed, body=switch(self.options, "includeBody", False))

    def reader(self, schema: StructType) -> BrokerReader:
        return BrokerReader(SourceReading.of(self.options, stream=False), schema)

    def streamReader(self, schema: StructType) -> BrokerStreamReader:
        return BrokerStreamReader(SourceReading.of(self.options, stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BrokerWriter:
        return BrokerWriter(Writing.of(self.options, schema, overwrite), self.options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> BrokerStreamWriter:
        return BrokerStreamWriter(Writing.of(self.options, schema, overwrite), self.options)
