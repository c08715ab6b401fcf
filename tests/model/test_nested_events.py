from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmatch.errors import AttributeValueError, EventError, SchemaError
from boxmatch.model.axis import ABSENT
from boxmatch.model.event_names import KnownNames
from boxmatch.model.events import EventEncoder
from boxmatch.model.schema import Attribute, Schema
from boxmatch.model.strings import StringAxis

SCHEMA = Schema(
    {
        "id": "int",
        "order": {
            "type": "struct",
            "fields": {
                "price": "decimal(10, 2)",
                "customer": {
                    "type": "struct",
                    "fields": {"tier": ["basic", "gold"], "name": "string", "tags": "list of int"},
                },
            },
        },
    }
)
ENCODER = EventEncoder(SCHEMA, {3: StringAxis(["a", "b"])})

customers = st.fixed_dictionaries(
    {
        "tier": st.none() | st.sampled_from(["basic", "gold"]),
        "name": st.none() | st.sampled_from(["a", "b", "é", ""]),
        "tags": st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3),
    }
)
orders = st.fixed_dictionaries(
    {
        "price": st.none() | st.decimals(-(10**6), 10**6, places=2),
        "customer": st.none() | customers,
    }
)
events = st.lists(
    st.fixed_dictionaries({"id": st.none() | st.integers(0, 9), "order": st.none() | orders}),
    max_size=8,
)
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        (
            "order",
            pa.struct(
                [
                    ("price", pa.decimal128(10, 2)),
                    (
                        "customer",
                        pa.struct(
                            [
                                ("tier", pa.string()),
                                ("name", pa.string()),
                                ("tags", pa.list_(pa.int64())),
                            ]
                        ),
                    ),
                ]
            ),
        ),
    ]
)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, ARROW)


def flat(event: Mapping[str, Any]) -> dict[str, Any]:
    """The plain truth: the event by the names of the schema."""
    order = event["order"] or {}
    customer = order.get("customer") or {}
    return {
        "id": event["id"],
        "order.price": order.get("price"),
        **{f"order.customer.{name}": customer.get(name) for name in ("tier", "name", "tags")},
    }


def half_flat(event: Mapping[str, Any]) -> dict[str, Any]:
    order = event["order"] or {}
    return {
        "id": event["id"],
        "order.customer": order.get("customer"),
        "order": {"price": order.get("price"), "customer": "payload"},
    }


def over_nulls(rows: list[dict[str, Any]]) -> pa.Table:
    """Null structs that have values all the same."""
    inner = {"tier": "gold", "name": "hidden", "tags": [1]}
    filled = [
        row | {"order": row["order"] or {"price": Decimal(1), "customer": inner}} for row in rows
    ]
    column = table(filled)["order"].combine_chunks()
    mask = pa.array([row["order"] is None for row in rows], pa.bool_())
    arrays = [column.field(place) for place in range(2)]
    masked = pa.StructArray.from_arrays(arrays, fields=list(column.type), mask=mask)
    return pa.table({"id": table(rows)["id"], "order": masked})


def sliced(rows: list[dict[str, Any]]) -> pa.Table:
    full = pa.concat_tables([over_nulls(rows[:1] * 3), over_nulls(rows)]).combine_chunks()
    full = full.slice(min(len(rows), 1) * 3)
    cut = len(rows) // 2
    return pa.concat_tables([full.slice(0, cut), full.slice(cut)])


SOURCES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "dicts": list,
    "many dicts": lambda rows: rows * 40,
    "mappings": lambda rows: [
        MappingProxyType(
            {n: MappingProxyType(v) if isinstance(v, dict) else v for n, v in r.items()}
        )
        for r in rows
    ],
    "flat": lambda rows: list(map(flat, rows)),
    "half flat": lambda rows: list(map(half_flat, rows)),
    "table": table,
    "null parents": over_nulls,
    "sliced": sliced,
    "flat table": lambda rows: pa.Table.from_pylist(
        list(map(flat, rows)),
        pa.schema(
            [
                ("id", pa.int64()),
                ("order.price", pa.decimal128(10, 2)),
                ("order.customer.tier", pa.string()),
                ("order.customer.name", pa.string()),
                ("order.customer.tags", pa.list_(pa.int64())),
            ]
        ),
    ),
    "polars": lambda rows: pl.from_arrow(table(rows)),
    "pandas objects": lambda rows: pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=object) for name in ARROW.names}
    ),
    "pandas arrow": lambda rows: table(rows).to_pandas(types_mapper=pd.ArrowDtype),
}


