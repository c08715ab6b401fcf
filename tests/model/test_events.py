from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
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

from boxmatch.errors import AttributeValueError, EventError
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.events import EventEncoder
from boxmatch.model.keys import float_key, key_of
from boxmatch.model.schema import Schema
from boxmatch.model.strings import StringAxis

SCHEMA = Schema(
    {
        "s": "string",
        "e": ["small", "", "large"],
        "x": "float",
        "n": "int",
        "b": "bool",
        "t": "timestamp",
    }
)
AXES = {0: StringAxis(["", "a", "ab", "b", "é", "\uffff", "\U0001f600"])}
ENCODER = EventEncoder(SCHEMA, AXES)
EDGES = EventEncoder(
    Schema({"n": {"type": "int", "domain": [0, 10]}, "x": {"type": "float", "domain": [-1, 1]}}), {}
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
values: dict[str, st.SearchStrategy[Any]] = {
    "s": text | st.sampled_from(sorted(AXES[0].labels)),
    "e": st.sampled_from(["small", "", "large"]),
    "x": st.floats(allow_nan=False),
    "n": st.integers(FIRST, LAST) | st.sampled_from([2**53 + 1, FIRST, LAST]),
    "b": st.booleans(),
    "t": st.datetimes(timezones=st.just(UTC)),
}
events = st.lists(
    st.fixed_dictionaries({name: st.none() | strategy for name, strategy in values.items()}),
    max_size=12,
)
ARROW = pa.schema(
    [
        ("s", pa.string()),
        ("e", pa.string()),
        ("x", pa.float64()),
        ("n", pa.int64()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", "UTC")),
    ]
)


def expected(event: Mapping[str, Any]) -> list[int]:
    """The plain truth: one value at a time."""
    keys = []
    for position, attribute in enumerate(SCHEMA):
        value = event.get(attribute.name)
        if attribute.type == "string":
            keys.append(ABSENT if value is None else AXES[position].key(value))
        else:
            keys.append(key_of(attribute, value))
    return keys


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, ARROW)


def dictionaries(rows: list[dict[str, Any]]) -> pa.Table:
    full = table(rows)
    for place, name in enumerate(full.column_names):
        full = full.set_column(place, name, full[name].dictionary_encode())
    return full


def retyped(rows: list[dict[str, Any]], **types: pa.DataType) -> pa.Table:
    full = table(rows)
    for name, kind in types.items():
        full = full.set_column(full.column_names.index(name), name, full[name].cast(kind))
    return full


def sliced(rows: list[dict[str, Any]]) -> pa.Table:
    """Every chunk is a window into longer arrays, with an offset that is not a multiple of 8."""
    full = pa.concat_tables([table(rows[:1] * 3), table(rows), table(rows[:1])])
    full = full.combine_chunks().slice(min(len(rows), 1) * 3, len(rows))
    cut = len(rows) // 3
    return pa.concat_tables([full.slice(0, cut), full.slice(cut, 0), full.slice(cut)])


def pandas_objects(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=object) for name in ARROW.names}
    )


