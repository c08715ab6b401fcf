"""What bodies may be, and what is said about those that they may not be."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmatch.wire.event_bodies import LARGE, Events, _load_in_pieces, load_json, read_events
from boxmatch.wire.http import ARROW, JSON, NDJSON
from boxmatch.wire.problems import Problem


def read(body: bytes, kind: str = JSON, most: int = 100, most_bytes: int = 1 << 20) -> Events:
    return read_events(body, kind, most=most, most_bytes=most_bytes)


def refused(body: bytes, kind: str = JSON, most: int = 100) -> Problem:
    with pytest.raises(Problem) as caught:
        read(body, kind, most)
    return caught.value


def arrow(table: pa.Table | pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("body", "kind", "rows"),
    [
        (b'{"price": 3}', JSON, [{"price": 3}]),
        (b'[{"price": 3}, {}]', JSON, [{"price": 3}, {}]),
        (b'{"price": 3}\r\n\n{"price" : 4}', NDJSON, [{"price": 3}, {"price": 4}]),
        ('{"name": "ä\\u00e4\\n"}'.encode(), "", [{"name": "ää\n"}]),
    ],
)
def test_events_are_kept_as_compact_json(body: bytes, kind: str, rows: list[Any]) -> None:
    events = read(body, kind)
    assert events.rows == rows
    assert [json.loads(one) for one in events.bodies] == rows
    assert not any(b"\n" in one or b'": ' in one for one in events.bodies)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "empty"),
        (b" \n", 400, "empty"),
        (b"{", 400, "not JSON"),
        (b'{"a": NaN}', 400, "not JSON"),
        (b'{"a": Infinity}', 400, "not JSON"),
        (b'{"a": 1e999}', 400, "infinity"),
        (b'{"a": "\xff"}', 400, "not JSON"),
        (b'{"a": "\\ud800"}', 400, "surrogate"),
        (b'{"a": 1, "a": 2}', 400, "'a' twice"),
        (b'{"a": 1, "\\u0061": 2}', 400, "'a' twice"),
        (b'[{"b": 1}, {"a" : 1, "a": 2}]', 400, "'a' twice"),
        (b'{"a": {"b": [{"c": 1, "c": 1}]}}', 400, "'c' twice"),
        (b'{"a":' * 5000, 400, "depth"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, 400, "levels"),
        (b'{"a":' + b"[" * 260 + b"]" * 260 + b"}", 400, "nested"),
        (b'[{"a": 1}, 5]', 422, "event 1 is a number"),
        (b"[null]", 422, "null"),
        (b"true", 422, "a boolean"),
        (b"[]", 422, "no events"),
    ],
)
def test_what_cannot_be_read_is_named(body: bytes, status: int, said: str) -> None:
    problem = refused(body)
    assert problem.status == status
    assert said in problem.detail


@given(st.data())
def test_a_large_body_is_read_as_a_small_one(data: st.DataObject) -> None:
    """Also where it is not JSON, and whatever was changed about it."""
    values = data.draw(
        st.lists(
            st.recursive(
                st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(),
                lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            ),
            max_size=200,
        )
    )
    body = bytearray(json.dumps(values, ensure_ascii=data.draw(st.booleans())).encode())
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + 1] = data.draw(st.binary(max_size=2) | st.sampled_from([b"[", b",", b'"']))
    try:
        expected = repr(orjson.loads(bytes(body)))
    except orjson.JSONDecodeError as error:
        expected = str(error)
    try:
        found = repr(_load_in_pieces(bytes(body)))
    except orjson.JSONDecodeError as error:
        found = str(error)
    assert found == expected


def test_a_large_body_that_is_deep_is_refused() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert len(deep) > LARGE
    assert "depth limit" in str(refused(deep))


def test_a_bad_line_is_located() -> None:
    problem = refused(b'{"a": 1}\n{"a": 1}\n{"a": }\n', NDJSON)
    assert problem.more == {"index": 2}
    assert problem.detail.startswith("line 3 is not JSON")
    assert refused(b'{"a": 1}\n7\n', NDJSON).more == {"index": 1}


@pytest.mark.parametrize("kind", [JSON, NDJSON, ARROW])
def test_too_many_events_are_refused(kind: str) -> None:
    rows = [{"a": 1}] * 4
    body = {
        JSON: json.dumps(rows).encode(),
        NDJSON: b"\n".join(json.dumps(row).encode() for row in rows),
        ARROW: arrow(pa.Table.from_pylist(rows)),
    }[kind]
    assert len(read(body, kind, most=4).rows) == 4
    assert refused(body, kind, most=3).status == 413


def test_lines_are_counted_before_they_are_made() -> None:
    body = b'{"a": 1}\n\n' * 3
    assert len(read(body, NDJSON, most=3).rows) == 3
    problem = refused(b"\n" * 1_000, NDJSON, most=3)
    assert (problem.status, problem.kind) == (413, "events")
    assert refused(b"\n" * 5, NDJSON, most=3).status == 422


def test_other_media_types_are_refused() -> None:
    assert refused(b"a=1", "application/x-www-form-urlencoded").status == 415


_NAMES = st.sampled_from(["a", "b", 'q"', "\\", "c:", '":', " :"])
_VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | _NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(_NAMES, inner), max_size=3),
    max_leaves=12,
)


@given(st.lists(st.tuples(_NAMES, _VALUES), max_size=4), st.sampled_from([":", " :", "\t: "]))
def test_a_name_twice_is_found_wherever_it_is(pairs: list[Any], colon: str) -> None:
    repeated = False

    def write(value: Any) -> str:
        nonlocal repeated
        if isinstance(value, list) and value and all(isinstance(one, tuple) for one in value):
            names = [name for name, _ in value]
            repeated = repeated or len(set(names)) < len(names)
            inner = ", ".join(json.dumps(name) + colon + write(one) for name, one in value)
            return "{" + inner + "}"
        if isinstance(value, list):
            return "[" + ",".join(write(one) for one in value) + "]"
        return json.dumps(value)

    text = write(pairs)
    if repeated:
        with pytest.raises(Problem, match="twice"):
            load_json(text.encode())
    else:
        assert load_json(text.encode()) == json.loads(text)


def test_arrow_becomes_rows() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    table = pa.table({"price": [1.5, None], "at": [at, at], "name": ["x", None]})
    events = read(arrow(table), ARROW)
    assert events.rows == [{"price": 1.5, "at": at, "name": "x"}, {"at": at}]
    assert json.loads(events.bodies[0])["at"] == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pa.table({"a": [1.0, float("nan")]}), "nan"),
        (pa.table({"a": [float("inf")]}), "inf"),
        (pa.table({"a": [b"x"]}), "bytes"),
        (pa.table({"a": [[1]]}), "send such events as JSON"),
        (pa.table({"a": [{"b": 1}]}), "send such events as JSON"),
        (pa.table({"a": pa.array(["x"], pa.string_view())}), "send such events as JSON"),
        (pa.table({"a": pa.array([None], pa.list_(pa.null(), 1 << 30))}), "send such events"),
        (pa.table([[1], [2]], names=["a", "a"]), "two columns"),
        (pa.table({"a": pa.array([], pa.int64())}), "no events"),
        (
            pa.table({"a": pa.array([1_000, 1], pa.timestamp("ns"))}),
            "attribute 'a' in row 1: 1970-01-01 00:00:00.000000001 has a fraction of a microsecond",
        ),
    ],
)
def test_arrow_that_has_no_form_in_json(table: pa.Table, said: str) -> None:
    assert said in refused(arrow(table), ARROW).detail


def test_decimals_are_numbers_if_a_float_holds_them() -> None:
    table = pa.table({"a": [Decimal("1.50"), Decimal("0.3000000000000000001")]})
    bodies = [b'{"a":1.5}', b'{"a":"0.3000000000000000001"}']
    assert read(arrow(table), ARROW).bodies == bodies


def test_nanoseconds_may_be_whole_microseconds() -> None:
    moments = pa.array([1_000], pa.timestamp("ns", "UTC"))
    events = read(arrow(pa.table({"a": moments})), ARROW)
    assert events.bodies == [b'{"a":"1970-01-01T00:00:00.000001Z"}']


@given(st.data())
def test_broken_arrow_is_refused(data: st.DataObject) -> None:
    body = bytearray(arrow(pa.table({"a": [1, 2, 3], "s": ["x", "yy", None]})))
    for _ in range(data.draw(st.integers(1, 8))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    try:
        read(bytes(body[:cut]), ARROW)
    except Problem as problem:
        assert problem.status in (400, 413, 422)  # noqa: PT017  # others may be read


def test_arrow_that_grows_is_refused() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 90, pa.int8()), ["x" * 10_000])
    body = arrow(pa.table({"a": column}))
    with pytest.raises(Problem, match="too large") as caught:
        read(body, ARROW, most_bytes=len(body))
    assert caught.value.status == 413


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("column", [[1, 2], pa.array(["x", "x"]).dictionary_encode()])
def test_compressed_arrow_is_refused(compression: str, column: Any) -> None:
    problem = refused(arrow(pa.table({"a": column}), compression), ARROW)
    assert problem.status == 415
    assert "compressed" in problem.detail
