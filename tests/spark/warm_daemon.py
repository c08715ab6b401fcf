"""`boxmatch.spark.daemon` with more in memory: what only some jobs need, and tests often."""

from __future__ import annotations

from boxmatch.spark.daemon import serve

if __name__ == "__main__":
    serve()
