"""Matchers on disk: whole, refused when damaged, never broken by a save."""

from __future__ import annotations

import contextlib
import gc
import json
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import boxmatch as bm
from boxmatch.engine.box_stores import IndexedSegment
from boxmatch.indexes.registry import index_names

SCHEMA = bm.Schema(
    {
        "s": "string",
        "f": {"type": "float", "domain": [-10, 1000]},
        "n": "int",
        "b": "bool",
        "at": "timestamp",
        "e": ["low", "mid", "high"],
    }
)
EVENTS = [
    {
        "s": ["a", "am", "b", "zz", None, "é"][i % 6],
        "f": [None, 0.5, 7.0, -3.25][i % 4],
        "n": i % 11,
        "b": [True, False, None][i % 3],
        "e": ["low", "mid", "high", None][i % 4],
    }
    for i in range(60)
]


def filter_of(number: int) -> str:
    return [
        f"n = {number % 11} AND f >= {number % 5}",
        f"s > '{'abcz'[number % 4]}{number % 7}'",
        "n BETWEEN 1 AND 5 OR f BETWEEN 0 AND 3 OR s < 'b'",
        "e <> 'mid' AND s LIKE 'a%'",
        "b IS NULL",
        "FALSE",
        "TRUE",
    ][number % 7]


def filled(index: str = "tile", ids: type = str, count: int = 700, **parameters: Any) -> bm.Matcher:
    """Several segments, a tail, overlapping boxes, removed and replaced ones."""
    m = bm.Matcher(SCHEMA, index=index, **parameters)
    m.subscribe_many([{"id": ids(n), "filter": filter_of(n)} for n in range(count)])
    m.subscribe_many([{"id": ids(n), "filter": filter_of(n + 1)} for n in range(count, count + 9)])
    for n in range(0, count, 13):
        m.unsubscribe(ids(n))
    for n in range(1, count, 17):
        m.subscribe(ids(n), filter_of(n + 2))
    return m


def answers(m: bm.Matcher) -> Any:
    result = m.match_batch(EVENTS)
    ends = np.cumsum(result.counts)
    listed = [
        sorted(result.subscription[end - count : end].tolist())
        for end, count in zip(ends, result.counts, strict=True)
    ]
    assert [sorted(m.match(event)) for event in EVENTS[:10]] == listed[:10]
    return len(m), listed


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def original() -> bm.Matcher:
    return filled()


@pytest.fixture
def saved(original: bm.Matcher, tmp_path: Path) -> Path:
    original.save(tmp_path / "saved")
    return tmp_path / "saved"


# --- the same again --------------------------------------------------------------------------


@pytest.mark.parametrize("index", index_names())
@pytest.mark.parametrize("ids", [str, int])
def test_a_loaded_matcher_gives_the_same_answers(index: str, ids: type, tmp_path: Path) -> None:
    m = filled(index, ids)
    before = answers(m)
    assert sum(map(len, before[1])) > 1000
    m.save(tmp_path / "saved")
    assert answers(m) == before
    loaded = bm.Matcher.load(tmp_path / "saved")
    assert answers(loaded) == before
    assert loaded.schema == m.schema
    assert loaded.index == index
    for n in range(709):
        assert (ids(n) in loaded) == (ids(n) in m)
        if ids(n) in m:
            assert loaded.filter_of(ids(n)) == m.filter_of(ids(n))
    assert loaded.explain(EVENTS[1], ids(1)) == m.explain(EVENTS[1], ids(1))


@pytest.mark.parametrize("index", index_names())
def test_a_loaded_matcher_can_be_changed(index: str, tmp_path: Path) -> None:
    m = filled(index)
    m.save(tmp_path / "saved")
    loaded = bm.Matcher.load(tmp_path / "saved")
    for one in (m, loaded):
        one.unsubscribe("5")
        one.subscribe("new", "s > 'am' AND n = 3")
        one.subscribe("4", "s = 'am'")
        one.subscribe_many([{"id": f"more{n}", "filter": filter_of(n)} for n in range(50)])
        with pytest.raises(bm.SubscriptionIdError):
            one.subscribe(1, "TRUE")
    assert answers(loaded) == answers(m)
    loaded.compact()
    assert answers(loaded) == answers(m)
    # What is on disk is as it was.
    again = bm.Matcher.load(tmp_path / "saved")
    assert "new" not in again
    assert "5" in again