@pytest.mark.parametrize("source", SOURCES)
@given(rows=events)
@settings(max_examples=25)
def test_every_source_gives_what_is_inside(source: str, rows: list[dict[str, Any]]) -> None:
    truth = list(map(flat, rows))
    if source == "many dicts":
        truth = truth * 40
    encoded = ENCODER.encode(SOURCES[source](rows))
    for name in SCHEMA.names:
        assert encoded.column(name).to_pylist() == [event[name] for event in truth]
    again = EventEncoder(SCHEMA, {3: StringAxis(["a", "b"])}).encode(truth)
    assert encoded.points.keys.tolist() == again.points.keys.tolist()
    unread = ENCODER.encode(SOURCES[source](rows), np.zeros(len(SCHEMA), bool))
    for name in SCHEMA.names:
        assert unread.column(name).equals(encoded.column(name))


@given(rows=events)
@settings(max_examples=50)
def test_one_event_is_as_in_a_batch(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        for shape in (dict, flat, half_flat):
            one = ENCODER.encode_one(shape(row))
            batch = ENCODER.encode([row]).points
            assert one.points.keys.tolist() == batch.keys.tolist()
            assert ENCODER.one(shape(row)).tolist() == batch.keys[0].tolist()
            assert one.points.lists is not None
            assert batch.lists is not None
            assert one.points.lists.keys.tolist() == batch.lists.keys.tolist()
            assert dict(one.values) == flat(row)


def test_the_longest_key_decides() -> None:
    schema = Schema({"a.b.c": "int", "a.b.d": "int"})
    encoder = EventEncoder(schema, {})
    cases: list[tuple[dict[str, Any], list[int | None]]] = [
        ({"a.b.c": 1, "a.b": {"c": 2}, "a": {"b": {"c": 3}}}, [1, None]),
        ({"a": {"b": {"c": 3, "d": 4}}, "a.b": {"c": 2}}, [2, None]),
        ({"a": {"b": {"c": 3}, "b.c": 4}}, [4, None]),
        ({"a": {"b.c": 4, "b": {"d": 5}}}, [4, 5]),
        ({"a.b.c": None, "a": {"b": {"c": 3}}}, [None, None]),
        ({"a.b": None, "a": {"b": {"c": 3}}}, [None, None]),
        ({"a": {"b": None}}, [None, None]),
        ({"a": {}}, [None, None]),
        ({"b.c": 1, "c": 2}, [None, None]),
    ]
    for event, wanted in cases:
        keys = [ABSENT if one is None else one for one in wanted]
        assert encoder.one(event).tolist() == keys
        assert encoder.batch([event]).tolist() == [keys]
        assert encoder.batch([event] * 99).tolist() == [keys] * 99
        frame = pd.DataFrame({n: pd.Series([v], dtype=object) for n, v in event.items()})
        assert encoder.batch(frame).tolist() == [keys]


def test_an_attribute_is_no_parent() -> None:
    schema = Schema({"order": "string", "order.id": "int", "a.b": "int", "a.b.c": "int"})
    encoder = EventEncoder(schema, {})
    event = {"order": "x", "order.id": 3, "a": {"b": 5}}
    assert encoder.one(event)[1:].tolist() == [3, 5, ABSENT]
    assert encoder.batch(pa.Table.from_pylist([event]))[:, 1:].tolist() == [[3, 5, ABSENT]]


def test_names_with_many_dots() -> None:
    name = ".".join("a" * 200)
    encoder = EventEncoder(Schema({name: "int", "..": "int"}), {})
    assert encoder.one({name: 3, "..": 4}).tolist() == [3, 4]
    assert encoder.one({"": {"": {"": 5}}}).tolist() == [ABSENT, 5]
    deep = ".".join("abcdefghijklmnopqrstuvwxyz")
    assert EventEncoder(Schema({deep: "int"}), {}).one({deep: 1}).tolist() == [1]


def test_a_parent_must_be_a_mapping() -> None:
    reason = r"'order.price': 'x' {}is not a mapping, as 'order' must be"
    for read in (ENCODER.one, ENCODER.encode_one):
        with pytest.raises(AttributeValueError, match=reason.format("")):
            read({"order": "x"})
    with pytest.raises(
        AttributeValueError, match=r"5 is not a mapping, as 'order\.customer' must be"
    ):
        ENCODER.one({"order": {"customer": 5}})
    rows: list[dict[str, Any]] = [{"order": None}, {"order": {}}, {"order": "x"}]
    frame = pd.DataFrame({"order": [row["order"] for row in rows]})
    for batch in (rows, [{}, {}, *([{"order": "x"}] * 99)], frame):
        with pytest.raises(AttributeValueError, match=reason.format("in row 2 ")):
            ENCODER.batch(batch)
    with pytest.raises(
        AttributeValueError,
        match=r"'order.price': 'x' in row 2 \(Arrow type string\) is not a mapping, as 'order'",
    ):
        ENCODER.batch(pa.table({"order": [None, None, "x"]}))
    whole = pa.chunked_array([pa.nulls(5000, pa.string()), pa.array(["x"])])
    with pytest.raises(AttributeValueError, match="row 5000"):
        ENCODER.batch(pa.table({"order": whole}))
    assert ENCODER.batch(pa.table({"order": pa.nulls(1)})).tolist() == [[ABSENT] * 5]
    assert ENCODER.batch(pa.table({"order": pa.nulls(1, pa.string())})).tolist() == [[ABSENT] * 5]


def test_wrong_values_inside_name_attribute_and_row() -> None:
    wrong = {"order": {"customer": {"tier": "silver"}}}
    reason = "'order.customer.tier': 'silver' {}is not one of 'basic', 'gold'"
    with pytest.raises(AttributeValueError, match=reason.format("")):
        ENCODER.one(wrong)
    for batch in ([{}, wrong], [{}, wrong] * 40, pa.Table.from_pylist([{"order": None}, wrong])):
        with pytest.raises(AttributeValueError, match=reason.format("in row 1 ")):
            ENCODER.batch(batch)


def test_two_fields_of_one_name() -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["price", "price"])
    with pytest.raises(EventError, match="column 'order' has two fields named 'price'"):
        ENCODER.batch(pa.table({"order": twice}))
    with pytest.raises(EventError, match="two columns named 'order'"):
        ENCODER.batch(pa.table([[1], [2]], names=["order", "order"]))


