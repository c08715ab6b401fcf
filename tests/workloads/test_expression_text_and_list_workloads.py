from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from chunking import EDGE, in_chunks

from boxmatch import Matcher
from boxmatch.workloads import ExpressionWorkload, ListWorkload, TextWorkload
from boxmatch.workloads.expressions import EXPRESSIONS

WORKLOADS = [
    ExpressionWorkload(subscriptions=100, predicates=2),
    TextWorkload(subscriptions=100),
    TextWorkload(subscriptions=100, pattern="regex", categories=0),
    ListWorkload(subscriptions=100, predicates=2),
    ListWorkload(subscriptions=100, predicates=2, values=0),
]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_rows_do_not_depend_on_chunks(workload: Any) -> None:
    whole = workload.events(EDGE - 20, EDGE + 20)
    parts = [workload.events(EDGE - 20, EDGE - 3), workload.events(EDGE - 3, EDGE + 20)]
    assert pa.concat_tables(parts).equals(whole)
    filters = workload.filters(EDGE - 20, EDGE - 3) + workload.filters(EDGE - 3, EDGE + 20)
    assert filters == workload.filters(EDGE - 20, EDGE + 20)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_forms_of_events_agree(workload: Any) -> None:
    m = Matcher(workload.schema)
    for row, filter in enumerate(workload.filters(0, 100)):
        m.subscribe(row, filter)
    dicts = workload.event_dicts(0, 50)
    assert set(dicts[0]) == set(workload.schema.names)
    assert m.count_batch(dicts).tolist() == m.count_batch(workload.events(0, 50)).tolist()


def test_some_subscriptions_have_an_expression() -> None:
    workload = ExpressionWorkload(subscriptions=1_000, share=0.3)
    numbers, _ = workload.expressions(0, 1_010)
    assert set(numbers[:300].tolist()) == set(range(len(EXPRESSIONS)))
    assert set(numbers[300:1_000].tolist()) == {-1}
    assert (numbers[1_000:] >= 0).all()
    assert all(len(one) == 11 for one in workload.filters(0, 300))
    assert in_chunks(workload.boxes)
    with pytest.raises(ValueError, match="share"):
        ExpressionWorkload(share=1.5)


def test_regular_expressions_are_different() -> None:
    workload = TextWorkload(subscriptions=10_000, pattern="regex")
    assert len(set(workload.patterns())) == 10_000
    with pytest.raises(ValueError, match="pattern"):
        TextWorkload(pattern="needle")  # type: ignore[arg-type]


def test_lists_begin_with_the_single_value() -> None:
    lists, single = ListWorkload(), ListWorkload(values=0)
    assert in_chunks(lists.boxes)
    for some, one in zip(lists.event_dicts(0, 9), single.event_dicts(0, 9), strict=True):
        assert [some["a0"][0], some["a1"][0], some["a2"]] == [one["a0"], one["a1"], one["a2"]]
        assert len(some["a0"]) == len(some["a1"]) == 5
