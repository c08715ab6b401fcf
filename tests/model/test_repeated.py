from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmatch.engine.matcher import Matcher
from boxmatch.errors import AttributeValueError, EventError, FilterError, SchemaError
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.events import EventEncoder
from boxmatch.model.filters import compile_filter
from boxmatch.model.keys import key_of
from boxmatch.model.points import Points
from boxmatch.model.schema import Attribute, Schema
from boxmatch.model.strings import StringAxis
from boxmatch.spaces.dimensions import Dimensions

SCHEMA = Schema(
    {
        "id": "int",
        "tags": "list of string",
        "sizes": {"type": "list of enum", "values": ["small", "", "large"]},
        "scores": "list of float",
        "counts": "list of int",
        "flags": "list of bool",
        "times": "list of timestamp",
        "prices": "list of decimal(10, 2)",
        "amounts": "list of decimal(30, 1)",
        "items": {"type": "list of struct", "fields": {"price": "float", "box.kind": "string"}},
    }
)
AXES = {1: StringAxis(["", "a", "ab", "b", "é"]), 8: StringAxis()}
ENCODER = EventEncoder(SCHEMA, AXES)
LISTS = SCHEMA.names[1:-1]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
elements: dict[str, st.SearchStrategy[Any]] = {
    "tags": text | st.sampled_from(["", "a", "ab", "b", "é"]),
    "sizes": st.sampled_from(["small", "", "large"]),
    "scores": st.floats(allow_nan=False).map(lambda x: x + 0.0),
    "counts": st.integers(FIRST, LAST),
    "flags": st.booleans(),
    "times": st.datetimes(timezones=st.just(UTC)),
    "prices": st.decimals(-(10**7), 10**7, places=2),
    "amounts": st.decimals(-(10**25), 10**25, places=1),
    "items": st.fixed_dictionaries(
        {
            "price": st.none() | st.floats(allow_nan=False).map(lambda x: x + 0.0),
            "box": st.none() | st.fixed_dictionaries({"kind": st.none() | text}),
        }
    ),
}
events = st.lists(
    st.fixed_dictionaries(
        {"id": st.none() | st.integers(0, 99)}
        | {
            name: st.none() | st.lists(st.none() | strategy, max_size=4)
            for name, strategy in elements.items()
        }
    ),
    max_size=8,
)
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("sizes", pa.list_(pa.string())),
        ("scores", pa.list_(pa.float64())),
        ("counts", pa.list_(pa.int64())),
        ("flags", pa.list_(pa.bool_())),
        ("times", pa.list_(pa.timestamp("us", "UTC"))),
        ("prices", pa.list_(pa.decimal128(10, 2))),
        ("amounts", pa.list_(pa.decimal128(30, 1))),
        (
            "items",
            pa.list_(
                pa.struct([("price", pa.float64()), ("box", pa.struct([("kind", pa.string())]))])
            ),
        ),
    ]
)


# pandas makes nanoseconds of these, and floats if one is null.
LOSSY = ["times", "counts"]


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, ARROW)


def retyped(rows: list[dict[str, Any]], list_of: Callable[[Any], Any]) -> pa.Table:
    lists = [(field.name, list_of(field.type.value_type)) for field in list(ARROW)[1:]]
    return pa.Table.from_pylist(rows, pa.schema([("id", pa.int64()), *lists]))


def sliced(rows: list[dict[str, Any]]) -> pa.Table:
    full = pa.concat_tables([table(rows[:1] * 3), table(rows), table(rows[:1])])
    full = full.combine_chunks().slice(min(len(rows), 1) * 3, len(rows))
    cut = len(rows) // 3
    return pa.concat_tables([full.slice(0, cut), full.slice(cut, 0), full.slice(cut)])


def objects(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=object) for name in ARROW.names}
    )


SOURCES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "dicts": list,
    "sparse": lambda rows: [{n: v for n, v in row.items() if v is not None} for row in rows],
    "tuples": lambda rows: [
        {n: tuple(v) if isinstance(v, list) else v for n, v in row.items()} for row in rows
    ],
    "table": table,
    "chunked": lambda rows: pa.concat_tables([table([row]) for row in rows] or [table([])]),
    "sliced": sliced,
    "large": lambda rows: retyped(rows, pa.large_list),
    "views": lambda rows: retyped(rows, pa.list_view),
    "polars": lambda rows: pl.from_arrow(table(rows)),
    "pandas objects": objects,
    "pandas": lambda rows: table(rows).drop_columns(LOSSY).to_pandas(),
    "pandas arrow": lambda rows: table(rows).to_pandas(types_mapper=pd.ArrowDtype),
}


