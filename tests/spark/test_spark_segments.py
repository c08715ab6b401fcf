"""Segments, updates and shards, without any Spark: tasks are plain functions of tables."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import boxmatch as bm
from boxmatch.spark import segments as open_ones
from boxmatch.spark.segments import Recipe, Search, open_segment, open_shards, rejected
from boxmatch.spark.shard_updates import update_shard
from boxmatch.spark.store import Folder
from boxmatch.spark.versions import Shard

SCHEMA = bm.Schema({"symbol": "string", "price": "float", "volume": "int"})
RECIPE = Recipe(SCHEMA, "tile", {})
EVENTS = pa.RecordBatch.from_pylist(
    [
        {"symbol": symbol, "price": price, "volume": volume}
        for symbol in ("IBM", "SAP", None)
        for price in (1.0, 2.5, None)
        for volume in (1, 5, None)
    ]
)
FILTERS = [
    "symbol = 'IBM'",
    "price > 2",
    "price BETWEEN 1 AND 2 OR volume IS NULL",
    "symbol IN ('IBM', 'SAP') AND volume = 5",
    "symbol LIKE 'S%'",
    "FALSE",
    "prise > 3",
    "price >",
]
BAD = FILTERS[-2:]


def rows(wanted: list[tuple[Any, str | None]]) -> pa.Table:
    kind = pa.int64() if all(isinstance(one, int) for one, _ in wanted) else pa.large_string()
    return pa.table(
        {
            "id": pa.array([one for one, _ in wanted], kind),
            "fingerprint": pa.array([hash(text) for _, text in wanted], pa.int64()),
            "filter": pa.array([text for _, text in wanted], pa.string()),
        }
    )


def found(path: str, shard: Shard, events: pa.RecordBatch = EVENTS) -> list[tuple[int, Any]]:
    (opened,) = open_shards(path, [[segment.name for segment in shard.segments]])
    pairs = [
        (row, one)
        for event, ids in opened.find(events, Search())
        for row, one in zip(event.tolist(), ids.to_pylist(), strict=True)
    ]
    counts = [sum(row == event for row, _ in pairs) for event in range(events.num_rows)]
    assert opened.count(events, Search()).tolist() == counts
    return sorted(pairs)


def expected(wanted: Mapping[Any, str]) -> list[tuple[int, Any]]:
    matcher = bm.Matcher(SCHEMA, index="scan")
    matcher.subscribe_many(
        [{"id": one, "filter": text} for one, text in wanted.items() if text not in BAD]
    )
    result = matcher.match_batch(EVENTS)
    return sorted(zip(result.event.tolist(), result.subscription.tolist(), strict=True))


@pytest.fixture(params=["here", "far"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A folder on this machine, and one that has to be fetched."""
    if request.param == "here":
        yield str(tmp_path / "index")
        return
    (tmp_path / "far").mkdir()
    far = pa.fs.SubTreeFileSystem(str(tmp_path / "far"), pa.fs.LocalFileSystem())
    monkeypatch.setattr(
        "boxmatch.spark.store._far", lambda address: (far, address.removeprefix("far://"))
    )
    monkeypatch.setenv("BOXMATCH_CACHE_DIR", str(tmp_path / "cache"))
    yield "far://bucket/index"


@pytest.mark.parametrize("make_id", [lambda n: n, lambda n: f"abonné {n}"], ids=["int", "string"])
def test_updates_in_any_order(place: str, make_id: Callable[[int], Any]) -> None:
    rng = random.Random(4)
    wanted: dict[Any, str] = {}
    shard = Shard()
    pieces = set()
    for step in range(25):
        for _ in range(rng.choice([0, 1, 3, 40] if step else [60])):
            one = make_id(rng.randrange(80))
            if one in wanted and rng.random() < 0.4:
                del wanted[one]
            else:
                wanted[one] = rng.choice(FILTERS)
        listed = list(wanted.items())
        rng.shuffle(listed)
        before = shard
        shard = update_shard(place, RECIPE, before.segments, rows(listed))
        pieces.add(len(shard.segments))
        assert found(place, shard) == expected(wanted)
        bad = {one: text for one, text in wanted.items() if text in BAD}
        assert (shard.subscriptions, shard.rejected) == (len(wanted) - len(bad), len(bad))
        segments = [open_segment(place, segment.name) for segment in shard.segments]
        told = rejected(segments).to_pylist()
        assert {row["subscription_id"]: row["filter"] for row in told} == {
            str(one): text for one, text in bad.items()
        }
        # Nothing changed, nothing is written; and the older version still answers as it did.
        assert update_shard(place, RECIPE, shard.segments, rows(listed)) == shard
    assert pieces > {1, 2, 3}


ids = st.integers(0, 6)
tables = st.lists(st.tuples(st.one_of(st.none(), ids), st.sampled_from(FILTERS)), max_size=12)