def test_structs_in_schemas() -> None:
    assert SCHEMA.names == (
        "id",
        "order.price",
        "order.customer.tier",
        "order.customer.name",
        "order.customer.tags",
    )
    assert SCHEMA["order.customer.tags"] == Attribute("order.customer.tags", "int", repeated=True)
    assert Schema.from_json(SCHEMA.to_json()) == SCHEMA
    assert Schema.from_arrow(SCHEMA.to_arrow()) == SCHEMA
    with pytest.raises(SchemaError, match=r"'a\.b' appears twice"):
        Schema({"a.b": "int", "a": {"type": "struct", "fields": {"b": "int"}}})
    nested = '{"a": {"type": "struct", "fields": {"b": {"type": "int", "domain": [1, 2]}}}}'
    assert Schema.from_json(nested)["a.b"].domain == (1, 2)


ROWS: list[dict[str, Any]] = [
    {"a": None, "n": 1},
    {"a": {"x": 1.5, "b": None}, "n": 2},
    {"a": {"x": None, "b": {"s": "t", "l": [True]}}, "n": 3},
]


@pytest.mark.parametrize(
    "source",
    [
        list,
        pa.Table.from_pylist,
        lambda rows: pa.Table.from_pylist(rows).schema,
        pd.DataFrame,
        pl.DataFrame,
    ],
)
def test_structs_are_inferred(source: Callable[[list[dict[str, Any]]], Any]) -> None:
    wanted = {"a.x": "float", "a.b.s": "string", "a.b.l": "list of bool", "n": "int"}
    assert Schema.infer(source(ROWS)) == Schema(wanted)