def key(position: int, value: Any) -> int:
    attribute = SCHEMA.attributes[position]
    if attribute.type == "string":
        return AXES[position].key(value)
    return FIRST if attribute.labelled else key_of(attribute, value)


def plain(name: str, value: Any) -> Any:
    """An element as expressions see it."""
    if value is None:
        return None
    if name == "times":
        return (value - EPOCH) // (datetime.resolution)
    if name == "items":
        kind = None if value["box"] is None else value["box"]["kind"]
        return {"price": value["price"], "box.kind": kind}
    return value


def plain_list(name: str, value: Any) -> Any:
    return value if name == "id" or value is None else [plain(name, one) for one in value]


def keys_of(points: Points, row: int, place: int) -> list[int]:
    assert points.lists is not None
    at = row * len(points.lists.axes) + place
    return points.lists.keys[points.lists.start[at] : points.lists.start[at + 1]].tolist()


@pytest.mark.parametrize("source", SOURCES)
@given(rows=events)
@settings(max_examples=10)
def test_every_source_gives_the_elements(source: str, rows: list[dict[str, Any]]) -> None:
    given = SOURCES[source](rows)
    encoded = ENCODER.encode(given)
    names = [name for name in SCHEMA.names if source != "pandas" or name not in LOSSY]
    points = encoded.points
    assert len(encoded) == len(rows)
    assert points.keys.flags.c_contiguous
    assert points.lists is not None
    assert points.lists.axes.tolist() == list(range(1, 9))
    assert points.lists.start.shape == (8 * len(rows) + 1,)
    for row, event in enumerate(rows):
        assert points.keys[row, 0] == key_of(SCHEMA["id"], event["id"])
        for place, name in enumerate(LISTS):
            if name in names:
                wanted = [key(place + 1, v) for v in event[name] or () if v is not None]
                assert keys_of(points, row, place) == wanted
    for name in names:
        assert encoded.column(name).to_pylist() == [plain_list(name, r[name]) for r in rows]
    unread = ENCODER.encode(SOURCES[source](rows), np.zeros(len(SCHEMA), bool))
    assert unread.points.lists is None
    for name in SCHEMA.names:
        assert unread.column(name).equals(encoded.column(name))


@given(rows=events)
@settings(max_examples=30)
def test_one_event_is_as_in_a_batch(rows: list[dict[str, Any]]) -> None:
    batch = ENCODER.encode(rows)
    for row, event in enumerate(rows):
        one = ENCODER.encode_one(event)
        same = batch.points.part(row, row + 1)
        assert one.points.keys.tolist() == same.keys.tolist()
        assert ENCODER.one(event).tolist() == same.keys[0].tolist()
        assert one.points.lists is not None
        assert same.lists is not None
        for mine, other in zip(one.points.lists, same.lists, strict=True):
            assert mine.dtype == other.dtype
            assert mine.tolist() == other.tolist()
        assert dict(one.values) == {name: plain_list(name, v) for name, v in event.items()}


def test_the_types_of_columns() -> None:
    encoded = ENCODER.encode([{}])
    types = {name: encoded.column(name).type for name in SCHEMA.names}
    kind = pa.struct([("price", pa.float64()), ("box.kind", pa.large_string())])
    assert types == {
        "id": pa.int64(),
        "tags": pa.large_list(pa.large_string()),
        "sizes": pa.large_list(pa.large_string()),
        "scores": pa.large_list(pa.float64()),
        "counts": pa.large_list(pa.int64()),
        "flags": pa.large_list(pa.bool_()),
        "times": pa.large_list(pa.int64()),
        "prices": pa.large_list(pa.decimal128(10, 2)),
        "amounts": pa.large_list(pa.decimal128(30, 1)),
        "items": pa.large_list(kind),
    }
    assert EventEncoder(Schema({"x": "float"}), {}).encode([{"x": 1.0}]).points.lists is None


def test_only_the_lists_that_are_needed_have_keys() -> None:
    needed = np.zeros(len(SCHEMA), bool)
    needed[[4, 9]] = True
    event = {"counts": [3, 5], "tags": ["a"], "items": [{"price": 1.0}]}
    for points in (
        ENCODER.encode([event], needed).points,
        ENCODER.encode_one(event, needed).points,
    ):
        assert points.lists is not None
        assert [part.tolist() for part in points.lists] == [[4], [0, 2], [3, 5]]


