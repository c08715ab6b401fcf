from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmatch.errors import SchemaError
from boxmatch.model.schema import MAX_ATTRIBUTES, Attribute, Schema

MARKET = Schema(
    {
        "symbol": "string",
        "side": ["buy", "sell"],
        "price": {"type": "float", "domain": [0, 1e6]},
        "volume": {"type": "int", "domain": (0, 2**53 + 1)},
        "halted": "bool",
        "at": {"type": "timestamp", "domain": ["2020-01-01", "2030-01-01T01:00:00+01:00"]},
    }
)

text = st.text(st.characters(exclude_categories=["Cs"]))
names = text.filter(bool)
ordered = {
    "int": st.integers(-(2**63) + 1, 2**63 - 1),
    "float": st.floats(allow_nan=False),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
}


@st.composite
def attributes(draw: st.DrawFn, name: str) -> Attribute:
    kind = draw(st.sampled_from(["int", "float", "string", "bool", "timestamp", "enum"]))
    if kind == "enum":
        values = draw(st.lists(text, min_size=1, max_size=4, unique=True))
        return Attribute(name, "enum", tuple(values))
    domain = None
    if kind in ordered and draw(st.booleans()):
        domain = tuple(sorted(draw(st.tuples(ordered[kind], ordered[kind]))))
    return Attribute(name, kind, (), domain)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    unique = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    return Schema([draw(attributes(name)) for name in unique])


def test_attributes_in_order() -> None:
    assert MARKET.names == ("symbol", "side", "price", "volume", "halted", "at")
    assert [a.type for a in MARKET] == ["string", "enum", "float", "int", "bool", "timestamp"]
    assert MARKET.index["volume"] == 3
    assert MARKET["side"] == Attribute("side", "enum", ("buy", "sell"))
    assert "side" in MARKET
    assert "nope" not in MARKET
    assert len(MARKET) == 6
    with pytest.raises(KeyError):
        MARKET["nope"]


def test_domains_are_in_canonical_form() -> None:
    assert MARKET["price"].domain == (0.0, 1e6)
    assert type(MARKET["price"].domain[0]) is float
    assert MARKET["volume"].domain == (0, 2**53 + 1)
    utc = datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
    assert MARKET["at"].domain == utc
    assert Attribute("t", "timestamp", domain=(date(2020, 1, 1), np.datetime64("2030"))).domain == (
        utc
    )


def test_equality_hash_repr_and_pickle() -> None:
    same = Schema(MARKET.attributes)
    assert same == MARKET
    assert hash(same) == hash(MARKET)
    assert Schema({"a": "int", "b": "int"}) != Schema({"b": "int", "a": "int"})
    assert MARKET != "schema"
    assert pickle.loads(pickle.dumps(MARKET)) == MARKET
    assert eval(repr(MARKET), {"Schema": Schema, "datetime": __import__("datetime")}) == MARKET


