"""The long calls of the library, beside which an event loop may have to wait."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boxmatch.engine.matcher import Matcher
from boxmatch.model.schema import Schema
from boxmatch.spaces.spaces import Spaces

if TYPE_CHECKING:
    import pyarrow as pa

Call = Callable[[], object]
"""What is measured. It is prepared anew for every round."""

_SCHEMA = Schema({"symbol": "string", "price": "float", "size": "int", "venue": "string"})
_SYMBOLS = 5_000
_FORMS = (
    "symbol = 'S{a}' OR price > {b} AND size < {a}",
    "symbol IN ('S{a}', 'S{b}', 'T{a}') AND NOT price BETWEEN {a} AND {b}",
    "venue LIKE 'V{a}%' AND (price < {a} OR price > {b})",
    "NOT (symbol = 'S{a}' OR venue = 'V{b}') AND size >= {b}",
    "venue LIKE '%{a}%' AND price > {b}",
)


class Supplies:
    """What calls work on; the parts that they leave as they are, are made once."""

    def __init__(self, folder: Path, *, scale: float = 1.0, seed: int = 1) -> None:
        self._folder = folder
        self._scale = scale
        self._seed = seed
        self._names = count()

    def many(self, number: int) -> int:
        """So many at this scale."""
        return max(1, round(number * self._scale))

    def new_folder(self) -> Path:
        return self._folder / f"matcher-{next(self._names)}"

    # To subscribe

    @cached_property
    def texts(self) -> list[dict[str, Any]]:
        return [
            {
                "id": n,
                "filter": f"symbol = 'S{n % _SYMBOLS}' AND price BETWEEN {n % 977} AND {1000 + n}",
            }
            for n in range(self.many(100_000))
        ]

    @cached_property
    def texts_with_or(self) -> list[dict[str, Any]]:
        return [
            {"id": n, "filter": _FORMS[n % 5].format(a=n % 991, b=1000 + n % 4999)}
            for n in range(self.many(20_000))
        ]

    @cached_property
    def dicts(self) -> list[dict[str, Any]]:
        return [
            {"id": n, "filter": {"symbol": f"S{n % _SYMBOLS}", "price": (n % 977, 1000 + n)}}
            for n in range(self.many(100_000))
        ]

    @cached_property
    def bounds(self) -> pa.Table:
        return self._bounds(1_000_000, _SYMBOLS)

    @cached_property
    def bounds_of_strings(self) -> pa.Table:
        """As many strings as there are rows, and string ids."""
        import pyarrow as pa

        table = self._bounds(500_000, 500_000)
        ids = [f"subscription-{n}" for n in range(table.num_rows)]
        return table.set_column(0, "id", pa.array(ids))

    def _bounds(self, rows: int, symbols: int) -> pa.Table:
        import pyarrow as pa

        rows = self.many(rows)
        low = np.random.default_rng(self._seed).uniform(0, 900, rows)
        named = [f"S{n % symbols}" for n in range(rows)]
        columns = {"id": np.arange(rows), "symbol": named, "price_low": low, "price_high": low + 20}
        return pa.table(columns)

    # Matchers that have them

    @cached_property
    def matcher(self) -> Matcher:
        return _matcher(self.bounds)

    @cached_property
    def matcher_of_strings(self) -> Matcher:
        """With string ids, of which an event matches many."""
        return _matcher(self.bounds_of_strings.drop_columns(["symbol"]))

    @cached_property
    def matcher_of_texts(self) -> Matcher:
        return _matcher(self.texts)

    @cached_property
    def saved(self) -> Path:
        """Where a matcher with string ids is saved."""
        path = self.new_folder()
        self.matcher_of_strings.save(path)
        return path

    @cached_property
    def durable(self) -> Path:
        """Where a matcher is open that may have its last changes in the journal, or in files."""
        path = self.new_folder()
        self._writer = Matcher.open(path, _SCHEMA, sync="normal")
        self._writer.subscribe_many(self.texts_with_or)
        for one in self.texts[: self.many(5_000)]:
            self._writer.subscribe(one["id"], one["filter"])
        return path

    # To match

    def events(self, number: int) -> list[dict[str, Any]]:
        chance = random.Random(self._seed)
        return [
            {
                "symbol": f"S{chance.randrange(_SYMBOLS)}",
                "price": chance.uniform(0, 1000),
                "size": chance.randrange(1000),
                "venue": f"V{chance.randrange(1000)}",
            }
            for _ in range(self.many(number))
        ]

    def table(self, number: int) -> pa.Table:
        import pyarrow as pa

        return pa.Table.from_pylist(self.events(number))


def _matcher(table: Any) -> Matcher:
    matcher = Matcher(_SCHEMA)
    matcher.subscribe_many(table)
    return matcher


def _nothing(supplies: Supplies) -> Call:
    def loop() -> None:
        for _ in range(supplies.many(20_000_000)):
            pass

    return loop


def _subscribe(name: str) -> Callable[[Supplies], Call]:
    def prepare(supplies: Supplies) -> Call:
        table, matcher = getattr(supplies, name), Matcher(_SCHEMA)
        return lambda: matcher.subscribe_many(table)

    return prepare


def _subscribe_boxes(supplies: Supplies) -> Call:
    rows = supplies.many(1_000_000)
    low = np.random.default_rng(1).uniform(0, 900, (rows, 4))
    matcher = Matcher({f"a{number}": "float" for number in range(4)})
    return lambda: matcher.subscribe_boxes(np.arange(rows), low, low + 20)


def _subscribe_durably(supplies: Supplies) -> Call:
    texts = supplies.texts
    matcher = Matcher.open(supplies.new_folder(), _SCHEMA, sync="normal")

    def load() -> None:
        matcher.subscribe_many(texts)
        matcher.close()

    return load


def _match(events: Callable[[Supplies], Any], matcher: str) -> Callable[[Supplies], Call]:
    def prepare(supplies: Supplies) -> Call:
        batch, held = events(supplies), getattr(supplies, matcher)
        return lambda: held.match_batch(batch)

    return prepare


def _count(supplies: Supplies) -> Call:
    events, matcher = supplies.events(20_000), supplies.matcher
    return lambda: matcher.count_batch(events)


def _to_arrow(supplies: Supplies) -> Call:
    result = supplies.matcher_of_strings.match_batch(supplies.events(500))
    return result.to_arrow


def _to_pandas(supplies: Supplies) -> Call:
    result = supplies.matcher_of_strings.match_batch(supplies.events(500))
    return result.to_pandas


def _compact(supplies: Supplies) -> Call:
    matcher = _matcher(supplies.bounds_of_strings)
    matcher.subscribe_many(supplies.bounds_of_strings.slice(0, supplies.many(100_000)))
    return matcher.compact


def _save(matcher: str) -> Callable[[Supplies], Call]:
    def prepare(supplies: Supplies) -> Call:
        held, path = getattr(supplies, matcher), supplies.new_folder()
        return lambda: held.save(path)

    return prepare


def _load(supplies: Supplies) -> Call:
    path = supplies.saved
    return lambda: Matcher.load(path)


def _open(supplies: Supplies) -> Call:
    path = supplies.durable

    def read() -> None:
        Matcher.open(path, read_only=True).close()

    return read


def _unsubscribe(table: str) -> Callable[[Supplies], Call]:
    def prepare(supplies: Supplies) -> Call:
        matcher = _matcher(getattr(supplies, table))
        ids = matcher.ids()[: supplies.many(100_000)]
        return lambda: matcher.unsubscribe_many(ids)

    return prepare


def _ids(matcher: str) -> Callable[[Supplies], Call]:
    return lambda supplies: getattr(supplies, matcher).ids


def _items(supplies: Supplies) -> Call:
    matcher = supplies.matcher_of_texts
    return lambda: [None for _ in matcher.items()]


def _load_spaces(supplies: Supplies) -> Call:
    spaces, publications, subscriptions = _spaces(supplies)
    return lambda: spaces.load(publications=publications, subscriptions=subscriptions)


def _move(supplies: Supplies) -> Call:
    spaces, publications, subscriptions = _spaces(supplies)
    spaces.load(publications=publications, subscriptions=subscriptions)
    moved = [{"x": one["x"] + 3.0} for one in publications.values()]
    return lambda: spaces.update_publications(list(publications), moved)


def _spaces(supplies: Supplies) -> tuple[Spaces, dict[int, Any], dict[int, Any]]:
    rows = supplies.many(50_000)
    place = np.random.default_rng(1).uniform(0, 10_000, (rows, 2)).tolist()
    publications = {n: {"x": x, "y": y} for n, (x, y) in enumerate(place)}
    subscriptions = {n: {"x": (x, x + 20), "y": (y, y + 20)} for n, (x, y) in enumerate(place)}
    return Spaces({"map": {"x": "float", "y": "float"}}), publications, subscriptions


CASES: dict[str, Callable[[Supplies], Call]] = {
    "a loop in Python that does nothing": _nothing,
    "subscribe_many of 100,000 texts": _subscribe("texts"),
    "subscribe_many of 20,000 texts with OR, IN, NOT and LIKE": _subscribe("texts_with_or"),
    "subscribe_many of 100,000 dicts": _subscribe("dicts"),
    "subscribe_many of 1,000,000 rows of bounds": _subscribe("bounds"),
    "subscribe_many of 500,000 rows of bounds, string ids": _subscribe("bounds_of_strings"),
    "subscribe_many of 100,000 texts, durable": _subscribe_durably,
    "subscribe_boxes of 1,000,000": _subscribe_boxes,
    "match_batch of 2,000 dicts": _match(lambda one: one.events(2_000), "matcher"),
    "match_batch of 20,000 dicts": _match(lambda one: one.events(20_000), "matcher"),
    "match_batch of 500 dicts, string ids, many matches": _match(
        lambda one: one.events(500), "matcher_of_strings"
    ),
    "match_batch of 200,000 rows of Arrow": _match(lambda one: one.table(200_000), "matcher"),
    "count_batch of 20,000 dicts": _count,
    "to_arrow, string ids": _to_arrow,
    "to_pandas, string ids": _to_pandas,
    "compact of 600,000 rows, string ids": _compact,
    "save of 1,000,000": _save("matcher"),
    "save of 500,000, string ids": _save("matcher_of_strings"),
    "Matcher.load of 500,000, string ids": _load,
    "Matcher.open of 20,000 texts, to read": _open,
    "unsubscribe_many of 100,000": _unsubscribe("bounds"),
    "unsubscribe_many of 100,000, string ids": _unsubscribe("bounds_of_strings"),
    "ids of 1,000,000": _ids("matcher"),
    "ids of 500,000, strings": _ids("matcher_of_strings"),
    "items of 100,000 texts": _items,
    "Spaces.load of 50,000 and 50,000": _load_spaces,
    "Spaces.update_publications of 50,000": _move,
}
"""The calls by name, at scale 1."""
