"""Several spaces, regions and filters: workers tell what `bm.Spaces` tell for the same updates."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fake_state import FakeState  # in this folder

import boxmatch as bm
from boxmatch.spark.publications.follower import sorted_updates
from boxmatch.spark.publications.keeper import Keeper, pack, unpack
from boxmatch.spark.publications.space_follower import Body, Space, follow_all

SPACES = {
    "map": bm.Schema({"x": "float", "y": "float"}),
    "engine": bm.Schema({"t": "int", "s": "string"}),
    "both": bm.Schema({"x": "float", "t": "int"}),
}
ENDS = [["x", ""], ["y", "low"], ["y", "high"], ["t", ""], ["s", ""]]
COLUMNS = pa.schema(
    {
        "key": pa.int64(), "order": pa.int64(), "removed": pa.bool_(), "t0": pa.string(),
        "t1": pa.string(), "c0": pa.float64(), "c1": pa.float64(), "c2": pa.float64(),
        "c3": pa.int64(), "c4": pa.string(), "hash": pa.int64(),
    }
)  # fmt: skip
FILTERS = [None, "a OR b", "a AND NOT b", "b OR NOT (a OR NOT b)", "SAME(a OR b)"]
Row = dict[str, Any]
Told = tuple[Any, Any, str, int]


def subscription(chance: random.Random) -> tuple[dict[str, Any], str | None]:
    def span() -> tuple[Any, Any]:
        low = chance.randrange(8)
        return low, low + chance.randrange(1, 5)

    wanted = {
        "x": span, "y": span, "t": span, "s": lambda: chance.choice([("a", "a"), ("b", None)]),
    }  # fmt: skip
    regions = {}
    for name in ("a", "b")[: chance.choice([1, 2, 2])]:
        chosen = chance.sample(sorted(wanted), chance.choice([1, 1, 2]))
        regions[name] = {dimension: wanted[dimension]() for dimension in chosen}
    return regions, chance.choice(FILTERS) if len(regions) == 2 else None


class Player:
    """Makes updates, applies them to `bm.Spaces`, and gives the rows that say the same."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.spaces = bm.Spaces(SPACES)
        self.subscriptions = {f"s{n}": subscription(chance) for n in range(40)}
        for one, (regions, text) in self.subscriptions.items():
            self.spaces.subscribe(one, regions=regions, region_filter=text)
        self.told: list[Told] = []

    def update(self, order: int) -> list[Row]:
        chance, key = self.chance, self.chance.randrange(8)
        known = key in set(self.spaces.publications())
        regions = set(self.spaces.get_publication(key).regions) if known else set()
        text = self.spaces.get_publication(key).region_filter if known else None
        if known and chance.random() < 0.1:
            self._tell(key, order, self.spaces.retract(key))
            return [self._row(key, order, removed=True)]
        if regions == {"a", "b"} and text is None and chance.random() < 0.3:
            told = self.spaces.update_publication(key, regions={"b": None})
            self._tell(key, order, told)
            return [self._row(key, order, removed=True, t0="b")]
        names = chance.sample(["a", "b"], chance.choice([1, 2])) if known else ["a", "b"]
        new: dict[str, Any] = {name: self._region(name) for name in names}
        rows = [self._row(key, order, t0=name, **self._columns(new[name])) for name in names]
        if not known:
            text = chance.choice([None, "a OR b", "SAME(a AND b)"])
            told = self.spaces.publish(key, regions=new, region_filter=text)
            rows[0]["t1"] = text
        elif chance.random() < 0.2 and regions == {"a", "b"}:
            text = chance.choice([None, "a OR b"])
            told = self.spaces.update_publication(key, regions=new, region_filter=text)
            rows[0]["t1"] = text or ""
        else:
            told = self.spaces.update_publication(key, regions=new)
        self._tell(key, order, told)
        return rows

    def _region(self, name: str) -> dict[str, Any]:
        chance = self.chance
        if name == "a":
            low = chance.randrange(9)
            return {"x": chance.uniform(0, 12)} | ({"y": (low, low + 2)} if low < 5 else {})
        return chance.choice([{"t": chance.randrange(12)}, {"s": chance.choice("abc")}])

    @staticmethod
    def _columns(region: dict[str, Any]) -> Row:
        low, high = region.get("y", (None, None))
        return {
            "c0": region.get("x"), "c1": low, "c2": high, "c3": region.get("t"),
            "c4": region.get("s"),
        }  # fmt: skip

    def _row(self, key: int, order: int, **others: Any) -> Row:
        mixed = zlib.crc32(str(key).encode()) * 0x9E3779B1 >> 1
        row: Row = dict.fromkeys(COLUMNS.names)
        return row | {"key": key, "order": order, "removed": False, "hash": mixed} | others

    def _tell(self, key: int, order: int, told: Iterable[bm.Transition]) -> None:
        self.told += [(key, one.subscription, one.kind, order) for one in told]


