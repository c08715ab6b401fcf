"""`boxmatch bench spark --adapt`: that answers are checked, and figures are there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from boxmatch.cli import app
from boxmatch_bench.answers import MismatchError
from boxmatch_bench.options import SparkOptions
from boxmatch_bench.settings import Adjustment, Overload
from boxmatch_bench.spark.overload import _figures, measure_overload, take_events
from boxmatch_bench.tables import adapt_tables

TRUE = np.array([10, 0, 30])
DUE = np.array([0.5, 1.0, 1.5, 2.5])
"""Events 0 to 3; the last one is the first of the pool again."""


def answers(ids: list[int], matches: list[int], rate: float | None = None) -> pa.Table:
    table = pa.table({"event_id": ids, "matches": matches})
    if rate is None:
        return table
    return table.append_column("false_positive_rate", pa.array([rate] * len(ids)))


def test_figures() -> None:
    batches = [(102.0, answers([0, 1, 2], [11, 0, 31], 0.1)), (105.0, answers([3], [10], 0.0))]
    found = _figures(Overload(seconds=3), 100.0, batches, DUE, TRUE)
    assert (found["true"], found["false"], found["inexact_events"]) == (50, 2, 3)
    assert found["measured_rate"] == pytest.approx(2 / 50)
    assert found["promised_rate"] == pytest.approx(0.1 * 40 / 50)
    assert found["latency_ms"]["mean"] == pytest.approx(1e3 * np.mean([1.5, 1.0, 0.5, 2.5]))
    assert found["by_second"]["arrivals"] == [1, 2, 1]


@pytest.mark.parametrize(
    ("matches", "rate", "says"),
    [
        ([9, 0, 30, 10], 0.1, "1 events lack matches"),
        ([10, 0, 31, 10], 0.0, "exact batch has false"),
        ([10, 0, 31, 10], None, "exact batch has false"),
    ],
)
def test_wrong_answers(matches: list[int], rate: float | None, says: str) -> None:
    batch = (102.0, answers([0, 1, 2, 3], matches, rate))
    with pytest.raises(MismatchError, match=says):
        _figures(Overload(seconds=3), 100.0, [batch], DUE, TRUE)


def test_an_event_that_comes_twice() -> None:
    batches = [(102.0, answers([0, 1, 2, 3], [10, 0, 30, 10])), (103.0, answers([1], [0]))]
    with pytest.raises(MismatchError, match="twice"):
        _figures(Overload(seconds=3), 100.0, batches, DUE, TRUE)


def test_events_by_number(tmp_path: Path) -> None:
    pool = tmp_path / "pool.arrow"
    table = pa.table({"a": [5, 6, 7]})
    with pa.OSFile(str(pool), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    (made,) = take_events(iter([pa.record_batch({"event_id": [1, 5, 3]})]), pool=str(pool))
    assert made.to_pydict() == {"event_id": [1, 5, 3], "a": [6, 7, 5]}


def test_options_that_do_not_go_together() -> None:
    for words in (["--load", "0.5"], ["--adapt", "--events", "5"], ["--adapt", "--load", "0"]):
        done = CliRunner().invoke(app, ["bench", "spark", *words])
        assert done.exit_code == 2, done.output


@pytest.mark.slow
def test_a_tiny_run(tmp_path: Path) -> None:
    setting = Overload(seconds=3, pool=200, load=2.0, adjustment=Adjustment(
        name="much", threshold=0.01, step=0.2, maximum=0.4))  # fmt: skip
    workload = replace(setting.workload, subscriptions=2_000, attributes=40, event_size=40)
    rows = measure_overload(replace(setting, workload=workload), SparkOptions(repeats=1), tmp_path)
    assert [row["adaptive"] for row in rows] == [False, True]
    off, on = rows
    assert off["false"] == 0
    assert on["highest_rate"] == 0.4
    assert 0 < on["measured_rate"] <= on["promised_rate"] <= 0.4
    (table,) = adapt_tables(rows)
    assert [cells[0] for cells in table.rows] == ["off", "much"]
    assert not list(tmp_path.iterdir())
