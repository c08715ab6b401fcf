"""A small sample of our own making: ticks, readable alerts and a config, the same every time.

It is made where it is wanted. Faults are put in on purpose, so that cleaning has something to do.
"""

from __future__ import annotations

import os
import shutil
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from boxmatch.errors import SparkError
from boxmatch.workloads import MarketWorkload

if TYPE_CHECKING:
    import pyarrow as pa

CONFIG: Final = "pipeline.toml"
TICKS: Final = 200_000
ALERTS: Final = 5_000

_FILES = 4
_MARKET: Final = MarketWorkload(symbols=500)

# A tick is written as: event_id,symbol,price,volume,spread,side,halted,at
_BAD_TICKS: Final = (
    ",ABCD,10.5,100,0.01,buy,false,2026-01-05 15:00:00Z",
    "bad-1,ABCD,n/a,100,0.01,buy,false,2026-01-05 15:00:00Z",
    "bad-2,ABCD,10.5,a few,0.01,buy,false,2026-01-05 15:00:00Z",
    "bad-3,ABCD,10.5,100,0.01,hold,false,2026-01-05 15:00:00Z",
    "bad-4,ABCD,-10.5,100,0.01,buy,false,2026-01-05 15:00:00Z",
    "bad-5,ABCD,10.5,100,0.01,buy,perhaps,2026-01-05 15:00:00Z",
    "bad-6,ABCD,10.5,100,0.01,buy,false,yesterday",
    "bad-7,ABCD,10.5,100,0.01,buy,false,",
    "bad-8,ABCD,10.5",
    "bad-9,ABCD,10.5,100,0.01,buy,false,2026-01-05 15:00:00Z,and,more",
)

_OWN_ALERTS: Final = (
    # These match too much, or nothing.
    ("broad-1", "price > 150"),
    ("broad-2", "symbol LIKE 'A%' OR symbol LIKE 'M%'"),
    ("broad-3", "side = 'buy' AND volume >= 1000"),
    ("dead-1", "price < 0.001"),
    ("dead-2", "symbol = 'nosuch'"),
    ("dead-3", "price > 100 AND price < 50"),
    # These do not compile, or have no filter or id.
    ("bad-1", "price >>> 100"),
    ("bad-2", "colour = 'red'"),
    ("bad-3", "price > (SELECT 1000)"),
    ("bad-4", "price > 'cheap'"),
    ("bad-5", None),
    (None, "price > 100"),
    # Two filters under one id.
    ("twice", "price > 300 AND volume >= 5000"),
    ("twice", "price > 200 AND volume >= 5000"),
)


def write_sample(
    folder: str | os.PathLike[str], *, ticks: int = TICKS, alerts: int = ALERTS
) -> Path:
    """Write the sample to a folder, unless it is there; returns the path of its config.

    `ticks` and `alerts` are about how many; the faults come on top.
    """
    place = Path(folder)
    config = place / CONFIG
    if config.exists():  # written last, so all of it is there
        return config
    try:
        drafts = place / "_unfinished"
        shutil.rmtree(drafts, ignore_errors=True)
        (drafts / "ticks").mkdir(parents=True)
        for number in range(_FILES):
            start, stop = (ticks * n // _FILES for n in (number, number + 1))
            _write_ticks(drafts / "ticks" / f"ticks-{number}.csv", start, stop)
        _write(drafts / "alerts.csv", _alerts(alerts))
        text = resources.files("boxmatch.spark.pipeline").joinpath("sample.toml")
        (drafts / CONFIG).write_bytes(text.read_bytes())
        shutil.rmtree(place / "ticks", ignore_errors=True)
        for name in ("ticks", "alerts.csv", CONFIG):
            os.replace(drafts / name, place / name)
        drafts.rmdir()
    except OSError as error:
        raise SparkError(f"cannot write the sample to {place}: {error}") from None
    return config


def _write_ticks(path: Path, start: int, stop: int) -> None:
    """Ticks, then faults: rows that are no ticks, and ticks that come again."""
    import pyarrow as pa

    ticks = _MARKET.ticks(start, stop)
    ids = pa.array([f"tick-{number}" for number in range(start, stop)], pa.string())
    ticks = ticks.add_column(0, "event_id", ids)
    again = ticks.slice(0, min(ticks.num_rows, 25))
    spread = again.schema.get_field_index("spread")
    again = again.set_column(spread, "spread", pa.array([9.99] * again.num_rows))
    _write(path, pa.concat_tables([ticks, ticks.slice(0, min(ticks.num_rows, 25)), again]))
    with path.open("a", encoding="utf-8") as file:
        file.write("\n".join(_BAD_TICKS).replace("bad-", f"bad-{start}-") + "\n")


def _alerts(count: int) -> pa.Table:
    """Alerts of all shapes, also on attributes that are derived."""
    import pyarrow as pa

    regular, odd = int(count * 0.7), int(count * 0.9)
    tables = [_MARKET.alert_texts(0, regular), _MARKET.odd_texts(regular, odd)]
    ids: list[str | None] = [f"alert-{id}" for table in tables for id in table["id"].to_pylist()]
    texts: list[str | None] = [text for table in tables for text in table["filter"].to_pylist()]
    names = _MARKET.symbol_names
    for number in range(odd, count):
        name, step = names[number % len(names)], number % 9
        ids.append(f"alert-{number}")
        texts.append(
            f"symbol = '{name}' AND notional >= {100_000 * (1 + step)}"
            if number % 2
            else f"symbol = '{name}' AND hour BETWEEN {14 + step} AND {15 + step} AND spread < 0.05"
        )
    ids += [id for id, _ in _OWN_ALERTS]
    texts += [text for _, text in _OWN_ALERTS]
    return pa.table({"subscription_id": ids, "filter": texts})


def _write(path: Path, table: pa.Table) -> None:
    from pyarrow import csv

    csv.write_csv(table, path)