def pandas_nullable(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return table(rows).to_pandas(types_mapper=pd.ArrowDtype)


class Stream:
    """A foreign table that only speaks the Arrow PyCapsule protocol."""

    def __init__(self, wrapped: pa.Table) -> None:
        self.wrapped = wrapped

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.wrapped.__arrow_c_stream__(requested_schema)


class Batch:
    def __init__(self, wrapped: pa.RecordBatch) -> None:
        self.wrapped = wrapped

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self.wrapped.__arrow_c_array__(requested_schema)


SOURCES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "dicts": list,
    "iterator": iter,
    "ordered dicts": lambda rows: [OrderedDict(row) for row in rows],
    "sparse dicts": lambda rows: [
        {name: value for name, value in row.items() if value is not None} for row in rows
    ],
    "table": table,
    "record batch": lambda rows: table(rows).combine_chunks().to_batches()[0] if rows else [],
    "reader": lambda rows: table(rows).to_reader(),
    "stream": lambda rows: Stream(table(rows)),
    "array": lambda rows: Batch(pa.RecordBatch.from_pylist(rows, ARROW)),
    "chunked": lambda rows: pa.concat_tables([table([row]) for row in rows] or [table([])]),
    "sliced": sliced,
    "dictionaries": dictionaries,
    "large strings": lambda rows: retyped(rows, s=pa.large_string(), e=pa.large_string()),
    "string views": lambda rows: retyped(rows, s=pa.string_view(), e=pa.string_view()),
    "naive times": lambda rows: retyped(rows, t=pa.timestamp("us")),
    "zoned times": lambda rows: retyped(rows, t=pa.timestamp("us", "America/New_York")),
    "pandas objects": pandas_objects,
    "pandas arrow": pandas_nullable,
    "polars": lambda rows: pl.from_arrow(table(rows)),
    "polars stream": lambda rows: Stream(pl.from_arrow(table(rows))),
    "objects": lambda rows: np.array(
        [[row[name] for name in ARROW.names] for row in rows], dtype=object
    ).reshape(len(rows), len(SCHEMA)),
}


@pytest.mark.parametrize("source", SOURCES)
@given(rows=events)
@settings(max_examples=40)
def test_every_source_gives_the_keys_of_the_values(source: str, rows: list[dict[str, Any]]) -> None:
    keys = ENCODER.batch(SOURCES[source](rows))
    assert keys.dtype == np.int64
    assert keys.flags.c_contiguous
    assert keys.shape == (len(rows), 6)
    assert keys.tolist() == [expected(row) for row in rows]


@given(
    rows=st.lists(st.fixed_dictionaries(values), min_size=1, max_size=5)
    | st.lists(st.fixed_dictionaries({n: st.none() | v for n, v in values.items()}), min_size=1),
    last=st.fixed_dictionaries({}, optional=values),
)
@settings(max_examples=60)
def test_many_dicts_give_the_same_keys(rows: list[dict[str, Any]], last: dict[str, Any]) -> None:
    """They are read column by column, unless one of them lacks something."""
    many = rows * 64
    keys = [expected(row) for row in rows] * 64
    assert ENCODER.batch(many).tolist() == keys
    assert ENCODER.batch([*many, last]).tolist() == [*keys, expected(last)]


def test_many_dicts_of_one_attribute() -> None:
    encoder = EventEncoder(Schema({"n": "int"}), {})
    rows = [{"n": number, "more": None} for number in range(5_000)]
    assert encoder.batch(rows)[:, 0].tolist() == list(range(5_000))


def test_many_mappings_are_not_changed_by_reading() -> None:
    rows = [defaultdict(int, {"n": 1}) for _ in range(100)]
    assert ENCODER.batch(rows).tolist() == [expected({"n": 1})] * 100
    assert all(row == {"n": 1} for row in rows)


