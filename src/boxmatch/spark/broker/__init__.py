"""A broker as a source and a sink of Spark: `format("boxmatch")`, in batch and as a stream.

```python
from boxmatch.spark import register_broker

register_broker(spark)
ticks = spark.readStream.format("boxmatch").option("url", url).option("feed", "ticks").load()
```

`BrokerDataSource` lists the options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from boxmatch.spark.session import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register_broker"]


def register_broker(spark: SparkSession) -> None:
    """Make `format("boxmatch")` known to a session. Workers need the package, with its client."""
    require_spark()
    from boxmatch.spark.broker.format import BrokerDataSource

    spark.dataSource.register(BrokerDataSource)