def test_saving_over_the_files_that_are_mapped(saved: Path, original: bm.Matcher) -> None:
    loaded = bm.Matcher.load(saved)
    loaded.unsubscribe("5")
    for _ in range(3):
        loaded.save(saved)
        wanted = answers(loaded)
        loaded = bm.Matcher.load(saved)
        assert answers(loaded) == wanted
        loaded.subscribe("again", "n = 1")
    assert len(original) == len(loaded)


def test_parameters_and_limits_are_kept(tmp_path: Path) -> None:
    m = bm.Matcher(SCHEMA, index="tile", cells=16, max_boxes=3)
    m.subscribe("a", "n = 1")
    m.save(tmp_path / "saved")
    loaded = bm.Matcher.load(tmp_path / "saved")
    with pytest.raises(bm.FilterTooLargeError):
        loaded.subscribe("b", "n IN (1, 3, 5, 7)")
    loaded.save(tmp_path / "again")
    assert answers(bm.Matcher.load(tmp_path / "again")) == answers(m)


@pytest.mark.parametrize("kind", ["new", "emptied", "never"])
def test_matchers_with_nothing_to_match(kind: str, tmp_path: Path) -> None:
    m = bm.Matcher(SCHEMA)
    if kind != "new":
        m.subscribe("a", "FALSE" if kind == "never" else "TRUE")
    if kind == "emptied":
        m.compact()
        m.unsubscribe("a")
    m.save(tmp_path / "saved")
    loaded = bm.Matcher.load(tmp_path / "saved")
    assert answers(loaded) == answers(m)
    assert loaded.match({"s": "x"}) == []
    if kind == "new":
        loaded.subscribe(1, "TRUE")
        assert loaded.match({}) == [1]


@pytest.mark.parametrize("id", ["", "a/b", "é😀", "\0", "a\nb", "x" * 10_000])
def test_odd_ids_and_strings(id: str, tmp_path: Path) -> None:
    m = bm.Matcher(SCHEMA)
    m.subscribe(id, {"s": id})
    m.save(tmp_path / "saved")
    assert bm.Matcher.load(tmp_path / "saved").match({"s": id}) == [id]


def test_an_id_that_is_no_text_is_refused_before_it_can_spoil_a_save(tmp_path: Path) -> None:
    m = bm.Matcher(SCHEMA)
    with pytest.raises(bm.SubscriptionIdError):
        m.subscribe("\ud800", "TRUE")
    with pytest.raises(bm.SubscriptionIdError):
        m.subscribe_many([{"id": "\ud800", "filter": "TRUE"}])
    m.save(tmp_path / "saved")


def test_paths_may_be_text_and_have_missing_parents(original: bm.Matcher, tmp_path: Path) -> None:
    original.save(str(tmp_path / "a" / "b"))
    assert len(bm.Matcher.load(str(tmp_path / "a" / "b"))) == len(original)


# --- mapped ----------------------------------------------------------------------------------


def mapped(array: np.ndarray[Any, Any]) -> bool:
    base: Any = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return isinstance(base, mmap.mmap)


@pytest.mark.parametrize("index", index_names())
def test_arrays_are_mapped(index: str, tmp_path: Path) -> None:
    filled(index, int).save(tmp_path / "saved")
    loaded = bm.Matcher.load(tmp_path / "saved")
    segments = [part.store for part in loaded._stores.snapshot.views]
    assert segments
    for segment in segments:
        assert isinstance(segment, IndexedSegment)
        assert mapped(segment.ids)
        for name, array in segment.index.to_arrays().items():
            assert mapped(array), name


def test_loading_does_not_work_through_the_subscriptions(tmp_path: Path) -> None:
    """No lookup by id is made, and nothing is built, until someone needs it."""
    m = bm.Matcher(bm.Schema({f"a{i}": "int" for i in range(10)}))
    rng = np.random.default_rng(0)
    lows = rng.integers(0, 1000, (200_000, 10)).astype(float)
    lows[rng.random(lows.shape) < 0.5] = np.nan
    m.subscribe_boxes(np.arange(200_000), lows, lows + 300)
    m.save(tmp_path / "saved")
    bm.Matcher.load(tmp_path / "saved")
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        loaded = bm.Matcher.load(tmp_path / "saved")
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.3  # a million within a second, with much to spare
    assert len(loaded) == 200_000
    for part in loaded._stores.snapshot.views:
        assert "_lookup" not in vars(part.store)