@given(steps=st.lists(tables, min_size=1, max_size=4))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_tables_with_bad_ids(tmp_path: Path, steps: list[list[tuple[int | None, str]]]) -> None:
    path = str(tmp_path / "index")
    shard = Shard()
    for table in steps:
        texts: dict[int, set[str]] = {}
        for one, text in table:
            if one is not None:
                texts.setdefault(one, set()).add(text)
        clear = {one: next(iter(given)) for one, given in texts.items() if len(given) == 1}
        listed = pa.table(
            {
                "id": pa.array([one for one, _ in table], pa.int64()),
                "fingerprint": pa.array([hash(text) for _, text in table], pa.int64()),
                "filter": pa.array([text for _, text in table], pa.string()),
            }
        )
        shard = update_shard(path, RECIPE, shard.segments, listed)
        assert found(path, shard) == expected(clear)
        good = sum(text not in BAD for text in clear.values())
        assert shard.subscriptions == good
        assert shard.rejected == len(table) - good


def test_reasons_for_bad_ids(tmp_path: Path) -> None:
    path = str(tmp_path)
    table = pa.table(
        {
            "id": pa.array([1, 1, 2, 2, None], pa.int64()),
            "fingerprint": pa.array([7, 7, 8, 9, 7], pa.int64()),
            "price_low": [1.0, 1.0, 2.0, 3.0, 1.0],
        }
    )
    shard = update_shard(path, RECIPE, (), table)
    told = rejected([open_segment(path, segment.name) for segment in shard.segments]).to_pylist()
    alike = "the id occurs 2 times, always with the same filter; one was kept"
    unlike = "the id occurs 2 times with different filters; none was kept"
    assert [tuple(row.values()) for row in told] == [
        ("1", '{"price_low": 1.0}', alike),
        ("2", '{"price_low": 2.0}', unlike),
        ("2", '{"price_low": 3.0}', unlike),
        (None, '{"price_low": 1.0}', "the id is null"),
    ]
    assert {one for _, one in found(path, shard)} == {1}


def test_bounds_that_are_no_values_are_rejected(tmp_path: Path) -> None:
    schema = bm.Schema({"side": ["buy", "sell"], "price": "float"})
    table = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "fingerprint": pa.array([1, 2, 3], pa.int64()),
            "side": ["buy", "hold", None],
            "price_high": [None, 1.0, 5.0],
        }
    )
    shard = update_shard(str(tmp_path), Recipe(schema, "tile", {}), (), table)
    events = pa.RecordBatch.from_pylist([{"side": "buy", "price": 4.0}])
    assert found(str(tmp_path), shard, events) == [(0, 1), (0, 3)]
    (row,) = rejected([open_segment(str(tmp_path), s.name) for s in shard.segments]).to_pylist()
    assert row["subscription_id"] == "2"
    assert row["reason"] == "attribute 'side': 'hold' is not one of 'buy', 'sell'"


def test_a_worker_opens_a_segment_once(tmp_path: Path) -> None:
    path = str(tmp_path)
    first = update_shard(path, RECIPE, (), rows([(n, FILTERS[n % 5]) for n in range(50)]))
    changed = [(n, FILTERS[(n + (n == 7)) % 5]) for n in range(50)]
    second = update_shard(path, RECIPE, first.segments, rows(changed))
    assert len(second.segments) == 2
    (old,) = open_shards(path, [[s.name for s in first.segments]])
    (new,) = open_shards(path, [[s.name for s in second.segments]])
    assert new.segments[0] is old.segments[0]
    assert open_shards(path, [[s.name for s in second.segments]])[0] is new
    assert len(open_ones._open) == 1


def test_copies_from_afar_are_shared_and_go_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOXMATCH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("boxmatch.spark.store._UNUSED_SECONDS", -1)
    content = tmp_path / "far" / "one"
    content.mkdir(parents=True)
    (content / "file").write_text("x")
    monkeypatch.setattr(Folder, "local", None)
    folder = Folder(str(content))
    object.__setattr__(folder, "_opened", (pa.fs.LocalFileSystem(), str(content)))
    copy = folder.fetch()
    assert not copy.exists()  # older than any age allowed
    monkeypatch.setattr("boxmatch.spark.store._UNUSED_SECONDS", 100)
    copy = folder.fetch()
    assert (copy / "file").read_text() == "x"
    (content / "file").unlink()
    assert (folder.fetch() / "file").read_text() == "x"


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("/a/b", "/a/b"),
        ("/a/b/", "/a/b"),
        ("file:///a/b%20c", "/a/b c"),
        ("file:/a/b", "/a/b"),
        ("s3a://bucket/x/", "s3://bucket/x"),
        ("dbfs:/x", "/dbfs/x"),
        ("hdfs://host/x", "hdfs://host/x"),
    ],
)
def test_addresses(given: str, address: str) -> None:
    folder = Folder.at(given)
    assert str(Folder.at(str(folder))) == address
    assert (folder.local is None) == ("://" in address)


def test_files_are_created_once(tmp_path: Path) -> None:
    folder = Folder.at(tmp_path / "x")
    assert folder.names() == []
    assert folder.read("a") is None
    assert folder.create("a", b"1")
    assert not folder.create("a", b"2")
    assert folder.read("a") == b"1"
    assert folder.names() == ["a"]
    assert [size for _, size, _ in folder.files()] == [1]
    folder.remove("a")
    folder.remove("a")
    assert folder.names() == []


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(bm.SparkError, match="cannot write to"):
        Folder.at(tmp_path / "file" / "x").prepare()
    with pytest.raises(bm.SparkError, match="is empty"):
        Folder.at("")
    with pytest.raises(bm.SparkError, match="nothing://x"):
        Folder.at("nothing://x/y").prepare()
