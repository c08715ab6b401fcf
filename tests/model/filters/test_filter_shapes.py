"""The cache of templates: what it may take for granted, and how large it may grow."""

from __future__ import annotations

import threading
import time

import pytest

from boxmatch.errors import FilterError
from boxmatch.model.filters import compile_filter, compile_many
from boxmatch.model.filters.shapes import ShapeCache
from boxmatch.model.schema import Schema

SCHEMA = Schema(
    {"symbol": "string", "price": "float", "volume": "int", "it's 5": "int", "x1": "int"}
)


@pytest.mark.parametrize(
    "text",
    [
        "symbol = 'a' AND price BETWEEN 1.5 AND 2e3 AND volume > 10",
        "volume = -5 AND x1 >= - 7",
        "symbol = 'it''s' OR symbol IN ('''', 'a', 'a')",
        "symbol LIKE 'ab%' AND NOT volume = 3",
        "'a' < symbol AND 3>volume",
        "symbol = '-- 5' AND volume = 5",
        "volume = 1 AND volume = 1",
        "volume IS NULL AND price IS NOT NULL AND volume = NULL",
    ],
)
def test_common_shapes_have_a_template(text: str) -> None:
    cache = ShapeCache()
    first = cache.find(SCHEMA, text)
    assert first is not None
    assert cache.find(SCHEMA, text) == first
    assert len(cache) == 1


@pytest.mark.parametrize(
    "text",
    [
        "volume = 1 --",
        "volume = 1 -- AND price = 2",
        "volume = 1 /* 5 */ AND price = 2",
        "volume = 5 - -5",
        "volume = 5 --5",
        "\"it's 5\" = 1 AND symbol = 'x'",
        "symbol = N'a'",
        "symbol = 'a' 'b'",
        "price = .5",
        "price = 5.",
        "price = 5. AND volume = 1",
        "volume = 1_000",
        "volume = 1e",
        "price = 1.5e",
        "symbol = 'a",
        "volume IN (1, 2) AND f(3) = 4",
        "at > INTERVAL '1' day",
        "volume = 1 OR " * 500 + "volume = 1",
    ],
)
def test_unusual_and_long_texts_have_none(text: str) -> None:
    assert ShapeCache().find(SCHEMA, text) is None


@pytest.mark.parametrize("start", ["a" * 3000, "'" * 3001, '"' * 3001, "1." * 1500, "9" * 3000])
def test_the_scan_does_not_backtrack(start: str) -> None:
    begin = time.perf_counter()
    assert ShapeCache().find(SCHEMA, start + " ; # '") is None
    assert time.perf_counter() - begin < 1.0


def test_constants_do_not_leak_from_one_filter_to_the_next() -> None:
    texts = [f"symbol = '{s}' AND volume > {v}" for s in ("a", "b''c", "") for v in (1, 22, 2.0)]
    wanted = [(s, v + 1) for s in ("a", "b'c", "") for v in (1, 22, 2)]
    for compiled, (text, low) in zip(compile_many(SCHEMA, texts), wanted, strict=True):
        ((_, _, (equal, _)), (_, above, _)) = compiled.boxes[0]  # type: ignore[misc]
        assert (equal, above) == (text, low)


def test_lists_of_different_length_are_different_shapes() -> None:
    cache = ShapeCache()
    for text in ("volume IN (1)", "volume IN (1, 3)", "volume IN (1, 3, 5)", "volume IN (2, 4, 6)"):
        assert cache.find(SCHEMA, text) is not None
        assert len(compile_filter(SCHEMA, text).boxes) == text.count(",") + 1
    assert len(cache) == 3


def test_a_pattern_that_is_no_prefix_is_refused_after_one_that_is() -> None:
    compile_filter(SCHEMA, "symbol LIKE 'ab%'")
    with pytest.raises(FilterError) as caught:
        compile_filter(SCHEMA, "symbol LIKE 'a%b'")
    assert caught.value.position == 12


def test_schemas_do_not_share_templates() -> None:
    other = Schema({"volume": "float"})
    assert compile_filter(SCHEMA, "volume = 1").boxes != compile_filter(other, "volume = 1").boxes


def test_the_cache_drops_the_shape_not_used_for_longest() -> None:
    cache = ShapeCache(most=2)
    one, two, three = "volume = 1", "volume < 1", "volume > 1"
    kept = cache.find(SCHEMA, one)
    dropped = cache.find(SCHEMA, two)
    cache.find(SCHEMA, one)
    cache.find(SCHEMA, three)
    assert len(cache) == 2
    assert kept is not None
    assert dropped is not None
    again = cache.find(SCHEMA, one), cache.find(SCHEMA, two)
    assert again[0] is not None
    assert again[0][0] is kept[0]
    assert again[1] is not None
    assert again[1][0] is not dropped[0]


def test_threads_share_the_cache() -> None:
    cache = ShapeCache(most=3)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for i in range(300):
                name = SCHEMA.names[(i + seed) % 3]
                text = f"{name} = {i}" + f" OR {name} > {i}" * (i % 4)
                found = cache.find(SCHEMA, text)
                assert found is not None
                assert found[1][0] == str(i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(cache) <= 3


def test_many_filters_of_one_shape_are_quick() -> None:
    texts = [
        f"symbol = 'S{i}' AND price BETWEEN {i / 4} AND {i / 2 + 1} AND volume > {i}"
        for i in range(10_000)
    ]
    start = time.thread_time()
    compiled = compile_many(SCHEMA, texts)
    # Ten seconds for 100,000 are allowed; this takes a tenth of that.
    assert time.thread_time() - start < 1.0
    assert len({each.boxes for each in compiled}) == len(texts)