@given(rows=events)
def test_one_event_at_a_time(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        keys = ENCODER.one(row)
        assert keys.dtype == np.int64
        assert keys.tolist() == expected(row)
        assert ENCODER.one(MappingProxyType(row)).tolist() == expected(row)


def test_pandas_types() -> None:
    frame = pd.DataFrame(
        {
            "s": pd.Series(["a", None, "zz"], dtype="string"),
            "e": pd.Categorical(["large", None, ""], categories=["unused", "large", ""]),
            "x": [1.5, math.nan, -0.0],
            "n": pd.Series([2**53 + 1, None, -5], dtype="Int64"),
            "b": pd.Series([True, None, False], dtype="boolean"),
            "t": pd.to_datetime(["2020-01-01 12:00", None, "1969-01-01 00:00"]).tz_localize(
                "Asia/Tokyo"
            ),
        }
    )
    first, last = datetime(2020, 1, 1, 3, tzinfo=UTC), datetime(1968, 12, 31, 15, tzinfo=UTC)
    assert ENCODER.batch(frame).tolist() == [
        expected({"s": "a", "e": "large", "x": 1.5, "n": 2**53 + 1, "b": True, "t": first}),
        [ABSENT] * 6,
        expected({"s": "zz", "e": "", "x": 0.0, "n": -5, "b": False, "t": last}),
    ]
    plain = pd.DataFrame({"t": pd.to_datetime(["1970-01-01", None]), "n": [1.0, math.nan]})
    assert ENCODER.batch(plain)[:, [3, 5]].tolist() == [[1, 0], [ABSENT, ABSENT]]
    sparse = pd.DataFrame({"n": pd.arrays.SparseArray([1, 2, 3])}, index=[7, 7, 7])
    assert ENCODER.batch(sparse)[:, 3].tolist() == [1, 2, 3]


def test_polars_types() -> None:
    frame = pl.DataFrame(
        {
            "s": pl.Series(["a", None, "zz"], dtype=pl.Categorical),
            "e": pl.Series(["large", None, ""], dtype=pl.Enum(["unused", "large", ""])),
            "x": pl.Series([1.5, math.nan, -2], dtype=pl.Float32),
            "n": pl.Series([2**53 + 1, None, -5], dtype=pl.Int128),
            "t": [date(2020, 1, 1), None, date(1, 1, 1)],
            "payload": pl.Series([object(), object(), object()], dtype=pl.Object),
        }
    )
    assert ENCODER.batch(frame).tolist() == [
        expected({"s": "a", "e": "large", "x": 1.5, "n": 2**53 + 1, "t": date(2020, 1, 1)}),
        [ABSENT] * 6,
        expected({"s": "zz", "e": "", "x": -2.0, "n": -5, "t": date(1, 1, 1)}),
    ]


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64()),
        *(pa.decimal32(9, 2), pa.decimal64(18, 4), pa.decimal128(30, 3), pa.decimal256(50, 0)),
    ],
)
def test_numbers_of_every_arrow_type(kind: pa.DataType) -> None:
    column = pa.array([1, None, 100, 0, 7])
    if pa.types.is_decimal(kind):  # integers are not cast to short decimals
        column = pa.array([None if v is None else Decimal(v) for v in column.to_pylist()], kind)
    column = column.cast(kind)
    keys = ENCODER.batch(pa.table({"n": column, "x": column}).slice(1))
    assert keys[:, 3].tolist() == [ABSENT, 100, 0, 7]
    assert keys[:, 2].tolist() == [key_of(SCHEMA["x"], v) for v in (None, 100, 0, 7)]


def test_large_numbers_stay_exact() -> None:
    large = 2**53 + 1
    exact = {
        "int64 with nulls": pa.array([large, None]),
        "uint64": pa.array([large, None], pa.uint64()),
        "decimal": pa.array([Decimal(large), None], pa.decimal128(20, 2)),
        "dictionary": pa.array([large, None]).dictionary_encode(),
        "run ends": pa.RunEndEncodedArray.from_arrays([1, 2], pa.array([large, None])),
    }
    for column in exact.values():
        assert ENCODER.batch(pa.table({"n": column}))[:, 3].tolist() == [large, ABSENT]


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        (pa.array([-1, 1, None], pa.timestamp("s")), [-1_000_000, 1_000_000, ABSENT]),
        (pa.array([-1, 1, None], pa.timestamp("ms", "Asia/Tokyo")), [-1000, 1000, ABSENT]),
        (pa.array([-3000, 1000, None], pa.timestamp("ns")), [-3, 1, ABSENT]),
        (pa.array([-1, 1, None], pa.date32()), [-86_400_000_000, 86_400_000_000, ABSENT]),
        (pa.array([-86_400_000, None], pa.date64()), [-86_400_000_000, ABSENT]),
        (pa.array(["1970-01-01T01:00:00+01:00", None, "1970-01-02"]), [0, ABSENT, 86_400_000_000]),
        (pa.array([None, None], pa.string()), [ABSENT, ABSENT]),
        (pa.nulls(2), [ABSENT, ABSENT]),
    ],
)
def test_times_of_every_arrow_type(column: pa.Array, keys: list[int]) -> None:
    assert ENCODER.batch(pa.table({"t": column}))[:, 5].tolist() == keys


