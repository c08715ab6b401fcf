"""Forms of filters that are easily lost: each against events that it wants and does not want."""

from __future__ import annotations

from typing import Any, Final

import pytest

import boxmatch as bm

SCHEMA: Final = bm.Schema(
    {
        "symbol": "string",
        "title": "string",
        "price": "float",
        "long": "decimal(38, 2)",
        "sides": {"type": "list of enum", "values": ["Buy", "Sell"]},
        "tags": "list of string",
        "prices": "list of float",
        "items": {"type": "list of struct", "fields": {"kind": "string", "price": "float"}},
    }
)
EVENT: Final = {
    "symbol": "IBM",
    "title": "Quarterly Report",
    "price": 20.0,
    "long": "5.00",
    "sides": ["Buy", "Sell"],
    "tags": ["urgent", "eu"],
    "prices": [5.0, 12.0],
    "items": [{"kind": "a", "price": 11.0}, {"kind": "b", "price": 3.0}],
}

WANTED: Final[list[Any]] = [
    # One key of the filter's own axis stands for all that lies between two constants.
    "symbol NOT IN ('A', 'Z') OR NOT CONTAINS(title, 'Report')",
    "long NOT IN (1, 9) OR NOT CONTAINS(title, 'Report')",
    "tags && ARRAY['urgent', 'x']",
    "ARRAY['x', 'eu'] && tags",
    "tags @> ARRAY['urgent', 'eu'] AND price > 3",
    "ARRAY['urgent'] <@ tags",
    "tags <@ ARRAY['a', 'eu', 'urgent']",
    "prices <@ ARRAY[5, price - 8]",
    "ALL(tags) IN ('urgent', 'eu')",
    "ALL(tags) LIKE '%u%'",
    "ALL(tags) RLIKE '[ue]'",
    "ANY(tags) ILIKE 'URG%'",
    "ANY(tags) ILIKE '%RG%'",
    "ANY(tags) RLIKE '^u'",
    "ANY(sides) ILIKE 'sel%'",
    "SOME(prices) > 10",
    "10 < SOME(prices)",
    "ALL(prices) BETWEEN 1 AND price",
    "title ~ 'Rep'",
    "title LIKE ALL ('Q%', '%t')",
    "CAST(price AS DECIMAL(10, 2)) = 20",
    r"CASE WHEN title LIKE '\Q%' THEN TRUE END",
    "items[0].kind = 'a'",
    "items[0].price * 2 > 20",
    {"tags": {"ilike": "URG%"}},
    {"tags": {"rlike": "^e"}},
]

UNWANTED: Final[list[Any]] = [
    "symbol NOT IN ('A', 'IBM') OR NOT CONTAINS(title, 'Report')",
    "NOT tags && ARRAY['urgent', 'x']",
    "tags @> ARRAY['urgent', 'x']",
    "tags <@ ARRAY['urgent', 'x']",
    "ALL(tags) IN ('urgent')",
    "ANY(prices) NOT IN (5, 12)",
    "title !~ 'Rep'",
    "title LIKE ALL ('Q%', '%x')",
    {"tags": {"ilike": "X%"}},
]


@pytest.mark.parametrize(
    ("filter", "wanted"), [*((f, True) for f in WANTED), *((f, False) for f in UNWANTED)]
)
@pytest.mark.parametrize("index", ["tile", "rein"])
def test_filter(filter: Any, wanted: bool, index: str) -> None:
    matcher = bm.Matcher(SCHEMA, index=index)
    matcher.subscribe("one", filter)
    assert bool(matcher.match(EVENT)) is wanted
    assert matcher.match_batch([EVENT, {}]).counts.tolist() == [int(wanted), 0]
    matcher.subscribe("again", matcher.filter_of("one", as_written=False))
    assert len(matcher.match(EVENT)) == 2 * wanted


REFUSED: Final[list[tuple[Any, str]]] = [
    ("CAST(price AS DECIMAL(50, 2)) = 20", "DECIMAL(50, 2) is not possible"),
    ("CAST(price AS DECIMAL(p)) = 20", "write a decimal with its digits"),
    ("CAST(price AS DECIMAL(5, 2, 1)) = 20", "write a decimal with its digits"),
    ("LENGTH(symbol, 3) = 3", "LENGTH() with 2 arguments"),
    ("LOCATE('B', symbol, 2) = 2", "with 3 arguments"),
    ("ARRAY_CONTAINS(tags, 'a', 'b')", "with 3 arguments"),
    ("CONTAINS(title, 'a', 'b')", "with 3 arguments"),
    ("TS_OR_DS_TO_DATE_STR() = 'a'", "is not supported"),
    ("RAND() > 0.5", "RAND() is not supported: a filter depends on the event alone"),
    ("EXISTS (SELECT 1)", "a subquery is not supported: a filter depends on the event alone"),
    ("price > ALL (SELECT 1)", "a subquery"),
    ("LPAD(symbol, 5, 'x') = 'x'", "PAD() is not supported"),
    ("price & 3 = 1", "the operator & is not supported"),
    ("(symbol).length = 3", "a field of a value"),
    ("ANY(prices) LIKE 'a%'", "LIKE needs a string or enum attribute"),
    ("title ~* 'a'", "(?i)"),
    ({f"price + {n}": 1 for n in range(300)}, "at most 256 different expressions"),
    ({"price +" + " " * 1_000_000 + "1": 1}, "at most 1,000,000 characters"),
]


@pytest.mark.parametrize(("filter", "says"), REFUSED, ids=range(len(REFUSED)))
def test_refused(filter: Any, says: str) -> None:
    with pytest.raises(bm.FilterError) as caught:
        bm.Matcher(SCHEMA).subscribe("one", filter)
    assert says in caught.value.reason