def test_several_processes_load_the_same(saved: Path, original: bm.Matcher) -> None:
    script = (
        "import sys, boxmatch as bm\n"
        "m = bm.Matcher.load(sys.argv[1])\n"
        "m.subscribe('mine', 'n = 77')\n"
        "m.unsubscribe('5')\n"
        "print(len(m), len(m.match({'n': 77})), len(m.match({'s': 'am', 'n': 3})))\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(saved)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    shown = [process.communicate(timeout=120)[0].split() for process in running]
    assert shown[0] == shown[1]
    assert int(shown[0][0]) == len(original)
    assert answers(bm.Matcher.load(saved)) == answers(original)


# --- refused ---------------------------------------------------------------------------------


def damage_shorter(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def damage_empty(path: Path) -> None:
    os.truncate(path, 0)


def damage_longer(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"\0")


def damage_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def damage_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def damage_gone(path: Path) -> None:
    path.unlink()


def test_every_file_is_checked(saved: Path) -> None:
    paths = files_of(saved)
    assert len(paths) > 100  # of several segments
    check_damage(saved, paths, damage_middle)


@pytest.mark.parametrize(
    "damage",
    [damage_shorter, damage_empty, damage_longer, damage_last_byte, damage_middle, damage_gone],
)
def test_every_damage_is_noticed(damage: Any, tmp_path: Path) -> None:
    m = bm.Matcher(SCHEMA)
    m.subscribe_many([{"id": f"{n}", "filter": filter_of(n)} for n in range(70)])
    m.unsubscribe("5")
    m.save(tmp_path / "saved")
    paths = files_of(tmp_path / "saved")
    assert len(paths) > 20
    check_damage(tmp_path / "saved", paths, damage)


def check_damage(saved: Path, paths: list[Path], damage: Any) -> None:
    """Damage one file after the other: it is refused by its name, and loads when it is mended."""
    for path in paths:
        content = path.read_bytes()
        damage(path)
        with pytest.raises(bm.StorageError) as refused:
            bm.Matcher.load(saved)
        assert path.name in str(refused.value)
        assert isinstance(refused.value, OSError)
        path.write_bytes(content)
    bm.Matcher.load(saved)


def rewrite_manifest(saved: Path, change: Any) -> None:
    """Alter the manifest and make its checksum right again."""
    path = saved / "manifest.json"
    _, _, text = path.read_text().partition("\n")
    manifest = json.loads(text)
    change(manifest)
    text = json.dumps(manifest)
    path.write_text(f"{xxhash.xxh3_128_hexdigest(text.encode())}\n{text}")


def test_another_format_is_refused(saved: Path) -> None:
    rewrite_manifest(saved, lambda manifest: None)
    bm.Matcher.load(saved)
    rewrite_manifest(saved, lambda manifest: manifest.update(format=999))
    with pytest.raises(bm.StorageError, match=r"manifest\.json.*999"):
        bm.Matcher.load(saved)


@pytest.mark.parametrize(
    "key",
    ["schema", "index", "parameters", "kind", "size", "change", "axes", "segments", "files"],
)
def test_a_manifest_that_lacks_something_is_refused(saved: Path, key: str) -> None:
    rewrite_manifest(saved, lambda manifest: manifest.pop(key))
    with pytest.raises(bm.StorageError, match=r"manifest\.json"):
        bm.Matcher.load(saved)


def test_places_without_a_matcher(original: bm.Matcher, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for place in ("missing", "empty", "file"):
        with pytest.raises(bm.StorageError, match=place):
            bm.Matcher.load(tmp_path / place)


def test_other_peoples_directories_are_left_alone(original: bm.Matcher, tmp_path: Path) -> None:
    foreign = tmp_path / "home"
    (foreign / "data-mine").mkdir(parents=True)
    (foreign / "data-mine" / "letter").write_text("dear")
    (tmp_path / "file").write_text("x")
    with pytest.raises(bm.StorageError, match="home"):
        original.save(foreign)
    with pytest.raises(bm.StorageError, match="file"):
        original.save(tmp_path / "file")
    with pytest.raises(bm.StorageError, match="file"):
        original.save(tmp_path / "file" / "below")
    assert (foreign / "data-mine" / "letter").read_text() == "dear"
    assert files_of(tmp_path) == [tmp_path / "file", foreign / "data-mine" / "letter"]
    (tmp_path / "empty").mkdir()
    original.save(tmp_path / "empty")


# --- saving over, and dying on the way -------------------------------------------------------


def test_saving_over_leaves_only_what_is_needed(saved: Path, original: bm.Matcher) -> None:
    count = len(files_of(saved))
    for _ in range(3):
        original.save(saved)
        assert len(files_of(saved)) == count
        assert len(list(saved.iterdir())) == 2


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`dying(n)`: the n-th step towards the disk does not happen. Returns the steps so far."""
    steps = 0
    last: float = float("inf")

    def counted(function: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps >= last:
                raise Killed
            return function(*arguments, **options)

        return step

    for module, name in (
        (os, "fsync"),
        (os, "replace"),
        (os, "unlink"),
        (os, "mkdir"),
        (np, "save"),
        (shutil, "rmtree"),
    ):
        monkeypatch.setattr(module, name, counted(getattr(module, name)))

    def die(at: float) -> int:
        nonlocal steps, last
        done, steps, last = steps, 0, at
        return done

    yield die
    last = float("inf")


@pytest.mark.parametrize("first", [True, False])
def test_dying_at_any_step(first: bool, dying: Any, tmp_path: Path) -> None:
    small, large = bm.Matcher(SCHEMA), bm.Matcher(SCHEMA)
    small.subscribe("a", "n = 1")
    large.subscribe_many([{"id": f"{n}", "filter": "s > 'a'"} for n in range(5)])
    wanted = {"small": answers(small), "large": answers(large)}
    large.save(tmp_path / "saved")
    dying(float("inf"))
    large.save(tmp_path / "saved")
    steps = dying(float("inf"))
    assert steps > 20
    # Beginning and end, and a few of the many files in between.
    for step in {*range(1, 6), *range(6, steps, 9), *range(steps - 8, steps + 2)}:
        place = tmp_path / f"died-{step}"
        if not first:
            small.save(place)
        dying(step)
        with contextlib.suppress(Killed):
            large.save(place)
        dying(float("inf"))
        if first and not (place / "manifest.json").exists():
            with pytest.raises(bm.StorageError):
                bm.Matcher.load(place)
        else:
            assert answers(bm.Matcher.load(place)) in wanted.values(), step
        # Whoever comes next can save there, and the rubble is gone.
        small.save(place)
        assert answers(bm.Matcher.load(place)) == wanted["small"]
        assert len(list(place.iterdir())) == 2, sorted(p.name for p in place.iterdir())
        shutil.rmtree(place)


SAVE_OVER_AND_OVER = """
import sys
import boxmatch as bm

schema = bm.Schema({"n": "int", "s": "string"})
versions = []
for count in (300, 500):
    m = bm.Matcher(schema)
    m.subscribe_many([{"id": i, "filter": f"n <= {count} OR s = 'x{i}'"} for i in range(count)])
    versions.append(m)
while True:
    for m in versions:
        m.save(sys.argv[1])
        print("saved", flush=True)
"""


def test_killed_at_random_while_saving(tmp_path: Path) -> None:
    place = tmp_path / "saved"
    rng = random.Random(5)
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", SAVE_OVER_AND_OVER, str(place)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "saved\n", child.stderr and child.stderr.read()
            time.sleep(rng.random() * 0.2)
            child.send_signal(signal.SIGKILL)
        assert child.returncode == -signal.SIGKILL
        m = bm.Matcher.load(place)
        assert len(m) in (300, 500)
        assert sorted(m.match({"n": 1})) == list(range(len(m)))
        assert m.match({"n": 1000, "s": "x7"}) == [7]


def test_many_threads_load_while_garbage_is_collected(tmp_path: Path) -> None:
    place = tmp_path / "saved"
    filled(count=20).save(place)
    wanted = answers(bm.Matcher.load(place))

    def take_turns(*_: object) -> None:
        time.sleep(0)  # lets other threads run in the middle of whatever was interrupted

    def load(_: int) -> None:
        for _ in range(10):
            loaded = bm.Matcher.load(place)
        assert answers(loaded) == wanted

    thresholds = gc.get_threshold()
    gc.callbacks.append(take_turns)
    gc.set_threshold(50, 5, 5)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(load, range(4)))
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(take_turns)


def test_two_threads_saving_to_one_place(tmp_path: Path) -> None:
    """The last one wins; neither takes away what the other has just written."""
    place = tmp_path / "saved"
    versions = [filled(count=20), filled(count=30)]
    wanted = [answers(m) for m in versions]
    meet = threading.Barrier(2)

    def save(m: bm.Matcher) -> None:
        try:
            for _ in range(8):
                meet.wait(60)
                m.save(place)
                meet.wait(60)
                assert answers(bm.Matcher.load(place)) in wanted
        except BaseException:
            meet.abort()
            raise

    with ThreadPoolExecutor(2) as pool:
        failures = [pool.submit(save, m).exception for m in versions]
    found = [failure() for failure in failures]
    assert all(isinstance(failure, threading.BrokenBarrierError | None) for failure in found), found
