"""What workers do for `transitions`, without Spark: on whole result sets what `bm.Spaces` tell."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fake_state import FakeState  # in this folder

import boxmatch as bm
from boxmatch.spark import worker
from boxmatch.spark.publications import pages
from boxmatch.spark.publications.follower import IndexFollower, follow_all, sorted_updates
from boxmatch.spark.publications.keeper import Keeper, pack, unpack
from boxmatch.spark.publications.space_follower import Body, Space, SpaceFollower
from boxmatch.spark.segments import Recipe
from boxmatch.spark.shard_updates import update_shard
from boxmatch.spark.versions import IndexVersion, Shard

SCHEMA = bm.Schema(
    [
        bm.Attribute("x", "float"),
        bm.Attribute("y", "int"),
        bm.Attribute("s", "string"),
        bm.Attribute("side", "enum", ("buy", "sell", "hold")),
        bm.Attribute("at", "timestamp"),
        bm.Attribute("m", "decimal(6, 2)"),
        bm.Attribute("w", "decimal(30, 4)"),
    ]
)
ENDS = [["x", ""], ["y", "low"], ["y", "high"], ["s", ""], ["side", ""], ["at", "low"],
        ["at", "high"], ["m", ""], ["w", ""]]  # fmt: skip
MOMENT = pa.timestamp("us", "UTC")
COLUMNS = pa.schema(
    {
        "key": pa.string(), "order": pa.int64(), "removed": pa.bool_(), "c0": pa.float64(),
        "c1": pa.int32(), "c2": pa.int32(), "c3": pa.string(), "c4": pa.string(), "c5": MOMENT,
        "c6": MOMENT, "c7": pa.decimal128(6, 2), "c8": pa.decimal128(30, 4), "hash": pa.int64(),
    }
)  # fmt: skip
NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)
TEXTS = ("", "a", "ab", "b", "bé", "c")
Region = dict[str, Any]
Told = tuple[str, int, str, int]


def random_region(chance: random.Random) -> Region:
    region: Region = {}
    if chance.random() < 0.6:
        low = chance.uniform(0, 8)
        region["x"] = chance.choice([(low, low + 4), (None, low), (low, None)])
    if chance.random() < 0.5:
        low = chance.randrange(8)
        region["y"] = (low, low + chance.randrange(5))
    if chance.random() < 0.4:
        region["s"] = chance.choice([*TEXTS, ("a", "b"), ("ab", None)])
    if chance.random() < 0.3:
        region["side"] = chance.choice(["buy", "sell"])
    if chance.random() < 0.3:
        region["at"] = (None, NOON + timedelta(hours=chance.randrange(5)))
    if chance.random() < 0.3:
        region[chance.choice("mw")] = (Decimal("1.5"), Decimal(chance.randrange(2, 5)))
    return region or {"y": 3}


def text_of(region: Region) -> str:
    """The region as a filter."""
    parts = []
    for name, given in region.items():
        low, high = given if isinstance(given, tuple) else (given, given)
        for sign, end in ((">=", low), ("<=", high)):
            if end is not None:
                shown = end if isinstance(end, (int, float, Decimal)) else f"'{end}'"
                parts.append(f"{name} {sign} {shown}")
    return "(" + " AND ".join(parts) + ")"


def random_subscriptions(chance: random.Random, count: int) -> dict[int, list[Region]]:
    """Alternatives by id."""
    return {
        n: [random_region(chance) for _ in range(chance.choice([1, 1, 2, 3]))] for n in range(count)
    }


def random_update(chance: random.Random, order: int) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(COLUMNS.names)
    row |= {"key": f"p{chance.randrange(20)}", "order": order, "removed": chance.random() < 0.08}
    row["hash"] = zlib.crc32(row["key"].encode()) * 0x9E3779B1 >> 1
    whole = chance.random() < 0.6  # then it is a point, once that other dimensions were given too
    if chance.random() < 0.7:
        row["c0"] = chance.choice([chance.uniform(0, 12), float("nan"), 4.0])
    if chance.random() < 0.7:
        low = chance.randrange(12)
        row |= {"c1": low, "c2": low + (0 if whole else chance.randrange(4))}
    if chance.random() < 0.4:
        row["c3"] = chance.choice([*TEXTS, "aa", "d"])
    if chance.random() < 0.4:
        row["c4"] = chance.choice(["buy", "sell", "hold"])
    if chance.random() < 0.4:
        moment = NOON + timedelta(hours=chance.randrange(6))
        row |= {"c5": moment, "c6": moment if whole else moment + timedelta(hours=2)}
    if chance.random() < 0.4:
        row |= {name: Decimal(chance.randrange(500)) / 100 for name in ("c7", "c8")}
    return row


class Oracle:
    """What has to be told, by `bm.Spaces`."""

    def __init__(self, subscriptions: dict[int, list[Region]]) -> None:
        self.spaces = bm.Spaces({"all": SCHEMA})
        for one, regions in subscriptions.items():
            self.subscribe(one, regions)
        self.last: dict[str, int] = {}
        self.told: list[Told] = []

    def subscribe(self, one: int, regions: list[Region]) -> bm.Transitions:
        named = {f"r{n}": region for n, region in enumerate(regions)}
        return self.spaces.subscribe(one, regions=named, region_filter=" OR ".join(named))

    def take(self, updates: Sequence[dict[str, Any]]) -> None:
        for row in sorted(updates, key=lambda row: row["order"]):
            key, order = row["key"], row["order"]
            if order <= self.last.get(key, -1):
                continue
            self.last[key] = order
            region = self._region(row)
            if key not in set(self.spaces.publications()):
                if row["removed"] or not region:
                    continue
                told = self.spaces.publish(key, region)
            elif row["removed"]:
                told = self.spaces.retract(key)
            else:
                told = self.spaces.update_publication(key, region)
            self.told += [(key, one.subscription, one.kind, order) for one in told]

    def replace(self, subscriptions: dict[int, list[Region]]) -> None:
        """Subscriptions change; those that are gone are told nothing."""
        known = {one: self.spaces.get_subscription(one) for one in self.spaces.subscriptions()}
        for one in known.keys() - subscriptions.keys():
            self.spaces.unsubscribe(one)
        for one, regions in subscriptions.items():
            if one not in known:
                told = list(self.subscribe(one, regions))
            else:
                # From all old regions to the new ones in one step, so by other names.
                gone: dict[str, Any] = dict.fromkeys(known[one].regions)
                mark = "m" if "n0" in gone else "n"
                new = {f"{mark}{n}": region for n, region in enumerate(regions)}
                text = " OR ".join(new)
                told = list(
                    self.spaces.update_subscription(one, regions=gone | new, region_filter=text)
                )
            for transition in told:
                key = str(transition.publication)
                self.told.append((key, one, transition.kind, self.last[key]))

    @staticmethod
    def _region(row: dict[str, Any]) -> Region:
        region: Region = {}
        if row["c0"] is not None and row["c0"] == row["c0"]:
            region["x"] = row["c0"]
        for name, low, high in (("y", "c1", "c2"), ("at", "c5", "c6")):
            if row[low] is not None:
                region[name] = (row[low], row[high])
        for name, column in (("s", "c3"), ("side", "c4"), ("m", "c7"), ("w", "c8")):
            if row[column] is not None:
                region[name] = row[column]
        return region


@pytest.fixture(params=range(4))
def chance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> random.Random:
    """Also makes everything small, so that pages are divided and batches are cut."""
    monkeypatch.setattr(pages, "_FULL", 2)
    monkeypatch.setattr(worker, "_FIRST_EVENTS", 3)
    monkeypatch.setattr(worker, "_MATCHES", 40)
    return random.Random(request.param)


def write_index(
    path: Path, subscriptions: dict[int, list[Region]], old: Sequence[Any] = ()
) -> list[Any]:
    """Two shards of an index; the segments of each."""
    shards = []
    for number in range(2):
        own = {one: regions for one, regions in subscriptions.items() if one % 2 == number}
        texts = [" OR ".join(map(text_of, regions)) for regions in own.values()]
        rows = pa.table(
            {
                "id": pa.array(list(own), pa.int64()),
                "fingerprint": [zlib.crc32(text.encode()) for text in texts],
                "filter": texts,
            }
        )
        recipe = Recipe(SCHEMA, "tile", {})
        shard = update_shard(str(path), recipe, old[number] if old else (), rows)
        assert shard.rejected == 0
        shards.append(list(shard.segments))
    return shards


def names(shards: Sequence[Any]) -> list[list[str]]:
    return [[segment.name for segment in shard] for shard in shards]


def arguments(path: Path, shards: Sequence[Any]) -> dict[str, Any]:
    return {
        "path": str(path), "shards": names(shards), "id_type": "long", "schema": SCHEMA.to_json(),
        "ends": ENDS, "leave": True,
    }  # fmt: skip


def told_of(batches: Iterator[pa.RecordBatch]) -> list[Told]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(row["key"], one, row["kind"], row["order"]) for row in rows for one in row["ids"]]


def index_with_changes(
    path: Path, chance: random.Random
) -> tuple[dict[int, list[Region]], list[Any]]:
    """Subscriptions, and an index of them in which some segments are overruled by others."""
    subscriptions = random_subscriptions(chance, 80)
    shards = write_index(path, subscriptions)
    for one in chance.sample(range(80), 5):
        subscriptions[one] = [random_region(chance)]
    del subscriptions[chance.randrange(80)]
    shards = write_index(path, subscriptions, shards)
    assert max(map(len, shards)) > 1
    return subscriptions, shards


def test_a_batch_tells_what_spaces_tell(chance: random.Random, tmp_path: Path) -> None:
    subscriptions, shards = index_with_changes(tmp_path, chance)
    updates = [random_update(chance, n) for n in range(150)]
    oracle = Oracle(subscriptions)
    oracle.take(updates)
    table = pa.Table.from_pylist(updates + updates[::7], COLUMNS).drop_columns(["hash"])
    batches = sorted_updates(table).combine_chunks().to_batches(max_chunksize=40)
    told = told_of(follow_all(iter(batches), **arguments(tmp_path, shards)))
    assert sorted(told) == sorted(oracle.told)
    assert {kind for _, _, kind, _ in oracle.told} == {"enter", "leave", "deleted"}


class Stream:
    """Two buckets of publications."""

    def __init__(self, follows: bool = False, **arguments: Any) -> None:
        self.states = [FakeState(), FakeState()]
        handles: Any = self.states
        self.keepers = [
            Keeper(one, ttl=None, buckets=2, follows=follows, **arguments) for one in handles
        ]

    def take(self, rows: Sequence[dict[str, Any]], versions: Sequence[str] = ()) -> list[Told]:
        table = pa.Table.from_pylist(list(rows), COLUMNS)
        bucket = pa.array([row["hash"] % 2 for row in rows], pa.int32())
        batches = table.add_column(0, "bucket", bucket).to_batches(max_chunksize=20)
        packs: list[list[Any]] = [[], []]
        for one in pack(iter(batches)):
            for row in one.to_pylist():
                packs[row["bucket"]].append(row["pack"])
        told: list[Told] = []
        for keeper, given in zip(self.keepers, packs, strict=True):
            if given or versions:
                timers: Any = None
                found = list(keeper.take(given, versions, timers))
                batch = pa.RecordBatch.from_pydict({"pack": pa.array(found, pa.binary())})
                told += told_of(unpack(iter([batch])))
        return told


def test_a_stream_tells_what_spaces_tell(chance: random.Random, tmp_path: Path) -> None:
    subscriptions, shards = index_with_changes(tmp_path, chance)
    updates = [random_update(chance, n) for n in range(240)]
    batches = [updates[at : at + 40] for at in range(0, 240, 40)]
    batches[2] += [batches[1].pop(row) for row in (30, 20, 10)]
    batches[1] += batches[0][::7] + batches[1][::5]
    oracle = Oracle(subscriptions)
    stream = Stream(**arguments(tmp_path, shards))
    told: list[Told] = []
    for batch in batches:
        chance.shuffle(batch)
        oracle.take(batch)
        told += stream.take(batch)
    assert sorted(told) == sorted(oracle.told)
    for state in stream.states:
        buckets, number, publications, *_ = state.maps["about"][()]
        assert (buckets, len(state.maps["pages"]) <= number) == (2, True)
        assert publications > number > 2


def test_publications_meet_subscriptions_that_change(chance: random.Random, tmp_path: Path) -> None:
    """New versions come with updates, which meet them, and several at once."""
    subscriptions = random_subscriptions(chance, 60)
    oracle = Oracle(subscriptions)
    shards = write_index(tmp_path, subscriptions)
    stream = Stream(follows=True, **arguments(tmp_path, shards))
    versions = [version_text(tmp_path, 1, shards)]
    told: list[Told] = []
    for turn in range(6):
        updates = [random_update(chance, 50 * turn + n) for n in range(50)]
        told += stream.take(updates, versions)
        oracle.take(updates)
        versions = []
        for step in range(chance.choice([0, 1, 2])):
            before = subscriptions
            subscriptions = dict(before)
            for one in chance.sample(sorted(before), chance.choice([2, 30])):
                del subscriptions[one]
                if chance.random() < 0.7:
                    subscriptions[one] = [random_region(chance)]
            subscriptions[100 + 10 * turn + step] = [random_region(chance)]
            shards = write_index(tmp_path, subscriptions, shards)
            versions.append(version_text(tmp_path, 10 * turn + step + 2, shards))
        chance.shuffle(versions)
        oracle.replace(subscriptions)
    told += stream.take([], versions)
    assert sorted(told) == sorted(oracle.told)
    stream.take([], [version_text(tmp_path, 1, [])])  # has been seen: it is no news


def version_text(path: Path, number: int, shards: Sequence[Any]) -> str:
    made = tuple(Shard(tuple(segments)) for segments in shards)
    return IndexVersion(str(path), number, SCHEMA, "tile", {}, "long", made).to_json()


def test_a_version_of_another_schema_is_refused(chance: random.Random, tmp_path: Path) -> None:
    shards = write_index(tmp_path, random_subscriptions(chance, 5))
    stream = Stream(follows=True, **arguments(tmp_path, shards))
    other = IndexVersion(str(tmp_path), 3, bm.Schema({"x": "int"}), "tile", {}, "long", ())
    with pytest.raises(bm.SparkError, match=r"version 3 of the index at .* has another schema"):
        stream.take([], [other.to_json()])


def test_a_dimension_keeps_its_type(chance: random.Random, tmp_path: Path) -> None:
    shards = write_index(tmp_path, random_subscriptions(chance, 5))
    given = arguments(tmp_path, shards)
    stream = Stream(**given)
    updates = [random_update(chance, n) for n in range(9)]
    stream.take(updates)
    others = [attribute for attribute in SCHEMA if attribute.name != "m"]
    schema = bm.Schema([*others, bm.Attribute("m", "decimal(6, 3)")])
    handles: Any = stream.states
    given["schema"] = schema.to_json()
    stream.keepers = [Keeper(one, ttl=None, buckets=2, **given) for one in handles]
    with pytest.raises(bm.SparkError, match=r"'m' is decimal\(6, 3\), but .* was decimal\(6, 2\)"):
        stream.take(updates)


def test_the_form_of_a_stream_stays(chance: random.Random, tmp_path: Path) -> None:
    """What a query with spaces has stored is refused with a schema, and the other way round."""
    stored = pa.table({"key": ["p"], "order": [1], "body": [Body({"a": {"x": [1, 2]}}).to_json()]})
    shards = write_index(tmp_path, random_subscriptions(chance, 5))
    follower = IndexFollower.of(**arguments(tmp_path, shards))
    with pytest.raises(bm.SparkError, match="stored by transitions with spaces, not with a schema"):
        follower.delete(stored)
    space = Space({"all": SCHEMA})
    table = pa.table({"id": [1], "body": stored["body"]})
    with pa.OSFile(str(tmp_path / "file"), "wb") as out, pa.ipc.new_file(out, table.schema) as file:
        file.write_table(table)
    other = SpaceFollower(
        path=str(tmp_path), name="file", spaces=space.to_json(), ends=ENDS, leave=True,
        id_type="long",
    )  # fmt: skip
    assert told_of(iter([other.delete(stored)])) == [("p", 1, "deleted", 1)]
    with pytest.raises(bm.SparkError, match="stored by transitions with a schema, not with spaces"):
        other.follow(table.slice(0, 0), stored.drop_columns(["body"]))