def test_a_schema_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        MARKET.names = ()  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del MARKET.names
    with pytest.raises(TypeError):
        MARKET.index["x"] = 1  # type: ignore[index]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "at least one"),
        ({"": "int"}, "must not be empty"),
        ({3: "int"}, "must be a string"),
        ({"\ud800": "int"}, "surrogate"),
        ({"a": "integer"}, "'a'.*'integer'.*int, float, string"),
        ({"a": "enum"}, "list of its values"),
        ({"a": None}, "'a'.*None"),
        ({"a": []}, "at least one value"),
        ({"a": ["x", "y", "x"]}, "'x' appears twice"),
        ({"a": ["x", 1]}, "1 is not a string"),
        ({"a": {"type": "enum", "values": "xy"}}, "must be a list"),
        ({"a": {"type": "int", "values": ["x"]}}, "only an enum"),
        ({"a": {"type": "int", "range": [0, 1]}}, "unknown key 'range'"),
        ({"a": {"domain": [0, 1]}}, "no type"),
        ({"a": {"type": "int", "domain": [1, 0]}}, "starts at 1, after its end 0"),
        ({"a": {"type": "int", "domain": [0, 1.5]}}, "1.5 is not an int"),
        ({"a": {"type": "int", "domain": [0, 2**63]}}, "range of int64"),
        ({"a": {"type": "int", "domain": [0]}}, "pair"),
        ({"a": {"type": "int", "domain": [None, 1]}}, "both ends"),
        ({"a": {"type": "float", "domain": [float("nan"), 1]}}, "both ends"),
        ({"a": {"type": "timestamp", "domain": [0, 1]}}, "0 is not a timestamp"),
        ({"a": {"type": "string", "domain": ["a", "b"]}}, "have no domain"),
        ({"a": Attribute("b", "int")}, "'a'.*'b'"),
        ([Attribute("a", "int"), Attribute("a", "float")], "'a' appears twice"),
        ([3], "3 is no Attribute"),
        ("int", "mapping"),
        (3, "mapping"),
    ],
)
def test_bad_schemas(spec: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema(spec)  # type: ignore[arg-type]


def test_number_of_attributes_is_bounded() -> None:
    assert len(Schema({f"a{i}": "int" for i in range(MAX_ATTRIBUTES)})) == 65_535
    with pytest.raises(SchemaError, match="65,535"):
        Schema({f"a{i}": "int" for i in range(MAX_ATTRIBUTES + 1)})


def test_json_is_readable() -> None:
    assert MARKET.to_json() == (
        "{\n"
        '  "symbol": "string",\n'
        '  "side": ["buy", "sell"],\n'
        '  "price": {"type": "float", "domain": [0.0, 1000000.0]},\n'
        '  "volume": {"type": "int", "domain": [0, 9007199254740993]},\n'
        '  "halted": "bool",\n'
        '  "at": {"type": "timestamp", '
        '"domain": ["2020-01-01T00:00:00+00:00", "2030-01-01T00:00:00+00:00"]}\n'
        "}\n"
    )


@given(schemas())
def test_round_trips(schema: Schema) -> None:
    written = schema.to_json()
    assert Schema.from_json(written) == schema
    assert Schema(json.loads(written, parse_constant=pytest.fail)) == schema
    assert Schema.from_arrow(schema.to_arrow()) == schema
    assert Schema.infer(schema.to_arrow()) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("", "JSON"),
        ("[]", "object"),
        ('{"a": "int", "a": "float"}', "'a' appears twice"),
        ('{"a": 3}', "'a'.*3"),
        ('{"a": "int"', "JSON"),
        ('{"a": {"type": "int", "domain": [0, ' + "1" * 5000 + "]}}", "JSON.*digits"),
    ],
)
def test_bad_json(written: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema.from_json(written)


def test_arrow_metadata_yields_to_a_changed_type() -> None:
    field = Schema({"a": ["x", "y"]}).to_arrow().field("a")
    assert Schema.from_arrow(pa.schema([field.with_type(pa.int64())])) == Schema({"a": "int"})


def test_infer_from_arrow_types() -> None:
    fields = {
        "int": [pa.int8(), pa.uint64(), pa.dictionary(pa.int8(), pa.int32())],
        "float": [pa.float16(), pa.float64()],
        "decimal(10, 2)": [pa.decimal128(10, 2), pa.decimal64(10, 2), pa.decimal256(10, 2)],
        "decimal(7, 0)": [pa.decimal32(7, 0), pa.decimal128(5, -2), pa.decimal128(7)],
        "decimal(5, 5)": [pa.decimal32(3, 5), pa.dictionary(pa.int8(), pa.decimal128(5, 5))],
        "decimal(38, 38)": [pa.decimal128(38, 38), pa.decimal256(38, 38)],
        "string": [
            pa.string(),
            pa.large_string(),
            pa.string_view(),
            pa.dictionary(pa.int32(), pa.string()),
            pa.run_end_encoded(pa.int32(), pa.string()),
        ],
        "bool": [pa.bool_()],
        "timestamp": [pa.timestamp("ns", "Asia/Tokyo"), pa.timestamp("s"), pa.date32()],
    }
    for kind, types in fields.items():
        for arrow_type in types:
            assert Schema.from_arrow(pa.schema([("a", arrow_type)])) == Schema({"a": kind})
    with pytest.raises(SchemaError, match="'a': no decimal has the 39 digits of decimal256"):
        Schema.from_arrow(pa.schema([("a", pa.decimal256(39, 0))]))
    with pytest.raises(SchemaError, match=r"'a'.*list"):
        Schema.from_arrow(pa.schema([("a", pa.list_(pa.list_(pa.int8())))]))
    with pytest.raises(SchemaError, match="'a': no attribute type fits Arrow type map"):
        Schema.from_arrow(pa.schema([("a", pa.map_(pa.string(), pa.int8()))]))
    with pytest.raises(SchemaError, match="'a' has no values"):
        Schema.infer(pa.table({"a": [None, None]}))
    with pytest.raises(SchemaError, match="'a' appears twice"):
        Schema.infer(pa.table([[1], [2]], names=["a", "a"]))


def test_infer_from_tables() -> None:
    rows = {
        "s": ["x", None],
        "i": [1, 2],
        "f": [1.5, 2.5],
        "b": [True, False],
        "t": [datetime(2020, 1, 1), datetime(2021, 1, 1)],
    }
    expected = Schema({"s": "string", "i": "int", "f": "float", "b": "bool", "t": "timestamp"})
    assert Schema.infer(pa.table(rows)) == expected
    assert Schema.infer(pa.table(rows).to_batches()[0]) == expected
    assert Schema.infer(pa.table(rows).to_reader()) == expected
    assert Schema.infer(pd.DataFrame(rows)) == expected
    assert Schema.infer(pd.DataFrame(rows).convert_dtypes()) == expected
    assert Schema.infer(pl.DataFrame(rows)) == expected
    assert Schema.infer([dict(zip(rows, r, strict=True)) for r in zip(*rows.values(), strict=True)])
    assert Schema.infer([{"f": 1.5, "b": True}, {"i": 1, "s": "x", "t": date(2020, 1, 1)}]) == (
        Schema({"f": "float", "b": "bool", "i": "int", "s": "string", "t": "timestamp"})
    )


def test_infer_ordered_categories_as_enum() -> None:
    expected = Schema({"size": ["S", "M", "L"]})
    ordered_type = pd.CategoricalDtype(["S", "M", "L"], ordered=True)
    assert Schema.infer(pd.DataFrame({"size": pd.Series(["M"], dtype=ordered_type)})) == expected
    enum = pl.Series(["M"], dtype=pl.Enum(["S", "M", "L"]))
    assert Schema.infer(pl.DataFrame({"size": enum})) == expected
    plain = pd.DataFrame({"size": pd.Series(["M"], dtype="category")})
    assert Schema.infer(plain) == Schema({"size": "string"})


def test_infer_mixes_int_and_float_only() -> None:
    assert Schema.infer([{"a": 1}, {"a": None}, {"a": 2.5}]) == Schema({"a": "float"})
    assert Schema.infer([{"a": float("nan")}, {"a": 2}]) == Schema({"a": "float"})
    for more, kind in [
        ([Decimal("1.50"), np.int8(1), Decimal("NaN"), None], "decimal(18, 2)"),
        ([Decimal("1e10"), Decimal("0.00000001")], "decimal(38, 8)"),
        ([Decimal("1e3"), 5], "decimal(18, 0)"),
        ([Decimal("1.5"), 2.5], "float"),
    ]:
        assert Schema.infer([{"a": value} for value in more]) == Schema({"a": kind})
    for wrong in ("1e38", "1e-39", "Infinity"):
        with pytest.raises(SchemaError, match=r"'a': no .* (digits|fits)"):
            Schema.infer([{"a": Decimal(wrong)}])
    assert Schema.infer(pd.DataFrame({"a": pd.Series([1, None, 3], dtype=object)})) == (
        Schema({"a": "int"})
    )
    with pytest.raises(SchemaError, match=r"'a' is of type int .*\(1\) and string .*\('x'\)"):
        Schema.infer([{"a": 1}, {"a": "x"}])
    with pytest.raises(SchemaError, match=r"'a' is of type bool .* int"):
        Schema.infer([{"a": True}, {"a": 1}])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "at least one"),
        ([{"a": None}], "'a' has no value"),
        ([{"a": [[1]]}], "'a'.*list"),
        ([{"a": 1}, 7], "row 1"),
        ("text", "str"),
        ({"a": [1]}, "dict"),
        (3, "int"),
        (pl.LazyFrame({"a": [1]}), "collect"),
        (pd.Series([1]), "Series"),
        (pd.DataFrame({0: [1]}), "column 0"),
    ],
)
def test_infer_errors(source: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema.infer(source)


def test_documents_have_no_type_in_arrow() -> None:
    with pytest.raises(SchemaError, match="'data': a json has no type in Arrow"):
        Schema({"x": "int", "data": "json"}).to_arrow()