def test_other_lists_and_elements() -> None:
    fixed = pa.array([[1.5, None], None, [2.0, 3.0]], pa.list_(pa.float64(), 2)).slice(1)
    encoded = ENCODER.encode(pa.table({"scores": fixed}))
    assert encoded.column("scores").to_pylist() == [None, [2.0, 3.0]]
    shared = pa.ListArray.from_arrays([0, 2, 3], pa.array(["a", None, "a"]).dictionary_encode())
    assert ENCODER.encode(pa.table({"tags": shared})).column("tags").to_pylist() == [
        ["a", None],
        ["a"],
    ]
    # What lies under a null list is nobody's.
    hidden = pa.ListArray.from_arrays(
        [0, 2, 3], pa.array([-(2**63), 1, 2]), mask=pa.array([True, False])
    )
    assert ENCODER.encode(pa.table({"counts": hidden})).column("counts").to_pylist() == [None, [2]]
    nan = ENCODER.encode(pa.table({"scores": [[math.nan, 1.0]]}))
    assert nan.column("scores").to_pylist() == [[None, 1.0]]
    assert ENCODER.encode(pa.table({"tags": pa.nulls(2)})).column("tags").to_pylist() == [None] * 2
    frame = pd.DataFrame({"counts": [np.array([1, 2]), None, math.nan, pd.NA]})
    assert ENCODER.encode(frame).column("counts").to_pylist() == [[1, 2], None, None, None]
    event = {"counts": np.array([1, 2]), "times": np.array(["1970-01-02"], "M8[D]")}
    values = ENCODER.encode_one(event).values
    assert (values["counts"], values["times"]) == ([1, 2], [86_400_000_000])
    with pytest.raises(KeyError):
        values["other"]


def test_decimals_have_all_their_digits() -> None:
    schema = Schema({"p": "decimal(10, 2)", "q": "decimal(30, 1)", "ps": "list of decimal(10, 2)"})
    encoder = EventEncoder(schema, {})
    event = {"p": 1, "q": "7", "ps": ["1.5"]}
    for values in (
        encoder.encode_one(event).values,
        {name: encoder.encode([event]).column(name)[0].as_py() for name in schema.names},
    ):
        assert [str(values["p"]), str(values["q"]), str(values["ps"][0])] == ["1.00", "7.0", "1.50"]


WRONG: list[tuple[str, Any, Any, str]] = [
    ("tags", [None, 5], 5, "is not a string"),
    ("tags", ["a", "\ud800"], "\ud800", "surrogate"),
    ("tags", "a", "a", r"is not a list; write it as one: \{'tags': \['a'\]\}"),
    ("tags", {"a": 1}, {"a": 1}, "is not a list"),
    ("tags", [["a"]], ["a"], "is not a string"),
    ("sizes", ["huge"], "huge", "is not one of 'small', '', 'large'"),
    ("scores", [1, "2"], "2", "is not a float"),
    ("scores", [math.nan], math.nan, "has no place in an order"),
    ("scores", math.nan, math.nan, "has no place in an order"),
    ("counts", [2**63], 2**63, "outside the range of int64"),
    ("flags", [1], 1, "is not a bool"),
    ("times", ["noon"], "noon", "ISO 8601"),
    ("prices", ["1.234"], "1.234", "never rounded"),
    ("amounts", ["x"], "x", "is not a decimal"),
    ("items", {"price": 1}, {"price": 1}, r"is not a list; write it as one"),
    ("items", [3], 3, "is not a mapping"),
    ("items.price", [{"price": "x"}], "x", "is not a float"),
    ("items.box.kind", [None, {"box": {"kind": 5}}], 5, "is not a string"),
    ("items.box.kind", [{"box": 5}], 5, "is not a mapping, as 'box' must be"),
]