def test_scalars_of_other_libraries() -> None:
    event = {"s": np.str_("ab"), "x": np.float32(1.5), "n": np.int8(3), "b": np.True_, "t": pd.NA}
    plain = {"s": "ab", "x": 1.5, "n": 3, "b": True, "t": None}
    assert ENCODER.one(event).tolist() == expected(plain)
    assert ENCODER.one({"s": None, "e": pd.NA, "x": 3, "n": 3.0}).tolist() == (
        expected({"x": 3.0, "n": 3})
    )


@pytest.mark.parametrize("name", ["s", "e", "x", "n", "b", "t"])
@pytest.mark.parametrize("value", [math.nan, np.float32("nan"), pd.NaT], ids=repr)
def test_nan_is_refused_in_dicts_and_absent_in_tables(name: str, value: object) -> None:
    refused = f"attribute '{name}': (nan|np.float32\\(nan\\)|NaT) {{}}has no place in an order"
    with pytest.raises(AttributeValueError, match=refused.format("")):
        ENCODER.one({name: value})
    full: dict[str, Any] = {"s": "a", "e": "large", "x": 1.5, "n": 1, "b": True, "t": "2020-01-01"}
    for few in ([{name: None}], [full] * 99):  # many that have everything go by column
        with pytest.raises(AttributeValueError, match=refused.format(f"in row {len(few)} ")):
            ENCODER.batch([*few, full | {name: value}])
    place = SCHEMA.names.index(name)
    objects = np.full((1, len(SCHEMA)), None)
    objects[0, place] = value
    for table in (pd.DataFrame({name: [value, None]}, dtype=object), objects):
        assert set(ENCODER.batch(table)[:, place].tolist()) == {ABSENT}


def test_payload_is_ignored() -> None:
    assert ENCODER.one({"s": "a", "other": object()}).tolist() == expected({"s": "a"})
    assert ENCODER.one({}).tolist() == [ABSENT] * 6
    rows = pd.DataFrame({"s": ["a"], "other": [{"any": "thing"}], 3: [1]})
    assert ENCODER.batch(rows).tolist() == [expected({"s": "a"})]
    nested = pa.table({"s": ["a"], "other": [[1, 2]]})
    assert ENCODER.batch(nested).tolist() == [expected({"s": "a"})]
    twice = pa.table([["a"], [1], [2]], names=["s", "other", "other"])
    assert ENCODER.batch(twice).tolist() == [expected({"s": "a"})]


def test_strings_added_later_count() -> None:
    axis = StringAxis()
    encoder = EventEncoder(Schema({"s": "string"}), {0: axis})
    assert encoder.one({"s": "x"}).tolist() == [FIRST]
    axis.add(["x", "z"])
    assert encoder.one({"s": "x"}).tolist() == [axis.label("x")]
    assert encoder.batch([{"s": "y"}]).tolist() == [[axis.label("x") + 1]]
    assert EventEncoder(Schema({"s": "string"}), {}).one({"s": "x"}).tolist() == [FIRST]


def test_unneeded_columns_are_only_checked_for_their_type() -> None:
    needed = np.array([True, False, True, False, True, True])
    keys = ENCODER.batch(pa.table({"s": ["a"], "e": ["nonsense"], "n": [2.5]}), needed)
    assert keys.tolist() == [expected({"s": "a"})]
    with pytest.raises(AttributeValueError, match=r"'n'.*'x'.*row 1"):
        ENCODER.batch(pa.table({"n": [None, "x"]}), needed)


