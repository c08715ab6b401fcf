"""The evaluators of one event and of batches agree, whatever the expression."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_reader import read

from boxmatch.model.expressions.batch import Batch, evaluate
from boxmatch.model.expressions.functions import call
from boxmatch.model.expressions.nodes import INT, STRING, Call, Column, Literal, Node
from boxmatch.model.expressions.scalar import compile_scalar
from boxmatch.model.expressions.vectors import arrow_type
from expression_examples import COLUMNS, KINDS, Examples, arrays, events
from property_examples import examples


def assert_agree(node: Node, rows: list[dict], batch: Batch) -> None:
    run = compile_scalar(node)
    result = batch.evaluate(node)
    assert result.type == arrow_type(node.type)
    assert result.to_pylist() == [run(row) for row in rows]


@settings(deadline=None, max_examples=examples(300))
@given(st.integers(0, 2**32), st.sampled_from(KINDS), st.integers(1, 4), st.integers(0, 2))
def test_scalar_and_batch_agree(seed: int, kind: str, depth: int, cut: int) -> None:
    random = Random(seed)
    rows = events(random, 12)
    columns = {name: array.slice(cut) for name, array in arrays(rows).items()}
    batch = Batch(columns.__getitem__, len(rows) - cut)
    for _ in range(4):
        node = Examples(random).expression(kind, depth)
        assert_agree(node, rows[cut:], batch)


@pytest.mark.parametrize(
    "text",
    [
        "EXISTS(items, x -> x.price > 5e0 AND x.quantity > i)",
        "FORALL(items, x -> x.name IS NOT NULL AND b)",
        "EXISTS(items, x -> EXISTS(names, y -> y = x.name OR y = s))",
        "EXISTS(items, x -> EXISTS(numbers, x -> x > i))",
        "ELEMENT_AT(items, -1).price",
        "ARRAYS_OVERLAP(numbers, ARRAY(1, 2, NULL))",
        "ARRAY_CONTAINS(names, s)",
        "ARRAY_CONTAINS(numbers, f)",
        f"e IN ({'9' * 28}.{'9' * 10}, 0, 1.5, 0.00000000001)",
        f"d IN ({'9' * 8}.99, {'9' * 38}, 0.001, NULL)",
    ],
)
@pytest.mark.parametrize("cut", [0, 3, 199, 200])
def test_examples(text: str, cut: int) -> None:
    rows = events(Random(5), 200)
    columns = {name: array.slice(cut) for name, array in arrays(rows).items()}
    assert_agree(read(text, COLUMNS), rows[cut:], Batch(columns.__getitem__, 200 - cut))


@pytest.mark.parametrize("kind", KINDS)
def test_no_events(kind: str) -> None:
    random = Random(0)
    columns = arrays([])
    for _ in range(100):
        node = Examples(random).expression(kind, 3)
        assert len(evaluate(node, columns.__getitem__, 0)) == 0


def test_columns_are_asked_for_once() -> None:
    asked: list[str] = []
    columns = arrays(events(Random(1), 5))

    def column(name: str):
        asked.append(name)
        return columns[name]

    batch = Batch(column, 5)
    one = Column("i", COLUMNS["i"])
    batch.evaluate(call("+", one, Literal(1, INT)))
    batch.evaluate(call("*", one, call("+", one, Literal(1, INT))))
    assert asked == ["i"]


def test_missing_names_are_null() -> None:
    node = call("is_null", Column("i", INT))
    assert isinstance(node, Call)
    assert compile_scalar(node)({}) is True


@pytest.mark.parametrize("function", ["lower", "upper"])
def test_case_of_texts_that_do_not_begin_with_the_first_byte(function: str) -> None:
    texts = ["Ab", "CdEf", "gH", "ß", None, "iJ"]
    text = Column("text", STRING)
    for first, end in [(1, 3), (2, 6), (1, 6), (0, 6)]:
        part = pa.array(texts)[first:end].cast(pa.large_string())
        found = evaluate(call(function, text), lambda _, part=part: part, end - first)
        wanted = [None if one is None else getattr(one, function)() for one in texts[first:end]]
        assert found.to_pylist() == wanted
