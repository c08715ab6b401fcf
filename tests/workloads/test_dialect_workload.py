from __future__ import annotations

import json
from typing import Any

import pytest
from chunking import EDGE

from boxmatch import Matcher
from boxmatch.workloads import DialectWorkload

WORKLOADS = [DialectWorkload(), DialectWorkload(rules="operators")]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_rows_do_not_depend_on_chunks(workload: DialectWorkload) -> None:
    for make in (workload.filters, workload.events):
        parts = [*make(EDGE - 20, EDGE - 3), *make(EDGE - 3, EDGE + 20)]
        assert parts == make(EDGE - 20, EDGE + 20)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_rules_are_about_fields_of_events(workload: DialectWorkload) -> None:
    matcher = Matcher()
    rules = dict(enumerate(workload.patterns(0, 2_000)))
    records = [{"id": row, "filter": rule} for row, rule in rules.items()]
    matcher.subscribe_many(records, dialect="eventbridge")
    total = 0
    for event in workload.events(0, 200):
        wanted = [row for row, rule in rules.items() if wants(rule, json.loads(event))]
        assert sorted(matcher.match(event)) == wanted
        total += len(wanted)
    assert total


def wants(rule: Any, event: Any) -> bool:
    """Whether what a rule of the workload says holds of an event."""
    return all(
        wants(below, event[name]) if isinstance(below, dict) else passes(below[0], event[name])
        for name, below in rule.items()
    )


def passes(test: Any, value: Any) -> bool:
    if isinstance(test, str):
        return bool(test == value)
    ((operator, operand),) = test.items()
    match operator:
        case "numeric":
            return bool(operand[1] <= value < operand[3])
        case "anything-but":
            excluded = operand if isinstance(operand, list) else [operand]
            return value not in excluded
        case "prefix":
            return bool(value.startswith(operand))
        case "suffix":
            return bool(value.endswith(operand))
    assert operator == "wildcard"
    first, last = operand.split("*")
    return bool(value.startswith(first) and value.endswith(last))


def test_events_have_ten_fields_and_300_bytes() -> None:
    events = DialectWorkload().events(0, 500)
    assert 250 < sum(map(len, events)) / len(events) < 350
    event = json.loads(events[0])
    assert len(event) - 1 + len(event["detail"]) == 10
    with pytest.raises(ValueError, match="rules"):
        DialectWorkload(rules="words")  # type: ignore[arg-type]