WRONG: list[tuple[str, Any, Any, str]] = [
    ("s", "a", 3, "is not a string"),
    ("s", "a", "\ud800", "surrogate"),
    ("s", "a", ["a"], "is not a string"),
    ("e", "large", "huge", "is not one of 'small', '', 'large'"),
    ("x", 1.5, "1.5", "is not a float"),
    ("x", 1.5, True, "is not a float"),
    ("n", 1, 1.5, "is not an int"),
    ("n", 1, True, "is not an int"),
    ("n", 1, "1", "is not an int"),
    ("n", 1, 2**63, "outside the range of int64"),
    ("n", 1, -(2**63), "reserved to mean absent"),
    ("b", True, 1, "is not a bool"),
    ("t", datetime(2020, 1, 1), 3, "is not a timestamp"),
    ("t", "2020-01-01", "today", "ISO 8601"),
]


def test_what_is_not_text_is_refused_where_no_filter_names_a_string_too() -> None:
    encoder = EventEncoder(Schema({"s": "string"}), {0: StringAxis()})
    assert encoder.one({"s": "é"}).tolist() == [FIRST]
    with pytest.raises(AttributeValueError, match="surrogate"):
        encoder.one({"s": "\ud800"})


@pytest.mark.parametrize(("name", "right", "wrong", "reason"), WRONG)
@pytest.mark.parametrize("source", ["dicts", "many dicts", "pandas", "objects"])
def test_errors_name_attribute_value_and_row(
    source: str, name: str, right: object, wrong: object, reason: str
) -> None:
    with pytest.raises(AttributeValueError, match=reason) as alone:
        ENCODER.one({name: wrong})
    assert alone.value.attribute == name
    rows = [{name: right}, {name: None}, {name: wrong}, {name: wrong}]
    batch: Any = rows
    if source == "pandas":
        batch = pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object)})
    elif source == "many dicts":
        whole = dict.fromkeys(SCHEMA.names)
        batch = [whole | row for row in rows] * 20
    elif source == "objects":
        batch = np.full((4, 6), None, object)
        for row, event in enumerate(rows):
            batch[row, SCHEMA.index[name]] = event[name]
    with pytest.raises(AttributeValueError, match=f"in row 2 .*{reason}") as caught:
        ENCODER.batch(batch)
    assert caught.value.attribute == name
    assert caught.value.value == wrong
    assert caught.value.row == 2
    assert repr(name) in str(caught.value)
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "column", "value", "reason"),
    [
        ("s", pa.array([None, 3]), 3, "Arrow type int64.* is not a string"),
        ("s", pa.array([None, b"x"]), b"x", "is not a string"),
        ("e", pa.array([None, "huge", "large"]), "huge", "is not one of"),
        ("e", pa.array([None, "huge"]).dictionary_encode(), "huge", "is not one of"),
        ("e", pa.array([None, 1]), 1, "is not one of"),
        ("x", pa.array([None, "1"]), "1", "Arrow type string.* is not a float"),
        ("x", pa.array([None, True]), True, "is not a float"),
        ("n", pa.array([1, 2.5, math.nan]), 2.5, "is not an int"),
        ("n", pa.array([1, math.inf]), math.inf, "is not an int"),
        ("n", pa.array([1, 2.0**63]), 2.0**63, "outside the range of int64"),
        ("n", pa.array([None, 2**63], pa.uint64()), 2**63, "outside the range of int64"),
        ("n", pa.array([None, -(2**63)]), -(2**63), "reserved to mean absent"),
        ("n", pa.array([None, Decimal("1.5")]), Decimal("1.5"), "is not an int"),
        ("n", pa.array([None, Decimal(10) ** 25]), Decimal(10) ** 25, "range of int64"),
        ("n", pa.array([2.0, 2.5]).dictionary_encode(), 2.5, "is not an int"),
        ("n", pa.array([None, timedelta(1)]), timedelta(1), "is not an int"),
        ("b", pa.array([0, 1]).slice(1).cast(pa.int8()), 1, "is not a bool"),
        ("t", pa.array([None, 5]), 5, "is not a timestamp"),
        ("t", pa.array(["2020-01-01", "noon"]), "noon", "ISO 8601"),
        ("t", pa.array([0, 2**62], pa.timestamp("s")), np.datetime64(2**62, "s"), "too far"),
        ("t", pa.array([0, 2**31 - 1], pa.date32()), np.datetime64(2**31 - 1, "D"), "too far"),
        ("t", pa.array([0, -(2**63)], pa.timestamp("us")), None, "not a valid timestamp"),
        ("x", pa.array([None, Decimal("1E-40")], pa.decimal128(5, 40)), None, "cannot be read"),
        ("n", pa.array([None, Decimal("1E-40")], pa.decimal128(5, 40)), None, "cannot be read"),
    ],
)
def test_arrow_errors_name_attribute_value_and_row(
    name: str, column: pa.Array, value: object, reason: str
) -> None:
    row = len(column) - 1 if len(column) < 3 else 1
    with pytest.raises(AttributeValueError, match=f"in row {row} .*{reason}") as caught:
        ENCODER.batch(pa.table({name: column}))
    assert caught.value.attribute == name
    if value is not None:
        assert caught.value.value == value
    # The same in a later chunk counts rows from the start of the table.
    chunked = pa.chunked_array([pa.nulls(5000, column.type), column])
    with pytest.raises(AttributeValueError, match=f"in row {5000 + row} "):
        ENCODER.batch(pa.table({name: chunked}))