@pytest.fixture(params=range(6))
def player(request: pytest.FixtureRequest) -> Player:
    return Player(random.Random(request.param))


def arguments(player: Player, folder: Path) -> dict[str, Any]:
    space = Space(SPACES)
    bodies = {
        one: Body({n: {d: list(span) for d, span in r.items()} for n, r in regions.items()}, text)
        for one, (regions, text) in player.subscriptions.items()
    }
    table = pa.table({"id": list(bodies), "body": [body.to_json() for body in bodies.values()]})
    with pa.OSFile(str(folder / "file"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)
    return {
        "path": str(folder), "name": "file", "spaces": space.to_json(), "ends": ENDS,
        "leave": True, "id_type": "string",
    }  # fmt: skip


def told_of(batches: Iterator[pa.RecordBatch]) -> list[Told]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(row["key"], one, row["kind"], row["order"]) for row in rows for one in row["ids"]]


def test_a_batch_tells_what_spaces_tell(player: Player, tmp_path: Path) -> None:
    rows = [row for order in range(150) for row in player.update(order)]
    player.chance.shuffle(rows)
    table = sorted_updates(pa.Table.from_pylist(rows, COLUMNS).drop_columns(["hash"]))
    batches = table.combine_chunks().to_batches(max_chunksize=30)
    told = told_of(follow_all(iter(batches), **arguments(player, tmp_path)))
    assert sorted(told) == sorted(player.told)
    assert {kind for _, _, kind, _ in told} == {"enter", "leave", "deleted"}


def test_a_stream_tells_what_spaces_tell(player: Player, tmp_path: Path) -> None:
    handle: Any = FakeState()
    timers: Any = handle
    keeper = Keeper(handle, ttl=60.0, buckets=1, **arguments(player, tmp_path))

    def take(rows: Sequence[Row]) -> list[Told]:
        table = pa.Table.from_pylist(list(rows), COLUMNS)
        bucket = pa.array([0] * len(rows), pa.int32())
        (packs,) = pack(iter(table.add_column(0, "bucket", bucket).combine_chunks().to_batches()))
        return told_in(keeper.take(packs["pack"].to_pylist(), [], timers))

    told: list[Told] = []
    for batch in range(5):
        rows = [row for order in range(30 * batch, 30 * batch + 30) for row in player.update(order)]
        told += take(rows + rows[:3])
    assert take(rows) == []  # all of them are late
    assert sorted(told) == sorted(player.told)
    matching = {
        (one, other)
        for one in player.spaces.publications()
        for other in player.spaces.matches_of_publication(one)
    }
    assert matching
    expired = told_in(keeper.expire(60_000))
    assert {(key, one) for key, one, _, _ in expired} == matching
    assert {kind for _, _, kind, _ in expired} == {"deleted"}
    assert handle.maps["pages"] == {}


def told_in(packs: Iterator[bytes]) -> list[Told]:
    batch = pa.RecordBatch.from_pydict({"pack": pa.array(list(packs), pa.binary())})
    return told_of(unpack(iter([batch])))