def test_mappings_that_cannot_be_inferred() -> None:
    with pytest.raises(SchemaError, match=r"'a' is a mapping in one place \(.*\) and not in anot"):
        Schema.infer([{"a": {"x": 1}}, {"a": 1}])
    with pytest.raises(SchemaError, match="must be a string"):
        Schema.infer([{"a": {3: 1}}])
    with pytest.raises(SchemaError):
        Schema.infer([{"a": {}}])


# Any schema

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-9, 9),
    "float": st.floats(-9, 9).map(lambda x: x + 0.0),
    "string": st.sampled_from(["", "a", "é"]),
    "bool": st.booleans(),
    "decimal(5, 1)": st.decimals(-99, 99, places=1),
    "decimal(20, 1)": st.decimals(-99, 99, places=1),
}


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schema, list[dict[str, Any]]]:
    names = draw(
        st.lists(
            st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(".".join),
            min_size=1,
            max_size=5,
            unique=True,
        )
    )
    specs: dict[str, str] = {}
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for name in names:
        kind = draw(st.sampled_from(sorted(SCALARS)))
        repeated = draw(st.booleans())
        specs[name] = f"list of {kind}" if repeated else kind
        one = SCALARS[kind]
        fields[name] = st.none() | (st.lists(st.none() | one, max_size=3) if repeated else one)
    rows = draw(st.lists(st.fixed_dictionaries({}, optional=fields), max_size=4))
    return Schema(specs), rows


def nest(event: Mapping[str, Any], taken: frozenset[str]) -> dict[str, Any]:
    """The event with mappings for all parents that are no attributes."""
    nested: dict[str, Any] = {}
    for name, value in event.items():
        parts = name.split(".")
        if any(".".join(parts[:end]) in taken for end in range(1, len(parts))):
            nested[name] = value
            continue
        inside = nested
        for part in parts[:-1]:
            inside = inside.setdefault(part, {})
        inside[parts[-1]] = value
    return nested


@given(cases())
@settings(max_examples=150)
def test_one_and_batch_agree_for_any_schema(case: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = case
    encoder = EventEncoder(schema, {})
    taken = frozenset(schema.names)
    batches = [encoder.encode(rows), encoder.encode([nest(row, taken) for row in rows])]
    for row, event in enumerate(rows):
        for shape in (event, nest(event, taken)):
            one = encoder.encode_one(shape)
            wanted = {name: event.get(name) for name in schema.names}
            assert dict(one.values) == wanted
            for batch in batches:
                part = batch.points.part(row, row + 1)
                assert part.keys.tolist() == one.points.keys.tolist()
                assert (part.lists is None) == (one.points.lists is None)
                if part.lists is not None and one.points.lists is not None:
                    for mine, other in zip(part.lists, one.points.lists, strict=True):
                        assert mine.tolist() == other.tolist()
                assert {n: batch.column(n)[row].as_py() for n in schema.names} == wanted


def test_names_that_no_attribute_has() -> None:
    known = KnownNames(
        Schema(
            {
                "a": "int",
                "o.c.t": "string",
                "o.n": "int",
                "items": {"type": "list of struct", "fields": {"p": "int", "q.r": "int"}},
                ".".join("x" * 40): "int",
            }
        )
    )
    for event in (
        {},
        {"a": 1},
        {"a": {"any": 1}},  # of the wrong type, which others tell
        {"o": {"c": {"t": "x"}, "n": 1}},
        {"o": None},
        {"o": 3},
        {"o.c": {"t": "x"}, "o.n": 1},
        {"o.c.t": "x"},
        {"items": [{"p": 1, "q": {"r": 2}}, None, {"q.r": 1}]},
        {".".join("x" * 40): 1},
    ):
        assert known.find_unknown(event) is None
    for event, name in (
        ({"b": 1}, "b"),
        ({"o": {"d": 1}}, "o.d"),
        ({"o": {"c": {"u": 1}}}, "o.c.u"),
        ({"o.c": {"u": 1}}, "o.c.u"),
        ({"o.d": 1}, "o.d"),
        ({"items": [{"p": 1}, {"q": {"s": 1}}]}, "items.q.s"),
        ({"x": {"x": 1}}, "x"),
    ):
        assert known.find_unknown(event) == name