def test_unused_dictionary_values_do_no_harm() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([1, None, 1]), pa.array(["huge", "large"]))
    assert ENCODER.batch(pa.table({"e": column}))[:, 1].tolist() == [2, ABSENT, 2]
    with_null = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([None, "large"]))
    assert ENCODER.batch(pa.table({"e": with_null}))[:, 1].tolist() == [ABSENT, 2]


def test_values_outside_the_domain_are_refused() -> None:
    inside = [{"n": 0, "x": 1.0}, {"n": 10, "x": -1}, {"n": None, "x": None}]
    sources: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
        "dicts": list,
        "arrow": lambda rows: pa.Table.from_pylist(rows, pa.schema([("n", "int64"), ("x", "f8")])),
        "array": lambda rows: np.array([[row["n"], row["x"]] for row in rows], float),
    }
    for source in sources.values():
        assert EDGES.batch(source(inside))[:, 0].tolist() == [0, 10, ABSENT]
        for wrong in ({"n": 11, "x": 0}, {"n": -1, "x": 0}, {"n": 1, "x": math.nextafter(1, 2)}):
            with pytest.raises(AttributeValueError, match=r"row 3 is outside the domain .* to "):
                EDGES.batch(source([*inside, wrong]))
    with pytest.raises(AttributeValueError, match=r"'n': 11 is outside the domain 0 to 10"):
        EDGES.one({"n": 11})


numbers = Schema({"x": "float", "n": "int", "b": "bool", "t": "timestamp", "s": "string"})


@given(
    st.lists(
        st.tuples(
            st.floats(),
            st.just(math.nan) | st.integers(-(2**53), 2**53).map(float),
            st.sampled_from([0.0, 1.0, math.nan]),
            st.just(math.nan) | st.integers(-(2**40), 2**40).map(float),
            st.just(math.nan),
        )
    )
)
def test_arrays_of_numbers(rows: list[tuple[float, ...]]) -> None:
    encoder = EventEncoder(numbers, {})
    array = np.array(rows, float).reshape(len(rows), 5)
    whole = [[ABSENT if v != v else int(v) for v in row[1:]] for row in rows]
    keys = [[float_key(r[0]), *w] for r, w in zip(rows, whole, strict=True)]
    assert encoder.batch(array).tolist() == keys
    assert encoder.batch(np.asfortranarray(array)).tolist() == keys
    assert encoder.batch(np.repeat(array, 2, axis=0)[::2]).tolist() == keys
    assert encoder.batch(array.astype(">f8")).tolist() == keys