@pytest.mark.parametrize(("name", "wrong", "value", "reason"), WRONG)
def test_errors_name_attribute_row_and_value(
    name: str, wrong: Any, value: object, reason: str
) -> None:
    key = name.partition(".")[0]
    for read in (ENCODER.one, ENCODER.encode_one):
        with pytest.raises(AttributeValueError, match=reason) as alone:
            read({key: wrong})
        assert alone.value.row is None
    rows = [{key: None}, {key: []}, {key: wrong}]
    few: list[Any] = [rows, [*rows] * 30]
    if value != value:
        few = [rows]
    elif wrong not in ("a",):
        few.append(pd.DataFrame({key: pd.Series([row[key] for row in rows], dtype=object)}))
    for batch in few:
        for needed in (None, np.zeros(len(SCHEMA), bool)):
            if needed is not None and isinstance(batch, pd.DataFrame):
                continue
            with pytest.raises(AttributeValueError, match=f"in row 2 .*{reason}") as caught:
                ENCODER.encode(batch, needed).column(key)
            error = caught.value
            assert error.row == 2
            assert value != value or error.value == value
            assert error.attribute in (name, "items")


@pytest.mark.parametrize(
    ("name", "column", "reason"),
    [
        ("tags", pa.array([None, ["a"], [5]][2:]), r"5 in row 0 \(Arrow type int64\) is not a str"),
        ("tags", pa.array([None, "a"]), r"'a' in row 1 \(Arrow type string\) is not a list; write"),
        ("counts", pa.array([[1], None, [2, 1.5]]), "1.5 in row 2 is not an int"),
        ("sizes", pa.array([[], ["small"], ["huge", "x"]]), "'huge' in row 2 is not one of"),
        ("items", pa.array([None, [5]]), r"5 in row 1 .*is not a mapping"),
    ],
)
def test_arrow_errors_name_attribute_row_and_value(
    name: str, column: pa.Array, reason: str
) -> None:
    with pytest.raises(AttributeValueError, match=reason):
        ENCODER.encode(pa.table({name: column})).column(name)
    chunked = pa.chunked_array([pa.nulls(5000, column.type), column])
    with pytest.raises(AttributeValueError, match=r"in row 500[012] "):
        ENCODER.encode(pa.table({name: chunked})).column(name)


def test_unneeded_lists_in_tables_are_only_checked_for_their_type() -> None:
    needed = np.zeros(len(SCHEMA), bool)
    batch = pa.table({"counts": [[1.5]], "sizes": [["huge"]]})
    encoded = ENCODER.encode(batch, needed)
    with pytest.raises(AttributeValueError, match=r"'counts': 1.5 in row 0 is not an int"):
        encoded.column("counts")
    with pytest.raises(AttributeValueError, match=r"5 in row 1 \(Arrow type int64\) is not a stri"):
        ENCODER.encode(pa.table({"tags": [[], [5]]}), needed)
    with pytest.raises(AttributeValueError, match="is not a list"):
        ENCODER.encode(pa.table({"tags": ["a"]}), needed)


def test_a_domain_is_that_of_elements() -> None:
    schema = Schema({"n": {"type": "list of int", "domain": [0, 10]}})
    encoder = EventEncoder(schema, {})
    for batch in ([{}, {"n": [5, 11]}], pa.table({"n": [None, [5, 11]]})):
        with pytest.raises(AttributeValueError, match="11 in row 1 is outside the domain 0 to 10"):
            encoder.encode(batch)
    with pytest.raises(AttributeValueError, match="outside the domain"):
        encoder.one({"n": [11]})


def test_a_list_where_one_value_is_expected() -> None:
    for batch in ([{"id": [1]}], pa.table({"id": [[1]]})):
        with pytest.raises(AttributeValueError, match=r"'id': \[1\] in row 0 .*is not an int"):
            ENCODER.encode(batch)


# Schemas


def test_attributes_of_lists() -> None:
    tags, prices, items = SCHEMA["tags"], SCHEMA["prices"], SCHEMA["items"]
    assert (tags.type, tags.repeated, tags.labelled) == ("string", True, True)
    assert tags.type_name == "list of string"
    assert prices.type_name == "list of decimal(10, 2)"
    assert (prices.precision, prices.scale) == (10, 2)
    assert items.type_name == "list of struct"
    assert [field.name for field in items.fields] == ["price", "box.kind"]
    assert Attribute("tags", "list of string") == tags  # type: ignore[arg-type]
    assert Attribute("tags", "string", repeated=True) == tags
    assert replace(tags, name="other").repeated
    assert hash(tags) != hash(replace(tags, repeated=False))
    nested = {"type": "struct", "fields": {"kind": "string"}}
    spec = {"type": "list of struct", "fields": {"price": "float", "box": nested}}
    assert Schema({"items": spec})["items"] == items


