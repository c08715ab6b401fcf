"""A streaming job for a process of its own, which a test kills: `streaming_job.py FOLDER`.

With the second batch, its sink says that it has matches in hand and then waits for its end.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from quick_spark import SETTINGS  # in this folder

from boxmatch.spark import ParquetSink, local_session, match_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(folder: Path) -> None:
    spark = local_session("local[2]", conf=SETTINGS)
    events = (
        spark.readStream.schema("event_id long, price double, symbol string")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "events"))
    )
    whole = ParquetSink(str(folder / "out"))
    whole.claim(str(folder / "checkpoint"))

    def sink(matches: DataFrame, batch_id: int) -> None:
        whole(matches, batch_id)
        if batch_id == 1:
            (folder / "in the middle").touch()
            time.sleep(600)

    query = match_stream(
        events,
        folder / "subscriptions",
        sink=sink,
        checkpoint=folder / "checkpoint",
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
