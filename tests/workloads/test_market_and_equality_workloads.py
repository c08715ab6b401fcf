from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from chunking import EDGE

from boxmatch import Matcher
from boxmatch.workloads import EqualityWorkload, MarketWorkload


def test_equality_forms_agree() -> None:
    workload = EqualityWorkload(subscriptions=50)
    table = workload.table()
    assert table.column_names == ["id", "region", "account", "kind"]
    filters = [{k: v for k, v in row.items() if k != "id"} for row in table.to_pylist()]
    assert workload.filters(0, 50) == filters
    assert workload.events(5, 9).to_pylist() == workload.event_dicts(5, 9)
    assert set(workload.event_dicts(0, 1)[0]) == set(workload.schema.names)
    assert workload.table(10, 20).equals(table.slice(10, 10))


def test_equality_matches_as_often_as_expected() -> None:
    workload = EqualityWorkload(accounts=50)
    wanted = workload.subscription_codes()
    events = workload.event_codes(0, 50)
    counts = [
        np.all([wanted[name] == events[name][i] for name in wanted], axis=0).sum()
        for i in range(50)
    ]
    assert np.mean(counts) == pytest.approx(workload.expected_matches, rel=0.2)


class TestMarket:
    market = MarketWorkload()

    def test_rows_do_not_depend_on_chunks(self) -> None:
        for make in (self.market.alerts, self.market.odd_texts, self.market.ticks):
            whole = make(EDGE - 20, EDGE + 20)
            halves = pa.concat_tables([make(EDGE - 20, EDGE - 3), make(EDGE - 3, EDGE + 20)])
            assert whole.equals(halves.combine_chunks())

    def test_symbols_are_distinct(self) -> None:
        assert len(set(self.market.symbol_names)) == self.market.symbols

    def test_texts_say_what_the_columns_say(self) -> None:
        texts = self.market.alert_texts(0, 200)["filter"].to_pylist()
        for text, row in zip(texts, self.market.alerts(0, 200).to_pylist(), strict=True):
            del row["id"]
            for value in row.values():
                if value is None:
                    continue
                shown = str(value).removesuffix("+00:00").removesuffix(".0")
                assert shown.lower() in text.lower()
            constrained = {
                n.removesuffix("_low").removesuffix("_high")
                for n, v in row.items()
                if v is not None
            }
            assert all(f"{name} " in text for name in constrained)

    def test_ticks_fit_the_schema(self) -> None:
        (tick,) = self.market.tick_dicts(0, 1)
        assert tuple(tick) == self.market.schema.names
        assert tick["symbol"] in self.market.symbol_names


def test_empty_ranges_of_rows() -> None:
    assert EqualityWorkload().table(7, 7).num_rows == 0
    assert MarketWorkload().alerts(7, 7).num_rows == 0


def test_alert_columns_and_texts_match_alike() -> None:
    """The bulk form by columns and the filter language agree on every tick."""
    market = MarketWorkload(symbols=20)
    columns, texts = (Matcher(market.schema, index="scan") for _ in range(2))
    columns.subscribe_many(market.alerts(0, 2_000))
    texts.subscribe_many(market.alert_texts(0, 2_000))
    ticks = market.ticks(0, 300)
    one, two = columns.match_batch(ticks), texts.match_batch(ticks)
    assert one.counts.sum() > 1_000
    pairs = [set(zip(r.event.tolist(), r.subscription.tolist(), strict=True)) for r in (one, two)]
    assert pairs[0] == pairs[1]


def test_odd_alerts_compile_and_match() -> None:
    market = MarketWorkload(symbols=20)
    matcher = Matcher(market.schema, index="scan")
    matcher.subscribe_many(market.odd_texts(0, 500))
    assert len(matcher) == 500
    assert matcher.count_batch(market.ticks(0, 500)).sum() > 100
