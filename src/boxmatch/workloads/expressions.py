"""Range subscriptions of which some also compare an expression with a constant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.model.boxes import Boxes
from boxmatch.model.schema import Schema
from boxmatch.workloads import streams
from boxmatch.workloads.distributions import check_between
from boxmatch.workloads.ranges import RangeWorkload
from boxmatch.workloads.texts import make_titles, make_words

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBERS: Final = 20
"""Attributes of numbers that the expressions need."""
_CITIES: Final = 200
_DAY: Final = 86_400_000_000


class Template(NamedTuple):
    """An expression, how it is compared, and with constants between which two.

    These are multiplied by the domain as often as `power` says. Without an operator the expression
    is a condition itself.
    """

    expression: str
    operator: Literal["<", "<=", ">", ">=", "=", ""] = ""
    low: float = 0
    high: float = 1
    power: int = 0

    def wanted(self, constant: int) -> Any:
        """What a filter in dict form wants of the expression."""
        if not self.operator:
            return True
        if self.operator == "=":
            return city_name(constant)
        end = "low" if self.operator[0] == ">" else "high"
        return {end: constant, f"{end}_open": len(self.operator) == 1}


EXPRESSIONS: Final = (
    Template("a0 * a1", ">", 0.05, 0.5, 2),
    Template("a2 + a3", "<", 0.5, 1.5, 1),
    Template("abs(a4 - a5)", "<", 0.1, 0.6, 1),
    Template("a6 - a7", ">=", 0.0, 0.5, 1),
    Template("2 * a8 + a9", "<=", 1.0, 2.0, 1),
    Template("a10 % 1000", "<", 200, 800),
    Template("greatest(a11, a12)", "<", 0.4, 0.9, 1),
    Template("least(a13, a14)", ">", 0.1, 0.6, 1),
    Template("a15 / a16", ">", 0, 3),
    Template("coalesce(discount, 0)", ">=", 0, 60),
    Template("price * (100 - coalesce(discount, 0)) / 100", "<", 200, 900),
    Template("floor(price)", ">", 100, 800),
    Template("hour(moment)", ">=", 6, 18),
    Template("month(moment)", "<=", 3, 10),
    Template("length(title)", ">", 20, 70),
    Template("lower(city)", "=", 0, _CITIES),
    Template("a17 > a18"),
    Template("a19 + a0 > a1 + a2"),
    Template("a3 * 2 <= a4 + a5"),
    Template("CASE WHEN discount > 30 THEN price ELSE 2 * price END", "<", 100, 1500),
)
"""Products, sums, functions of numbers, moments and texts, and comparisons of attributes."""


def city_name(number: int) -> str:
    """A city in lower case; in events it begins with a capital."""
    return f"city-{number:03}"


@dataclass(frozen=True, kw_only=True)
class ExpressionWorkload:
    """Subscriptions of `predicates` ranges, of which the first `share` also have an expression.

    The ranges, and the attributes that these are about, are those of `RangeWorkload`. Which of the
    20 `EXPRESSIONS` a subscription compares, and with which constant, is drawn uniformly. Events
    also have a price, a discount (every fourth has none), a moment, a city and a title.
    """

    subscriptions: int = 1_000_000
    share: float = 0.5
    attributes: int = 20
    predicates: int = 10
    width: float = 0.3
    domain: int = 1_000_000
    seed: int = 1

    def __post_init__(self) -> None:
        check_between(self, 0, 1, "share")
        check_between(self, _NUMBERS, 65_000, "attributes")
        _ = self.ranges

    @cached_property
    def ranges(self) -> RangeWorkload:
        """The ranges alone."""
        return RangeWorkload(
            subscriptions=self.subscriptions,
            attributes=self.attributes,
            predicates=self.predicates,
            event_size=self.attributes,
            width=self.width,
            domain=self.domain,
            seed=self.seed,
        )

    @property
    def schema(self) -> Schema:
        """The numbers, and what the expressions are about besides them."""
        return Schema(
            dict.fromkeys(self.ranges.names, "int")
            | {"price": "float", "discount": "int", "moment": "timestamp"}
            | {"city": "string", "title": "string"}
        )

    @property
    def with_expression(self) -> int:
        """So many subscriptions, the first ones, have an expression; so do those for updates."""
        return math.ceil(self.share * self.subscriptions)

    def boxes(self, start: int, stop: int) -> Boxes:
        """The ranges of subscriptions `start:stop`, over all attributes of the schema."""
        return self.ranges.boxes(start, stop)._replace(dimensions=len(self.schema))

    def expressions(
        self, start: int, stop: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """For subscriptions `start:stop` the number of the expression, -1 for none; a constant."""

        def make(rng: np.random.Generator, rows: int) -> dict[str, npt.NDArray[np.int64]]:
            number = rng.integers(0, len(EXPRESSIONS), rows)
            scale = np.array([float(self.domain) ** one.power for one in EXPRESSIONS])
            low = np.array([one.low for one in EXPRESSIONS]) * scale
            high = np.array([one.high for one in EXPRESSIONS]) * scale
            constant = rng.uniform(low[number], high[number]).astype(np.int64)
            return {"number": number, "constant": constant}

        drawn = streams.columns(self.seed, "expressions", start, stop, make)
        row = np.arange(start, stop)
        has_none = (row >= self.with_expression) & (row < self.subscriptions)
        if self.share == 0:
            has_none[:] = True
        return np.where(has_none, -1, drawn["number"]), drawn["constant"]

    def filters(self, start: int, stop: int) -> list[dict[str, Any]]:
        """Subscriptions `start:stop` as filters in dict form."""
        filters: list[dict[str, Any]] = [*self.ranges.filters(start, stop)]
        drawn = (column.tolist() for column in self.expressions(start, stop))
        for one, number, constant in zip(filters, *drawn, strict=True):
            if number >= 0:
                template = EXPRESSIONS[number]
                one[template.expression] = template.wanted(constant)
        return filters

    def events(self, start: int, stop: int) -> pa.Table:
        """Events `start:stop` as an Arrow table."""
        import pyarrow as pa

        numbers = self.ranges.event_keys(start, stop)
        others = streams.columns(self.seed, "other values", start, stop, _make_others)
        cities = pa.array([city_name(one).capitalize() for one in range(_CITIES)])
        titles = make_titles(self.seed, make_words(self.seed, 10_000), 80, start, stop)
        lengths = others["length"].tolist()
        return pa.table(
            {
                **dict(zip(self.ranges.names, np.ascontiguousarray(numbers.T), strict=True)),
                "price": others["price"] / 100,
                "discount": pa.array(others["discount"], mask=others["discount"] >= 75),
                "moment": pa.array(others["moment"], pa.int64()).cast(pa.timestamp("us", "UTC")),
                "city": cities.take(others["city"]),
                "title": [one[:length] for one, length in zip(titles, lengths, strict=True)],
            }
        )

    def event_dicts(self, start: int, stop: int) -> list[dict[str, Any]]:
        """The same as dicts."""
        import pyarrow as pa

        table = self.events(start, stop)
        columns = [
            [_EPOCH + timedelta(microseconds=one) for one in _numbers(column.cast(pa.int64()))]
            if name == "moment"
            else column.to_pylist()
            for name, column in zip(table.column_names, table.columns, strict=True)
        ]
        rows = zip(*columns, strict=True)
        return [dict(zip(table.column_names, row, strict=True)) for row in rows]


def _numbers(column: pa.ChunkedArray[Any]) -> list[int]:
    found: list[int] = column.to_numpy().tolist()
    return found


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _make_others(rng: np.random.Generator, rows: int) -> dict[str, npt.NDArray[np.int64]]:
    return {
        "price": rng.integers(100, 100_000, rows),
        "discount": rng.integers(0, 100, rows),
        "moment": rng.integers(19_000 * _DAY, 21_000 * _DAY, rows),
        "city": rng.integers(0, _CITIES, rows),
        "length": rng.integers(10, 81, rows),
    }
