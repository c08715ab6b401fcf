"""Parameters: exact whatever they are, and refused where they make no sense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from box_oracle import (
    build,
    check_answers,
    check_large,
    holders_of_many,
    large_boolean_case,
    large_case,
    listed,
)
from odd_parameters import BAD, COARSE, ODD

from boxmatch.errors import IndexConfigError, IndexTooLargeError
from boxmatch.indexes.registry import index_class, index_names
from boxmatch.model.axis import FIRST, LAST
from boxmatch.model.boxes import Boxes

every_index = pytest.mark.parametrize("name", index_names())
OURS = [name for name in index_names() if index_class(name).__module__.startswith("boxmatch.")]
"""Whoever registers another index need not list its parameters here."""
odd_parameters = pytest.mark.parametrize(
    ("name", "parameters"),
    [
        pytest.param(name, parameters, id=f"{name}-{parameters}")
        for name in index_names()
        for parameters in ODD.get(name, [])
    ],
)


@pytest.mark.parametrize("name", OURS)
def test_every_parameter_is_tried(name: str) -> None:
    taken = set(index_class(name).parameters)
    assert set().union(*ODD.get(name, [])) == taken
    assert set(BAD.get(name, {})) == taken


@odd_parameters
def test_odd_values_are_exact(name: str, parameters: dict[str, Any]) -> None:
    capabilities = index_class(name).capabilities
    cases = []
    if capabilities.ranges:
        cases += [large_case(kind, 700, 50, seed=5) for kind in ("uniform", "edges", "sizes")]
        cases += [large_case("equality", 1, 50, seed=5)]
    if capabilities.booleans:
        cases += [large_boolean_case(kind, 700, 50, seed=5) for kind in ("light", "few", "patchy")]
    for case in cases:
        check_large(name, case, seed=6, **parameters)


@odd_parameters
def test_odd_values_are_kept(name: str, parameters: dict[str, Any]) -> None:
    """What is restored goes on as before, with boxes that come later too."""
    case = large_boolean_case("few", 300, 20, seed=2)
    first, rest = case.boxes.take(np.arange(200)), case.boxes.take(np.arange(200, 300))
    index, order = build(name, first, **parameters)
    assert index.chosen == {**index_class(name).parameters, **parameters}
    arrays = {key: array.copy() for key, array in index.to_arrays().items()}
    again = index_class(name).from_arrays(case.boxes.dimensions, index.chosen, arrays)
    assert again.chosen == index.chosen
    check_answers(again, order, case.points, holders_of_many(first, case.points))
    if index.capabilities.updates:
        again.add(rest)
        again.remove(np.arange(0, 300, 2))
        expected = [
            {row for row in rows if row % 2} for rows in holders_of_many(case.boxes, case.points)
        ]
        check_answers(again, list(range(300)), case.points, expected)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        pytest.param(name, parameters, id=f"{name}-{parameters}")
        for name in index_names()
        for parameters in COARSE.get(name, [])
    ],
)
@pytest.mark.parametrize("kind", ["uniform", "edges", "attributes"])
def test_coarse_values_miss_nothing(name: str, parameters: dict[str, Any], kind: str) -> None:
    case = large_case(kind, 900, 60, seed=5)
    index, _ = build(name, case.boxes.take(np.arange(200)), **parameters)
    index.add(case.boxes.take(np.arange(200, 900)))
    gone = np.arange(0, 900, 4)
    index.remove(gone)
    arrays = {key: array.copy() for key, array in index.to_arrays().items()}
    again = index_class(name).from_arrays(case.boxes.dimensions, index.chosen, arrays)
    living = set(range(900)) - set(gone.tolist())
    for one in (index, again):
        found = [set(positions) for positions in listed(one.match(case.points))]
        for positions, truth in zip(found, holders_of_many(case.boxes, case.points), strict=True):
            assert truth & living <= positions <= living
        assert one.count(case.points).tolist() == [len(positions) for positions in found]
        assert set(one.match_one(case.points[:1]).tolist()) == found[0]


@pytest.mark.parametrize(("name", "limit"), [("htree", 12_000_000), ("rapid", 1_500_000)])
def test_too_much_is_refused_before_it_is_taken(name: str, limit: int) -> None:
    case = large_case("uniform", 400, 40, seed=7)
    index, order = build(name, case.boxes, memory_limit=limit)
    expected = holders_of_many(case.boxes, case.points)
    before = {key: array.copy() for key, array in index.to_arrays().items()}
    wide = Boxes.of(20, [[(a, FIRST, LAST) for a in range(20)]] * 2000)
    for verb in (index.add, index.build):
        with pytest.raises(IndexTooLargeError, match="memory_limit"):
            verb(wide)
        after = index.to_arrays()
        assert before.keys() == after.keys()
        assert all(np.array_equal(before[key], after[key]) for key in before)
        check_answers(index, order, case.points, expected)
    assert index.add(case.boxes.take(np.arange(10))).tolist() == list(range(400, 410))
    twice = [rows | {400 + row for row in rows if row < 10} for rows in expected]
    check_answers(index, list(range(410)), case.points, twice)


def test_leaves_alone_may_be_too_much() -> None:
    with pytest.raises(IndexTooLargeError, match="memory_limit"):
        index_class("htree")(30, cells=10_000, indexed=30).build(Boxes.empty(30))


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        pytest.param(name, parameter, value, id=f"{name}-{parameter}-{value!r}")
        for name in index_names()
        for parameter, values in BAD.get(name, {}).items()
        for value in values
    ],
)
def test_bad_values_are_refused(name: str, parameter: str, value: Any) -> None:
    with pytest.raises(IndexConfigError, match=parameter):
        index_class(name)(3, **{parameter: value})


@every_index
def test_unknown_parameters_are_refused(name: str) -> None:
    with pytest.raises(IndexConfigError, match="colour"):
        index_class(name)(3, colour=1)


@every_index
def test_defaults_are_not_shared(name: str) -> None:
    kind = index_class(name)
    before = dict(kind.parameters)
    index = kind(3)
    assert index.chosen == before
    index.chosen["colour"] = 1
    assert kind.parameters == before
    assert kind(3).chosen == before
