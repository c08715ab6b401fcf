"""A made-up market: a feed of ticks, and traders' standing alerts of several shapes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from boxmatch.model.schema import Schema
from boxmatch.workloads import streams
from boxmatch.workloads.distributions import check_between, zipf_cumulative

if TYPE_CHECKING:
    import pyarrow as pa

Columns = dict[str, npt.NDArray[Any]]

OPENING: Final = datetime(2026, 1, 5, 14, 30, tzinfo=UTC)
"""When the first tick arrives."""

SIDES: Final = ("buy", "sell")

_TICK_MICROSECONDS = 234_000  # 100,000 ticks fill a trading day of six and a half hours
_HOUR = 3_600_000_000
_OPENING = int(OPENING.timestamp()) * 1_000_000

# What the alerts ask for, with the share of each shape.
_SHAPES: Final = {
    "band": 0.45,  # one symbol, price in a narrow band
    "breakout": 0.2,  # one symbol, price above its usual level in size
    "bargain": 0.15,  # one symbol, offered below its usual level
    "window": 0.12,  # one symbol, price above a level at some hour of the day
    "screener": 0.05,  # any symbol, a price band, large and liquid
    "halt": 0.03,  # one symbol, trading halted
}


@dataclass(frozen=True, kw_only=True)
class MarketWorkload:
    """Ticks of made-up symbols and alerts on them, for demonstrations.

    Popular symbols have more ticks and more alerts. The alerts come as a table of bounds
    (`alerts`), as filter texts for the same rows (`alert_texts`), and as texts of less regular
    shapes (`odd_texts`). All are independent of chunking.
    """

    symbols: int = 5_000
    seed: int = 1

    def __post_init__(self) -> None:
        check_between(self, 1, 26**4, "symbols")

    @property
    def schema(self) -> Schema:
        """Seven attributes, one of every type."""
        types: dict[str, str | list[str]] = {
            "symbol": "string",
            "price": "float",
            "volume": "int",
            "spread": "float",
            "side": list(SIDES),
            "halted": "bool",
            "at": "timestamp",
        }
        return Schema(types)

    @cached_property
    def symbol_names(self) -> list[str]:
        """Four letters each; most popular first."""
        # 7,919 and 26 ** 4 have no common factor, so no name comes twice.
        codes = [i * 7_919 % 26**4 for i in range(1, self.symbols + 1)]
        return ["".join(chr(65 + code // 26**p % 26) for p in (3, 2, 1, 0)) for code in codes]

    @cached_property
    def usual_prices(self) -> npt.NDArray[np.float64]:
        """The level around which each symbol trades."""
        rng = streams.generator(self.seed, "usual prices", 0)
        return np.maximum(np.round(rng.lognormal(4.0, 0.9, self.symbols), 2), 1.0)

    def ticks(self, start: int, stop: int) -> pa.Table:
        """Ticks `start:stop` as an Arrow table."""
        import pyarrow as pa

        made = streams.columns(self.seed, "ticks", start, stop, self._make_ticks)
        at = _OPENING + np.arange(start, stop, dtype=np.int64) * _TICK_MICROSECONDS
        return pa.table(
            {
                "symbol": self._symbols(made["symbol"]),
                "price": made["price"],
                "volume": made["volume"],
                "spread": made["spread"],
                "side": pa.array(SIDES).take(pa.array(made["side"])),
                "halted": made["halted"],
                "at": pa.array(at, pa.timestamp("us", "UTC")),
            }
        )

    def tick_dicts(self, start: int, stop: int) -> list[dict[str, Any]]:
        """The same as dicts."""
        records: list[dict[str, Any]] = self.ticks(start, stop).to_pylist()
        return records

    def alerts(self, start: int, stop: int) -> pa.Table:
        """Alerts `start:stop` as columns: `id`, wanted values, and closed bounds.

        An attribute's own name is an equality, `_low` and `_high` are its bounds, null is none.
        """
        import pyarrow as pa

        made = streams.columns(self.seed, "alerts", start, stop, self._make_alerts)

        def bound(name: str, kind: pa.DataType) -> pa.Array[Any]:
            absent = np.isnan(made[name])
            values = np.where(absent, 0, made[name])
            if not pa.types.is_floating(kind):
                values = values.astype(np.int64)
            return pa.array(values, kind, mask=absent)

        time = pa.timestamp("us", "UTC")
        return pa.table(
            {
                "id": np.arange(start, stop, dtype=np.int64),
                "symbol": self._symbols(made["symbol"]),
                "side": pa.array(SIDES).take(pa.array(made["side"], mask=made["side"] < 0)),
                "halted": pa.array(made["halted"] == 1, mask=made["halted"] < 0),
                "price_low": bound("price_low", pa.float64()),
                "price_high": bound("price_high", pa.float64()),
                "volume_low": bound("volume_low", pa.int64()),
                "spread_high": bound("spread_high", pa.float64()),
                "at_low": bound("at_low", time),
                "at_high": bound("at_high", time),
            }
        )

    def alert_texts(self, start: int, stop: int) -> pa.Table:
        """The same alerts as `id` and `filter` text."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table = self.alerts(start, stop)
        price_low, price_high = table["price_low"], table["price_high"]
        both = pc.and_(price_low.is_valid(), price_high.is_valid())
        price = pc.coalesce(
            pc.if_else(both, _join("price BETWEEN ", price_low, " AND ", price_high), None),
            _join("price >= ", price_low),
            _join("price <= ", price_high),
        )
        texts = pc.binary_join_element_wise(
            _join("symbol = '", table["symbol"], "'"),
            _join("side = '", table["side"], "'"),
            _join("halted = ", table["halted"]),
            price,
            _join("volume >= ", table["volume_low"]),
            _join("spread <= ", table["spread_high"]),
            _join(
                "at BETWEEN TIMESTAMP '",
                _without_zone(table["at_low"]),
                "' AND TIMESTAMP '",
                _without_zone(table["at_high"]),
                "'",
            ),
            " AND ",
            null_handling="skip",
        )
        return pa.table({"id": table["id"], "filter": texts})

    def odd_texts(self, start: int, stop: int) -> pa.Table:
        """Other alerts as `id` and `filter` text, with OR, IN, NOT and LIKE.

        The id is the row number here too, so take rows that `alerts` was not asked for.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        made = streams.columns(self.seed, "odd alerts", start, stop, self._make_odd)
        first, second = self._symbols(made["first"]), self._symbols(made["second"])
        low, high = pa.array(made["low"]), pa.array(made["high"])
        volume, spread = pa.array(made["volume"]), pa.array(made["spread"])
        texts = pc.choose(
            pa.array(made["shape"]),
            _join("symbol = '", first, "' AND (price < ", low, " OR price > ", high, ")"),
            _join("symbol IN ('", first, "', '", second, "') AND volume >= ", volume),
            _join("symbol = '", first, "' AND (halted = TRUE OR spread > ", spread, ")"),
            _join(
                "symbol LIKE '", pc.utf8_slice_codeunits(first, 0, 3), "%' AND NOT side = 'sell'",
                " AND volume > ", volume,
            ),
        )  # fmt: skip
        return pa.table({"id": np.arange(start, stop, dtype=np.int64), "filter": texts})

    def _symbols(self, codes: npt.NDArray[Any]) -> pa.Array[Any]:
        import pyarrow as pa

        indices: Any = pa.array(codes.astype(np.int32), mask=codes < 0)
        return pa.array(self.symbol_names).take(indices)

    def _popular(self, rng: np.random.Generator, rows: int) -> npt.NDArray[np.int64]:
        return np.searchsorted(zipf_cumulative(self.symbols, 0.5), rng.random(rows), "right")

    def _make_ticks(self, rng: np.random.Generator, rows: int) -> Columns:
        symbol = self._popular(rng, rows)
        price = self.usual_prices[symbol] * (1 + rng.normal(0, 0.02, rows))
        return {
            "symbol": symbol,
            "price": np.maximum(np.round(price, 2), 0.01),
            "volume": _lots(rng, rows),
            "spread": np.round(price * 0.0005 * rng.lognormal(0, 0.7, rows), 4),
            "side": rng.integers(0, 2, rows, np.int8),
            "halted": rng.random(rows) < 0.002,
        }

    def _make_alerts(self, rng: np.random.Generator, rows: int) -> Columns:
        shape = rng.choice(len(_SHAPES), rows, p=list(_SHAPES.values()))
        band, breakout, bargain, window, screener, halt = (shape == i for i in range(len(_SHAPES)))
        symbol = self._popular(rng, rows)
        usual = self.usual_prices[symbol]
        level = usual * (1 + rng.normal(0, 0.03, rows))
        half = usual * rng.uniform(0.001, 0.004, rows)
        beyond = usual * rng.uniform(0.02, 0.06, rows)
        hour = _OPENING + rng.integers(0, 6, rows) * _HOUR
        volume = np.where(screener, 20 * _lots(rng, rows), _lots(rng, rows))
        low = np.select([band | screener, breakout | window], [level - half, usual + beyond])
        high = np.select([band | screener, bargain], [level + half, usual - beyond])

        def only(shapes: npt.NDArray[np.bool_], values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.where(shapes, values, np.nan)

        return {
            "symbol": np.where(screener, -1, symbol),
            "side": np.where(bargain, np.int8(1), np.int8(-1)),
            "halted": np.where(halt, np.int8(1), np.int8(-1)),
            "price_low": only(band | screener | breakout | window, np.round(low, 2)),
            "price_high": only(band | screener | bargain, np.round(high, 2)),
            "volume_low": only(breakout | screener, volume),
            "spread_high": only(screener, np.round(usual * 0.0004, 4)),
            "at_low": only(window, hour),
            "at_high": only(window, hour + _HOUR),
        }

    def _make_odd(self, rng: np.random.Generator, rows: int) -> Columns:
        first = self._popular(rng, rows)
        usual = self.usual_prices[first]
        return {
            "shape": rng.integers(0, 4, rows),
            "first": first,
            "second": self._popular(rng, rows),
            "low": np.round(usual * (1 - rng.uniform(0.03, 0.06, rows)), 2),
            "high": np.round(usual * (1 + rng.uniform(0.03, 0.06, rows)), 2),
            "volume": 10 * _lots(rng, rows),
            "spread": np.round(usual * 0.002, 4),
        }


def _lots(rng: np.random.Generator, rows: int) -> npt.NDArray[np.int64]:
    lots: npt.NDArray[np.int64] = 100 * (1 + rng.lognormal(1.0, 1.0, rows).astype(np.int64))
    return lots


def _join(*parts: Any) -> pa.Array[Any]:
    """Pieces of text side by side; null where a piece is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts: list[Any] = [
        part if isinstance(part, str) else pc.cast(part, pa.string()) for part in parts
    ]
    joined: pa.Array[Any] = pc.binary_join_element_wise(*texts, "")
    return joined


def _without_zone(times: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    import pyarrow as pa

    return times.cast(pa.timestamp("us"))
