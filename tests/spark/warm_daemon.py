"""`boxmatch.spark.daemon` with more in memory: what only some jobs need, and tests often."""

from __future__ import annotations

import boxmatch.spark.keeper
import boxmatch.spark.pipeline.selectivity  # noqa: F401 - only to have them in memory
from boxmatch.spark.daemon import serve

if __name__ == "__main__":
    serve()
