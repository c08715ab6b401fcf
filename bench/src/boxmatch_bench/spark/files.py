"""Where a measurement keeps its files, and what can be said of pairs however they are ordered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

_READ_ROWS = 1 << 20


@dataclass(frozen=True)
class Files:
    """The folders of one measurement."""

    folder: Path

    @property
    def events(self) -> Path:
        return self.folder / "events"

    @property
    def subscriptions(self) -> Path:
        return self.folder / "subscriptions"

    @property
    def index(self) -> Path:
        return self.folder / "index"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    def pairs(self, who: str) -> Path:
        """Where `who` writes the matches that it found."""
        return self.folder / f"pairs-{who}"


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def record_batches(
    folder: Path, rows: int = _READ_ROWS, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a folder of Parquet files, file by file."""
    import pyarrow.parquet as pq

    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=rows, columns=columns)


@dataclass(frozen=True)
class Digest:
    """How many pairs there are, and a checksum that does not depend on their order.

    The checksum is a sum of hashes, so a pair that is there twice changes it too.
    """

    pairs: int
    checksum: int

    @classmethod
    def of(cls, folder: Path) -> Digest:
        """The digest of pairs written as Parquet."""
        pairs, total = 0, np.uint64(0)
        for batch in record_batches(folder, columns=["event_id", "subscription_id"]):
            event, subscription = (
                np.asarray(batch.column(name)).view(np.uint64)
                for name in ("event_id", "subscription_id")
            )
            pairs += batch.num_rows
            total = np.add.reduce([total, _mixed(event, subscription).sum(dtype=np.uint64)])
        return cls(pairs, int(total))

    def __str__(self) -> str:
        return f"{self.pairs:,} pairs with checksum {self.checksum:016x}"


def _mixed(event: npt.NDArray[np.uint64], subscription: npt.NDArray[np.uint64]) -> Any:
    # The finaliser of SplitMix64, of an odd multiple of one plus the other.
    mixed = event * np.uint64(0x9E3779B97F4A7C15) + subscription
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def pairs_of(folder: Path, events: npt.NDArray[np.int64], subscriptions: int) -> Any:
    """The pairs of some events with the first `subscriptions`, as an ordered n × 2 array."""
    found = []
    for batch in record_batches(folder, columns=["event_id", "subscription_id"]):
        pairs = np.stack([np.asarray(column) for column in batch.columns], axis=1)
        wanted = np.isin(pairs[:, 0], events) & (pairs[:, 1] < subscriptions)
        found.append(pairs[wanted])
    joined = np.concatenate([np.empty((0, 2), np.int64), *found])
    return joined[np.lexsort((joined[:, 1], joined[:, 0]))]