def test_schemas_go_to_json_repr_and_arrow_and_back() -> None:
    fields = {"a": ["x", "y"], "b": {"type": "float", "domain": [0, "inf"]}, "c": "decimal(30, 3)"}
    schema = Schema(
        {
            **{attribute.name: attribute for attribute in SCHEMA},
            "domain": {"type": "list of timestamp", "domain": ["2020-01-01", "2021-01-01"]},
            "structs": {"type": "list of struct", "fields": fields},
        }
    )
    assert Schema.from_json(schema.to_json()) == schema
    assert json.loads(schema.to_json())["sizes"] == {
        "type": "list of enum",
        "values": ["small", "", "large"],
    }
    assert Schema.from_arrow(schema.to_arrow()) == schema
    assert eval(repr(SCHEMA), {"Schema": Schema}) == SCHEMA
    changed = schema.to_arrow().set(1, pa.field("tags", pa.int64(), metadata={}))
    assert Schema.from_arrow(changed)["tags"] == Attribute("tags", "int")
    metadata = schema.to_arrow().field("items").metadata
    other = pa.field("items", pa.list_(pa.int64()), metadata=metadata)
    assert Schema.from_arrow(pa.schema([other]))["items"].type_name == "list of int"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("list of list of int", "a list of lists is not possible"),
        ("list of things", "unknown type 'things'"),
        ("list of enum", 'write it with its values: {"type": "list of enum", "values": …}'),
        ("list of struct", 'write it with its fields: {"type": "list of struct", "fields": …}'),
        ("struct", 'write it with its fields: {"type": "struct", "fields": …}'),
        ({"type": "struct"}, "the fields of a struct are a mapping"),
        ({"type": "struct", "fields": {}}, "the fields of a struct are a mapping"),
        ({"type": "struct", "fields": {"": "int"}}, "must not be empty"),
        ({"type": "struct", "fields": {3: "int"}}, "must be a string"),
        ({"type": "struct", "fields": {"a": "int"}, "domain": [1, 2]}, "unknown key 'domain'"),
        ({"type": "list of int", "fields": {"a": "int"}}, "only a struct has fields"),
        ({"type": "list of string", "domain": [1, 2]}, "have no domain"),
        ({"type": "list of int", "values": ["a"]}, "only an enum has values"),
        (
            {"type": "list of struct", "fields": {"a": "list of int"}},
            "field 'a' is a list, which the elements of a list cannot have",
        ),
        (
            {
                "type": "list of struct",
                "fields": {"a": {"type": "struct", "fields": {"b": "int"}}, "a.b": "int"},
            },
            "field 'a.b' appears twice",
        ),
    ],
)
def test_schemas_that_make_no_sense(spec: Any, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema({"x": spec})
    assert message in str(caught.value)


def test_a_struct_is_only_in_lists() -> None:
    field = Attribute("a", "int")
    with pytest.raises(SchemaError, match=r"an attribute for each of its fields, named 'x.FIELD'"):
        Attribute("x", "struct", fields=(field,))
    with pytest.raises(SchemaError, match="at least one field"):
        Attribute("x", "struct", repeated=True)
    with pytest.raises(SchemaError, match="3 is not an Attribute"):
        Attribute("x", "struct", repeated=True, fields=(3,))  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="only a struct has fields"):
        Attribute("x", "int", fields=(field,))


INFERRED = {
    "tags": "list of string",
    "scores": "list of float",
    "items": {"type": "list of struct", "fields": {"price": "float", "box.kind": "string"}},
}
ROWS: list[dict[str, Any]] = [
    {"tags": ["a", None], "scores": None, "items": [{"price": 1.5, "box": {"kind": "k"}}]},
    {"tags": None, "scores": [1.0, 2.5], "items": []},
]


@pytest.mark.parametrize(
    "source",
    [
        list,
        pa.Table.from_pylist,
        lambda rows: pa.Table.from_pylist(rows).schema,
        pd.DataFrame,
        pl.DataFrame,
        lambda rows: pa.Table.from_pylist(rows).to_pandas(types_mapper=pd.ArrowDtype),
    ],
)
def test_lists_are_inferred(source: Callable[[list[dict[str, Any]]], Any]) -> None:
    assert Schema.infer(source(ROWS)) == Schema(INFERRED)


