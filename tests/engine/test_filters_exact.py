"""Filters and events for which an expression, a list or a residual once gave the wrong answer."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import boxmatch as bm
from boxmatch.model.filters import compile_filter

SCHEMA = bm.Schema(
    {
        "city": "string",
        "title": "string",
        "n": "int",
        "cost": "decimal(38, 2)",
        "tags": "list of string",
        "sizes": "list of int",
        "costs": "list of decimal(5, 2)",
    }
)
LONG = Decimal("123456789012345678901234567890123456.78")
NEARLY = "1.229999999999999999999999999999999999"

# A filter, an event that it wants, and one that it does not.
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    # A residual of all that is between two constants, and of neither.
    ("city NOT IN ('a', 'c') OR NOT title LIKE '%x%'", {"city": "b", "title": "x"},
     {"city": "c", "title": "x"}),
    ("cost NOT IN (1, 3) OR NOT title LIKE '%x%'", {"cost": 2, "title": "x"},
     {"cost": 3, "title": "x"}),
    ("NOT EXISTS(tags, x -> x > 'a' AND x < 'c')", {"tags": ["c"]}, {"tags": ["b"]}),
    # NULLs among elements, where it is false and not unknown that they are as wanted.
    ("NOT EXISTS(sizes, x -> x IS NOT NULL AND x > 5)", {"sizes": [None, 3]}, {"sizes": [6]}),
    ("NOT EXISTS(sizes, x -> x > 5)", {"sizes": [3]}, {"sizes": [None, 3]}),
    ("NOT EXISTS(sizes, x -> x IS NOT NULL)", {"sizes": [None]}, {"sizes": [1]}),
    ("NOT EXISTS(sizes, x -> x > NULL AND x > 5)", {"sizes": [3]}, {"sizes": [6]}),
    ("NOT ANY(sizes) BETWEEN 5 AND NULL", {"sizes": [3]}, {"sizes": [6]}),
    # Each element, though not all the same one.
    ("ALL(sizes) IN (1, 2)", {"sizes": [1, 2]}, {"sizes": [1, 3]}),
    # The escape character is looked for in the folded pattern, as Spark does.
    ("city ILIKE 'aB%' ESCAPE 'B'", {"city": "ABC"}, {"city": "a%"}),
    # Positions from 0 on, none of them from the end.
    ("sizes[n] = 3", {"sizes": [1, 3], "n": 1}, {"sizes": [1, 3], "n": -2}),
    # More digits than Python's decimals have by default.
    (f"ABS(cost) = {LONG}", {"cost": LONG}, {"cost": LONG - 1}),
    (f"CASE WHEN cost > {NEARLY} THEN 1 END = 1", {"cost": Decimal("1.23")},
     {"cost": Decimal("1.22")}),
]  # fmt: skip


@pytest.mark.parametrize(("filter", "wanted", "other"), CASES, ids=[case[0] for case in CASES])
def test_one_event_and_a_batch_get_the_same_answer(
    filter: str, wanted: dict[str, Any], other: dict[str, Any]
) -> None:
    matcher = bm.Matcher(SCHEMA)
    matcher.subscribe(0, filter)
    matcher.subscribe(1, matcher.filter_of(0, as_written=False))
    assert sorted(matcher.match(wanted)) == [0, 1]
    assert list(matcher.match(other)) == []
    assert matcher.match_batch([wanted, other] * 20).counts.tolist() == [2, 0] * 20


def test_what_others_subscribe_to_while_a_text_is_searched_is_no_trouble() -> None:
    matcher = bm.Matcher(SCHEMA)
    matcher.subscribe(0, "title LIKE '%ab%'")
    snapshot = matcher._stores.snapshot
    [reader] = snapshot.encoder._derived
    finder = reader.finder
    assert finder is not None
    find_one = finder.find_one

    class Slow:
        """A finder that learns another string between being asked and answering."""

        def __len__(self) -> int:
            return len(finder)

        def add(self, patterns: Any) -> None:
            finder.add(patterns)

        def find_one(self, text: str) -> list[int]:
            reader.finder = finder
            matcher.subscribe(1, "title LIKE '%cd%'")
            matcher.match({"title": "cd"})
            return find_one(text)

    reader.finder = Slow()  # type: ignore[assignment]
    [(points, _)] = snapshot.encoder.one({"title": "abcd"}, snapshot.reader)
    assert points.lists is not None
    assert len(points.lists.keys) == 2


def test_an_index_without_lists_takes_events_that_have_some() -> None:
    matcher = bm.Matcher(SCHEMA, index="rein")
    matcher.subscribe(0, "'a' = ANY(tags) AND n = 1")
    matcher.subscribe(1, "n = 1")
    matcher.compact()
    assert sorted(matcher.match({"n": 1, "tags": ["b", "a"]})) == [0, 1]
    assert matcher.match_batch([{"n": 1, "tags": ["b"]}]).subscription.tolist() == [1]
    assert matcher.count_batch([{"n": 1, "tags": ["a"]}]).tolist() == [2]


def test_what_is_taken_over_is_on_no_more_axes_than_there_are() -> None:
    matcher = bm.Matcher(SCHEMA)
    matcher.subscribe(0, "LENGTH(title) = 1 AND REVERSE(city) = 'a'")
    matcher.subscribe(1, "n = 1")
    other = bm.Matcher(SCHEMA)
    other.subscribe_from([(matcher, np.array([-1, 7]))])
    assert list(other.match({"n": 1})) == [7]
    assert other.match_batch([{"n": 1}]).subscription.tolist() == [7]


def test_only_a_schema_may_be_taken_over_that_is_the_beginning() -> None:
    matcher = bm.Matcher({"b": "int", "a": "int"})
    other = bm.Matcher({"a": "int", "b": "int"})
    with pytest.raises(bm.SchemaError, match="this one begins with"):
        other.subscribe_from([(matcher, np.arange(0))])


def test_a_long_pattern_is_refused_before_it_is_searched_for() -> None:
    matcher = bm.Matcher(SCHEMA)
    with pytest.raises(bm.FilterError, match="at most 10,000 characters"):
        matcher.subscribe(0, f"title LIKE '{'_' * 60_000}'")
    assert list(matcher.match({"title": "a"})) == []


@pytest.mark.parametrize("condition", ["= '\ud800'", "LIKE '%\ud800%'", "LIKE '\ud800%'", "\ud800"])
def test_what_is_no_text_is_refused_with_its_place(condition: str) -> None:
    matcher = bm.Matcher(SCHEMA)
    matcher.subscribe(0, "title LIKE 'a%'")  # a template that the next one could be made from
    with pytest.raises(bm.FilterSyntaxError, match="lone surrogate") as caught:
        matcher.subscribe(1, f"title {condition}")
    assert caught.value.position == f"title {condition}".index("\ud800")
    assert list(matcher.match({"title": "a"})) == [0]


def test_texts_do_not_grow_for_ever() -> None:
    text = "title"
    for _ in range(20):
        text = f"REPLACE({text}, 'a', 'aaaaaaaaaaaaaaaa')"
    matcher = bm.Matcher(SCHEMA)
    with pytest.raises(bm.FilterError, match="could get too long"):
        matcher.subscribe(0, f"{text} IS NULL")
    matcher.subscribe(1, "LENGTH(REPLACE(REPLACE(title, 'a', 'aaaa'), 'a', 'aaaa')) = 16")
    assert list(matcher.match({"title": "a"})) == [1]
    assert matcher.match_batch([{"title": "a"}, {"title": "b"}]).counts.tolist() == [1, 0]


def test_equal_expressions_share_an_axis_however_they_are_written() -> None:
    one = compile_filter(SCHEMA, "LENGTH(title) > 1 AND n + 1 = 2 AND EXISTS(sizes, i -> i > n)")
    other = compile_filter(SCHEMA, "EXISTS(sizes, x -> n < x) AND 1 + n = 2 AND 1 < LENGTH(title)")
    assert one == other


@pytest.mark.parametrize(
    "filters",
    [
        ("n > size", "size < n", "NOT n <= size", "NOT (size >= n)"),
        ("n = size", "NOT n <> size", "NOT (size <> n)"),
    ],
)
def test_what_differs_by_not_shares_an_axis(filters: tuple[str, ...]) -> None:
    schema = bm.Schema({"n": "int", "size": "int"})
    assert len({compile_filter(schema, filter) for filter in filters}) == 1
    matcher = bm.Matcher(schema)
    for id, filter in enumerate((*filters, *(f"NOT ({one})" for one in filters))):
        matcher.subscribe(id, filter)
    assert matcher.info().expressions == 1
    for event in ({"n": 1, "size": 2}, {"n": 2, "size": 1}, {"n": 1, "size": 1}, {"n": 1}):
        found = sorted(matcher.match(event))  # type: ignore[type-var]
        assert len(found) in ([len(filters)] if "size" in event else [0])


def test_an_attribute_may_be_called_as_elements_are() -> None:
    schema = bm.Schema({"element": "int", "sizes": "list of int"})
    matcher = bm.Matcher(schema)
    matcher.subscribe(0, "ANY(sizes) = element")
    matcher.subscribe(1, matcher.filter_of(0, as_written=False))
    assert sorted(matcher.match({"element": 1, "sizes": [1]})) == [0, 1]
    assert list(matcher.match({"element": 1, "sizes": [2]})) == []
