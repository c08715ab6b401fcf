"""The engine without Spark, on the same files; and what can be said of pairs in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from boxmatch.engine.matcher import Matcher
from boxmatch.spark import read_version
from boxmatch.spark.segments import Search, open_shards
from boxmatch_bench.answers import MismatchError
from boxmatch_bench.options import SparkOptions
from boxmatch_bench.settings import SparkSetting

if TYPE_CHECKING:
    import pyarrow as pa

_READ_ROWS = 1 << 20


class Files:
    """The folders of one measurement."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events = folder / "events"
        self.subscriptions = folder / "subscriptions"
        self.index = folder / "index"
        self.log = folder / "log.txt"

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


Kind = Literal["shards", "whole"]
"""The index that Spark's workers have open, or one of all subscriptions, made in memory."""

_Found = Iterator[tuple[Any, Any]]
_Find = Callable[["pa.RecordBatch"], _Found]


def engine_alone(
    setting: SparkSetting, options: SparkOptions, files: Files, kind: Kind
) -> dict[str, Any]:
    """Read events, match them with as many threads as Spark has cores, write the pairs."""
    began = perf_counter()
    threads = options.cores
    find = _in_shards(files, threads) if kind == "shards" else _in_one(setting, threads)
    load_seconds = perf_counter() - began
    for batch in record_batches(files.events, 1_000):
        for _ in find(batch.drop_columns(["event_id"])):  # compiles, and maps what there is
            pass
        break
    runs = [_run(find, options, files, kind) for _ in range(options.repeats)]
    digest = Digest.of(files.pairs(kind))
    best = min(runs, key=lambda run: run["seconds"])
    return {
        **best,
        "runs": [run["seconds"] for run in runs],
        "load_seconds": load_seconds,
        "microseconds": 1e6 * best["seconds"] / setting.events,
        "pairs": digest.pairs,
        "checksum": digest.checksum,
    }


def _in_shards(files: Files, threads: int) -> _Find:
    version = read_version(files.index)
    names = [[segment.name for segment in shard.segments] for shard in version.shards]
    opened = open_shards(version.path, names)

    def find(events: pa.RecordBatch) -> _Found:
        for shard in opened:
            yield from shard.find(events, Search(threads))

    return find


def _in_one(setting: SparkSetting, threads: int) -> _Find:
    matcher = _matcher(setting)
    matcher.compact()

    def find(events: pa.RecordBatch) -> _Found:
        import pyarrow as pa

        found = matcher.match_batch(events, threads=threads)
        yield found.event, pa.array(found.subscription)

    return find


def _matcher(setting: SparkSetting, index: str = "tile") -> Matcher:
    workload = setting.workload
    matcher = Matcher(workload.schema, index=index)
    matcher._subscribe_compressed(np.arange(workload.subscriptions), workload.boxes())
    return matcher


def _run(find: _Find, options: SparkOptions, files: Files, kind: Kind) -> dict[str, float]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = files.pairs(kind)
    out.mkdir(exist_ok=True)
    schema = pa.schema({"event_id": pa.int64(), "subscription_id": pa.int64()})
    spent = dict.fromkeys(("read_seconds", "match_seconds", "write_seconds"), 0.0)
    began = last = perf_counter()

    def spend(name: str) -> None:
        nonlocal last
        now = perf_counter()
        spent[name] += now - last
        last = now

    with pq.ParquetWriter(out / "pairs.parquet", schema) as writer:
        for batch in record_batches(files.events, options.batch):
            ids = batch.column("event_id")
            arriving = batch.drop_columns(["event_id"])
            spend("read_seconds")
            found = list(find(arriving))
            spend("match_seconds")
            for rows, subscriptions in found:
                pairs = [ids.take(rows), subscriptions]
                writer.write_batch(pa.RecordBatch.from_arrays(pairs, schema=schema))
            spend("write_seconds")
    spend("write_seconds")
    return {"seconds": perf_counter() - began, **spent}


def check(setting: SparkSetting, options: SparkOptions, files: Files) -> int:
    """Compare some of Spark's events with `scan`, id by id; returns how many they were."""
    if not options.check:
        return 0
    rng = np.random.default_rng(setting.workload.seed)
    count = min(options.check, setting.events)
    sample = np.sort(rng.choice(setting.events, count, replace=False)).astype(np.int64)
    scan = _matcher(setting, "scan")
    points = np.concatenate([setting.workload.events(i, i + 1) for i in sample.tolist()])
    found = scan.match_batch(points)
    wanted = np.stack([sample[found.event], np.asarray(found.subscription, np.int64)], axis=1)
    wanted = wanted[np.lexsort((wanted[:, 1], wanted[:, 0]))]
    got = pairs_of(files.pairs("spark"), sample, setting.workload.subscriptions)
    compare("Spark differs from scan", got, wanted)
    return count


def check_join(setting: SparkSetting, files: Files, events: int, subscriptions: int) -> None:
    """Compare the join in SQL with what `match` found for the same events and subscriptions."""
    sample = np.arange(events)
    every = setting.workload.subscriptions
    joined = pairs_of(files.pairs("sql"), sample, every)
    ours = pairs_of(files.pairs("spark"), sample, subscriptions)
    compare("Spark differs from the join in SQL", ours, joined)


def compare(complaint: str, got: Any, wanted: Any) -> None:
    """Complain unless two ordered n × 2 arrays of pairs are equal."""
    if np.array_equal(got, wanted):
        return
    ours, theirs = (set(map(tuple, pairs.tolist())) for pairs in (got, wanted))
    extra, missing = sorted(ours - theirs), sorted(theirs - ours)
    raise MismatchError(
        f"{complaint}: {len(got):,} pairs for {len(wanted):,}, {len(extra)} too many (such as "
        f"{extra[:3]}), {len(missing)} missing (such as {missing[:3]})"
    )