def test_ordered_categories_in_lists_are_an_enum() -> None:
    kind = pa.dictionary(pa.int8(), pa.string(), ordered=True)
    values = pa.DictionaryArray.from_arrays(
        pa.array([0, 1], pa.int8()), pa.array(["lo", "hi"]), ordered=True
    )
    lists = pa.ListArray.from_arrays([0, 1, 2], values, type=pa.list_(kind))
    assert Schema.infer(pa.table({"x": lists}))["x"].values == ("lo", "hi")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"x": [[1]]}], "list of lists"),
        ([{"x": [1, "a"]}], "type int in one place"),
        ([{"x": []}], "no value to infer a type from"),
        ([{"x": [1]}, {"x": 1}], r"is a list in one place \(\[1\]\) and not in another \(1\)"),
        ([{"x": [{"a": 1}, 2]}], "some elements are mappings, and some are not"),
        ([{"x": [{"a": [1]}]}], "field 'a' is a list"),
    ],
)
def test_lists_that_cannot_be_inferred(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema.infer(rows)
    if "another" not in message and "in one place" not in message and "some" not in message:
        with pytest.raises(SchemaError):
            Schema.infer(pa.Table.from_pylist(rows))


# Where there are no lists


def test_arrays_have_no_lists() -> None:
    encoder = EventEncoder(Schema({"x": "float", "tags": "list of string"}), {})
    for array in (np.zeros((1, 2)), np.full((1, 2), None)):
        with pytest.raises(EventError, match="'tags' is a list, which an array has no place for"):
            encoder.encode(array)


def test_bounds_have_no_lists() -> None:
    matcher = Matcher({"x": "float", "tags": "list of string"})
    with pytest.raises(SchemaError, match="attribute 'tags' is a list: use a filter"):
        matcher.subscribe_boxes([1], np.zeros((1, 2)), np.zeros((1, 2)))
    for name in ("tags", "tags_low", "tags_high"):
        with pytest.raises(SchemaError, match=f"column '{name}': attribute 'tags' is a list: use"):
            matcher.subscribe_many(pa.table({"id": [1], name: ["a"]}))


def test_spaces_have_no_lists() -> None:
    with pytest.raises(SchemaError, match="dimension 'tags' of space 'one' is a list of string"):
        Dimensions({"one": Schema({"tags": "list of string"})})


def test_dict_filters_are_about_elements() -> None:
    one = Schema({"tags": "string"})
    many = Schema({"tags": "list of string"})
    for wanted in ("a", ["a", "b"], {"low": "a"}, ("a", "c")):
        assert compile_filter(many, {"tags": wanted}).boxes == (
            compile_filter(one, {"tags": wanted}).boxes
        )
    for wanted, text in ((None, "tags IS NULL"), (["a", None], "'a' = ANY(tags) OR tags IS NULL")):
        assert compile_filter(many, {"tags": wanted}) == compile_filter(many, text)
    with pytest.raises(FilterError, match="'items' is a list of struct: write the filter as text"):
        compile_filter(SCHEMA, {"items": "x"})


def test_absent_is_no_key() -> None:
    lists = ENCODER.encode(pa.table({"tags": [[None, None], ["a", None]]})).points.lists
    assert lists is not None
    assert ABSENT not in lists.keys
    assert Decimal(len(lists.keys)) == 1


def test_values_of_arrays() -> None:
    schema = Schema(
        {
            "x": "float",
            "n": "int",
            "b": "bool",
            "t": "timestamp",
            "p": "decimal(9, 1)",
            "q": "decimal(30, 1)",
            "s": "string",
            "e": ["a", "b"],
        }
    )
    encoder = EventEncoder(schema, {})
    numbers = np.array([[-1.5, 3, 1, 7, 2.5, 0.5, math.nan, math.nan], [math.nan] * 8])
    some = np.array([[-1.5, 3, True, "1970-01-01", 2.5, "0.5", "é", "b"], [None] * 8], object)
    expected = [-1.5, 3, True, 7, Decimal("2.5"), Decimal("0.5"), None, None]
    for array, row in ((numbers, expected), (some, [*expected[:3], 0, *expected[4:6], "é", "b"])):
        for needed in (None, np.zeros(8, bool), np.arange(8) % 2 == 0):
            encoded = encoder.encode(array, needed)
            for name, value in zip(schema.names, row, strict=True):
                assert encoded.column(name).to_pylist() == [value, None]
    with pytest.raises(AttributeValueError, match="'e': 'c' in row 0 is not one of"):
        encoder.encode(np.array([[None] * 7 + ["c"]], object), np.zeros(8, bool)).column("e")