@pytest.mark.parametrize("dtype", ["f2", "f4", "i1", "i2", "i4", "i8", "u1", "u4", "u8"])
def test_arrays_of_every_number_type(dtype: str) -> None:
    schema = Schema({"x": "float", "n": "int", "b": "bool", "t": "timestamp"})
    keys = EventEncoder(schema, {}).batch(np.array([[3, 2, 1, 100]], dtype))
    assert keys.tolist() == [[key_of(schema["x"], 3), 2, 1, 100]]


def test_arrays_in_several_blocks() -> None:
    schema = Schema({f"a{i}": "float" for i in range(20)})
    array = np.random.default_rng(0).normal(size=(5000, 20))
    array[array > 2] = np.nan
    expected_keys = [[float_key(v) for v in row] for row in array[::500].tolist()]
    assert EventEncoder(schema, {}).batch(array)[::500].tolist() == expected_keys
    whole = np.arange(100_000).reshape(5000, 20) + 2**53
    integers = EventEncoder(Schema({f"a{i}": "int" for i in range(20)}), {})
    assert np.array_equal(integers.batch(whole), whole)
    whole[4000, 3] = -(2**63)
    with pytest.raises(AttributeValueError, match=r"'a3'.*row 4000 .*reserved"):
        integers.batch(whole)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (1, 1.5, r"'n': 1.5 in row 1 is not an int"),
        (1, math.inf, r"'n': inf in row 1 is not an int"),
        (1, 2.0**63, r"'n': .* in row 1 is outside the range of int64"),
        (2, 2.0, r"'b': 2.0 in row 1 is neither 0 nor 1"),
        (2, 0.5, r"'b': 0.5 in row 1 is neither 0 nor 1"),
        (3, 0.5, r"'t': 0.5 in row 1 is not a whole number of microseconds"),
        (4, 0.0, r"'s': 0.0 in row 1 is a number, but .* string; leave it NaN"),
    ],
)
def test_array_errors_name_attribute_value_and_row(place: int, value: float, message: str) -> None:
    array = np.full((3, 5), np.nan)
    array[1, place] = value
    with pytest.raises(AttributeValueError, match=message) as caught:
        EventEncoder(numbers, {}).batch(array)
    assert caught.value.row == 1


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"x": [1.0]}, r"not one dict; .*pyarrow\.table"),
        ("text", "str"),
        (3, "int"),
        (None, "NoneType"),
        ([{"x": 1.0}, 7], r"row 1: an event is a mapping .*, not 7"),
        ([[1.0, 2.0]], "row 0"),
        (np.zeros((2, 3)), "n × 6.*2 × 3"),
        (np.zeros(6), "n × 6.*not 6"),
        (np.zeros((1, 6), "c16"), "complex128"),
        (np.zeros((1, 6), "M8[us]"), "datetime64"),
        (np.zeros((1, 6), bool), "'s' is not a bool"),
        (np.zeros(1, [("x", float)]), "structured"),
        (pd.Series([1.0]), "Series"),
        (pl.Series([1.0]), "Series"),
        (pl.LazyFrame({"x": [1.0]}), "collect"),
        (pa.array([1.0]), "not a table"),
        (pa.table([[1.0], [2.0]], names=["x", "x"]), "two columns named 'x'"),
        (pd.DataFrame([[1.0, 2.0]], columns=["x", "x"]), "two columns named 'x'"),
    ],
)
def test_batches_of_a_wrong_shape(batch: object, message: str) -> None:
    with pytest.raises(EventError, match=message):
        ENCODER.batch(batch)


@pytest.mark.parametrize("event", [3, "text", None, [("x", 1.0)]])
def test_an_event_is_a_mapping(event: Any) -> None:
    with pytest.raises(EventError, match="an event is a mapping"):
        ENCODER.one(event)
