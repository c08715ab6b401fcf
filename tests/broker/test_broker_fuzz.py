"""Hostile requests to a real server: from its OpenAPI document, as events, and as filters.

Nothing may end in a 5xx, hang, or leave the server larger than it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest
import requests
import schemathesis
from broker_server import RunningBroker
from hostile_client import ARROW, Siege, arrow_stream, check_answer, make_feeds
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks

from boxmatch.errors import BoxmatchError
from boxmatch.model.filters import compile_filter
from boxmatch.model.schema import Schema

JSON = "application/json"
NDJSON = "application/x-ndjson"
SECONDS = 10.0
"""No single request may take longer."""


def fuzz(few: int) -> Any:
    """Few examples by default; what is found is not kept, since the server differs each time."""
    return settings(
        max_examples=few, deadline=None, database=None, phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("fuzz") / "data") as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def siege(broker: RunningBroker) -> Siege:
    return Siege(broker)


@pytest.fixture
def http(broker: RunningBroker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=SECONDS) as client:
        make_feeds(client)
        yield client


# From the OpenAPI document

_CHECKS: list[Any] = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
]
_KNOWN: dict[str, list[str]] = {
    "feed": ["trades", "loose", "places", "nowhere"],
    "subscriber": ["olga", "nobody"],
    "id": ["a", "b"],
}


def run_operations(broker: RunningBroker, mode: GenerationMode, examples: int) -> list[str]:
    """Call every operation with generated data; what was wrong with the answers."""
    schema = schemathesis.openapi.from_url(f"{broker.url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 25
    wrong: list[str] = []
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and operation.path in ("/healthz", "/readyz"):
            continue  # there is nothing in them that could be wrong
        call = _caller(broker, wrong)
        cases = operation.as_strategy(generation_mode=mode)
        names = st.fixed_dictionaries(
            {k: st.none() | st.sampled_from(v) for k, v in _KNOWN.items()}
        )
        fuzz(examples)(given(case=cases, names=names)(call))()
    return wrong


def _caller(broker: RunningBroker, wrong: list[str]) -> Callable[..., None]:
    def call(case: Any, names: dict[str, str | None]) -> None:
        # Random names are of things that are not there; behind those that are is more to find.
        for name, known in names.items():
            if known is not None and name in (case.path_parameters or {}):
                case.path_parameters[name] = known
            if known is not None and isinstance(case.body, dict) and name in case.body:
                case.body[name] = known
        if "wait" in (case.query or {}) and case.path.endswith("/notifications"):
            case.query["wait"] = 0  # it may be a minute
        began = time.monotonic()
        if case.path.endswith("/stream"):
            _open_stream(broker, case)
        else:
            answer = case.call(base_url=broker.url, timeout=SECONDS)
            try:
                case.validate_response(answer, checks=_CHECKS)
                if answer.status_code >= 400:
                    assert answer.headers["content-type"] == ["application/problem+json"]
                    assert json.loads(answer.content)["status"] == answer.status_code
            except (AssertionError, Exception) as error:
                found = getattr(error, "exceptions", [error])
                wrong.extend(f"{case.operation.label}: {one}" for one in found)
        assert time.monotonic() - began < SECONDS

    return call


def _open_stream(broker: RunningBroker, case: Any) -> None:
    """Server-Sent Events do not end, so only their beginning is looked at."""
    request = case.as_transport_kwargs(base_url=broker.url)
    with requests.request(**request, stream=True, timeout=SECONDS) as answer:
        kind = answer.headers["content-type"].partition(";")[0]
        assert answer.status_code < 500
        wanted = "text/event-stream" if answer.status_code == 200 else "application/problem+json"
        assert kind == wanted


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_operation_does_what_it_says(broker: RunningBroker, mode: GenerationMode) -> None:
    assert run_operations(broker, mode, 2) == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_operation_many_times(broker: RunningBroker, mode: GenerationMode) -> None:
    assert run_operations(broker, mode, 150) == []


# Events

_numbers = st.sampled_from(
    ["NaN", "Infinity", "-Infinity", "1e999", "-1e-999", "9" * 400, "1" * 5000, "0.1" + "0" * 5000,
     "-0", "01", "1.", ".5", "0x1", "18446744073709551616", "9223372036854775808", "1e308"]
)  # fmt: skip
_texts = st.sampled_from(
    ['"\\ud800"', '"\\u0000"', '"' + "x" * 3000 + '"', '"\U0001f600"', "'a'", '"\t"', '"a']
)
_leaves = _numbers | _texts | st.sampled_from(["null", "true", "1", '"buy"', "1.5", "", "[]", "{}"])
_names = st.sampled_from(
    ['"price"', '"size"', '"symbol"', '"side"', '"at"', '"ok"', '"é"', '""', "a"]
)


def _list_of(parts: list[str]) -> str:
    return "[" + ",".join(parts) + "]"


def _object_of(pairs: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{name}:{value}" for name, value in pairs) + "}"


_jsonish = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=3).map(_list_of)
        | st.lists(st.tuples(_names, inner), max_size=4).map(_object_of)
    ),
    max_leaves=8,
)
_objects = st.lists(st.tuples(_names, _jsonish), max_size=4).map(_object_of)
_nested = st.builds(
    lambda opening, depth, closed: opening * depth + (b"]" * depth if closed else b""),
    st.sampled_from([b"[", b'{"a":', b'{"price":[', b"[{}", b'"\\']),
    st.sampled_from([10, 199, 201, 253, 255, 1023, 1025, 100_000]),
    st.booleans(),
)
_json_bodies = st.one_of(
    _objects.map(str.encode),
    st.lists(_objects, max_size=3).map(lambda parts: _list_of(parts).encode()),
    st.lists(_objects, max_size=3).map(lambda parts: "\n".join(parts).encode()),
    _jsonish.map(str.encode),
    _nested,
    st.binary(max_size=200),
    st.sampled_from(
        [b"", b" ", b"\n\n", b"\xff\xfe{\x00}\x00", b"\xef\xbb\xbf{}", b"{}\x00", b"{}{}", b"[{},]",
         b'{"symbol":"\xff"}', b'{"symbol":"\xed\xa0\x80"}', '{"symbol":"é"}'.encode("latin-1"),
         b"\x1f\x8b\x08\x00", b"[" + b"{}," * 60_000 + b"{}]", b"{}\n" * 60_000,
         b'{"size":1,"size":2}', b'{"size":1,"\\u0073ize":2}', b'{"price":{"a":1,"a":2}}']
    ),
)  # fmt: skip

_MOMENT = pa.array([2**62], pa.timestamp("s"))
_STRANGE: list[pa.Array] = [
    pa.array([b"\xff"]),
    pa.array([b"\xff"], pa.binary(1)),
    pa.array(["x"], pa.large_string()),
    pa.array(["x"], pa.string_view()),
    pa.array([1], pa.uint64()),
    pa.array([2**64 - 1], pa.uint64()),
    pa.array([1.5], pa.float16()),
    pa.array([float("nan")]),
    pa.array([float("-inf")], pa.float32()),
    pa.array([1], pa.date32()),
    pa.array([2**31 - 1], pa.date32()),
    pa.array([2**62], pa.date64()),
    pa.array([1], pa.time32("s")),
    pa.array([2**40], pa.time64("ns")),
    pa.array([1], pa.duration("ns")),
    pa.array([2**62], pa.duration("s")),
    pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    _MOMENT,
    pa.array([-(2**62)], pa.timestamp("ns", "Europe/Paris")),
    pa.array([1], pa.timestamp("ns")),
    pa.array([0], pa.timestamp("us", "+99:99")),
    pa.array([0], pa.timestamp("us", "No/Where")),
    pa.array([None]),
    pa.array([None], pa.int64()),
    pa.array([[1]]),
    pa.array([{"a": 1}]),
    pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    pa.array(["x"]).dictionary_encode(),
    pa.array([1.5]).dictionary_encode(),
    pa.array([10**30], pa.decimal128(38)),
    pa.array([10**70], pa.decimal256(76)),
    pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([1])),
    pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
    pa.UnionArray.from_dense(
        pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array(["x"])]
    ),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16))),
]
_columns = st.sampled_from(
    ["price", "size", "symbol", "at", "ok", "side", "", "é", "a\x00b", "x" * 300]
)
_tables = st.lists(st.tuples(_columns, st.sampled_from(_STRANGE)), min_size=1, max_size=3).map(
    lambda pairs: arrow_stream(pa.table([a for _, a in pairs], names=[n for n, _ in pairs]))
)


def _spoilt(body: bytes, changes: list[tuple[int, int]], cut: int) -> bytes:
    changed = bytearray(body)
    for place, byte in changes:
        changed[place % len(changed)] = byte
    return bytes(changed[: len(changed) - cut])


_GOOD = arrow_stream(
    pa.table({"price": [1.5, None, 3.0], "symbol": ["x", "yy", None], "size": [1, 2, 3],
              "side": pa.array(["buy", "sell", "buy"]).dictionary_encode()})
)  # fmt: skip
_arrow_bodies = _tables | st.builds(
    _spoilt,
    st.just(_GOOD) | _tables,
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=6),
    st.sampled_from([0, 0, 0, 1, 8, 40, 200]),
)
_bodies = st.tuples(
    _json_bodies, st.sampled_from([JSON, JSON, NDJSON, "", "application/x+json"])
) | (st.tuples(_arrow_bodies, st.just(ARROW)))
_headers = st.fixed_dictionaries(
    {},
    optional={
        "content-encoding": st.sampled_from(["gzip", "br", "identity", "gzip, deflate", "x"]),
        "idempotency-key": st.sampled_from(["k", "", "a b", "x" * 256, "x" * 257]),
        "content-type": st.sampled_from(
            ["text/plain", "application/json; charset=utf-16", ";", "multipart/form-data", "a/b/c"]
        ),
        "expect": st.just("100-continue"),
    },
)


def post_events(
    broker: RunningBroker, http: httpx.Client, body: bytes, kind: str, headers: dict[str, str]
) -> httpx.Response:
    feed = "loose" if len(body) % 2 else "trades"
    answer = http.post(
        f"/feeds/{feed}/events", content=body, headers={"content-type": kind, **headers}
    )
    check_answer(answer)
    assert answer.status_code in (200, 400, 413, 415, 422), answer.text
    if answer.status_code == 200 and not answer.json()["repeated"]:
        _check_stored(http, feed, body, answer.json(), kind)
    return answer


def _check_stored(
    http: httpx.Client, feed: str, body: bytes, receipt: dict[str, Any], kind: str
) -> None:
    """What was accepted is in the log as Python reads it."""
    assert receipt["last"] - receipt["first"] + 1 == receipt["count"]
    query = {"after": receipt["first"] - 1, "through": receipt["last"], "limit": 10_000}
    stored = [
        one["event"] for one in http.get(f"/feeds/{feed}/events", params=query).json()["events"]
    ]
    if kind == ARROW:
        assert len(stored) == receipt["count"]
        return
    if kind == NDJSON:
        sent = [json.loads(line) for line in body.splitlines() if line.strip()]
    else:
        value = json.loads(body)
        sent = value if isinstance(value, list) else [value]
    assert stored == sent[:10_000]


def run_events(broker: RunningBroker, http: httpx.Client, examples: int) -> set[int]:
    seen: set[int] = set()

    @fuzz(examples)
    @given(body=_bodies, headers=st.just({}) | _headers)
    def post(body: tuple[bytes, str], headers: dict[str, str]) -> None:
        seen.add(post_events(broker, http, *body, headers).status_code)

    post()
    return seen


def test_events_of_all_kinds(broker: RunningBroker, http: httpx.Client) -> None:
    seen = run_events(broker, http, 200)
    assert seen >= {200, 400, 415, 422}


@pytest.mark.slow
def test_events_of_all_kinds_many_times(broker: RunningBroker, http: httpx.Client) -> None:
    run_events(broker, http, 5_000)


@pytest.mark.parametrize("column", _STRANGE, ids=lambda column: str(column.type)[:30])
def test_columns_of_strange_types(http: httpx.Client, column: pa.Array) -> None:
    for name in ("price", "symbol", "at"):
        body = arrow_stream(pa.table({name: column}))
        for feed in ("trades", "loose"):
            answer = http.post(
                f"/feeds/{feed}/events", content=body, headers={"content-type": ARROW}
            )
            assert check_answer(answer).status_code in (200, 400, 422)


def test_arrow_that_says_more_than_it_has(http: httpx.Client) -> None:
    """A billion rows of nothing take no bytes at all."""
    for table in (
        pa.table({"price": pa.nulls(1 << 30)}),
        pa.RecordBatch.from_struct_array(pa.array([{}] * 60_000, pa.struct([]))),
    ):
        answer = http.post(
            "/feeds/loose/events", content=arrow_stream(table), headers={"content-type": ARROW}
        )
        assert check_answer(answer).status_code == 413


# Filters

_LIMIT = 64 * 1024
"""The default for the size of a filter."""


def filters(size: int) -> dict[str, str]:
    """Texts of about a size that are trouble for parsers, and some that are trouble at any."""
    return {
        "parentheses": "(" * (size // 2 - 5) + "ok" + ")" * (size // 2 - 5),
        "unbalanced": "(" * size,
        "closing": "ok" + ")" * size,
        "not": "NOT " * (size // 4) + "ok",
        "or": "price < 1 OR " * (size // 13) + "ok",
        "and": "price < 1 AND " * (size // 14) + "ok",
        "in": f"size IN ({','.join(map(str, range(size // 6)))})",
        "not in": f"size NOT IN ({','.join(map(str, range(size // 6)))})",
        "unequal": " AND ".join(f"size <> {number}" for number in range(size // 18)),
        "comment": "price < 1 /*" + "*" * size,
        "comments": "price < 1 " + "/*" * (size // 2 - 10),
        "line comment": "price < 1 --" + "-" * (size - 20),
        "subquery": "price IN (SELECT price FROM trades)",
        "exists": "EXISTS (SELECT 1)",
        "subqueries": "(SELECT " * (size // 16),
        "statement": "ok; DROP TABLE batch",
        "semicolons": "ok;" * (size // 3),
        "unicode": "symbol = '" + "é" * (size // 2 - 10) + "'",
        "long name": "a" * (size - 10) + " = 1",
        "names": "a" + ".a" * (size // 2 - 10) + " = 1",
        "like": "symbol LIKE '" + "%_" * (size // 2 - 20) + "'",
        "digits": "size = " + "9" * (size - 10),
        "exponent": "price = 1e" + "9" * (size - 20),
        "signs": "size = " + "- " * (size // 2 - 10) + "1",
        "functions": "abs(" * (size // 8) + "1" + ")" * (size // 8) + " = 1",
        "casts": "CAST(" * (size // 16) + "1" + " AS INT)" * (size // 16) + " = 1",
        "case": "CASE WHEN ok THEN " * (size // 20),
        "sum": "size = " + "1+" * (size // 2 - 10) + "1",
        "concatenation": "symbol = " + "'a'||" * (size // 8) + "'a'",
        "brackets": "[" * size,
        "braces": "{" * size,
        "quotes": '"' * size,
        "apostrophes": "'" * size,
        "zero": "price < \x00",
        "zeros": "\x00" * 1000,
        "white": " " * size,
        "empty": "",
        "marks": "?" * size,
        "dollars": "$$" * (size // 2),
        "template": "{{ 7 * 7 }} {% for x in y %}",
        "byte order": "\ufeffok",
        "no-break": "ok\u00a0AND\u00a0ok",
        "right to left": "\u202eok",
        "infinity": "price < 1e999",
        "nan": "price = 'nan'",
        "large": "size = 99999999999999999999",
        "old": "at > '0001-01-01T00:00:00+14:00'",
        "far": "at < '9999-12-31T23:59:59.999999-14:00'",
    }  # fmt: skip


def ask(http: httpx.Client, filter: Any) -> list[httpx.Response]:
    """A filter in the three places that take one."""
    event = {"price": 1, "symbol": "a", "size": 3, "ok": True}
    return [
        http.put("/subscribers/olga/subscriptions/f", json={"feed": "trades", "filter": filter}),
        http.post("/feeds/trades/dry-run", json={"filter": filter}),
        http.post("/feeds/trades/explain", json={"event": event, "filter": filter}),
    ]


def check_filter(http: httpx.Client, text: str, seconds: float) -> None:
    assert len(text.encode()) <= _LIMIT
    began = time.monotonic()
    statuses = {check_answer(answer).status_code for answer in ask(http, text)}
    assert statuses in ({200}, {422})
    assert time.monotonic() - began < seconds
    http.delete("/subscribers/olga/subscriptions/f")


@pytest.mark.parametrize("name", filters(100))
def test_filters_that_are_trouble(http: httpx.Client, name: str) -> None:
    check_filter(http, filters(4_000)[name], SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", filters(100))
def test_filters_up_to_the_limit(http: httpx.Client, name: str) -> None:
    check_filter(http, filters(_LIMIT - 100)[name], 3 * SECONDS)


def test_filters_over_the_limit(http: httpx.Client) -> None:
    for text in ("(" * (_LIMIT + 1), "price < 1 OR " * 100_000, "é" * _LIMIT):
        assert {check_answer(answer).status_code for answer in ask(http, text)} == {413}


_WORDS = st.sampled_from(
    ["price", "size", "symbol", "ok", "at", "side", "colour", "<", "<=", "=", "<>", "(", ")", "AND",
     "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "1", "-1", "1.5", "1e999", "'x'", "'", '"',
     ",", "--", "/*", "*/", ";", "SELECT", "CASE", "NOW()", "\x00", "é", "%", "\\", "{", "::int"]
)  # fmt: skip


_filters = st.one_of(
    st.lists(_WORDS, max_size=30).map(" ".join),
    st.text(max_size=60),
    st.dictionaries(
        st.sampled_from(["price", "size", "symbol", "side", "at", "ok", "colour", ""]),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5)
            | st.floats(allow_nan=False, allow_infinity=False),
            lambda inner: st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["low", "high", "x"]), inner, max_size=3),
            max_leaves=5,
        ),
        max_size=3,
    ),
)  # fmt: skip


def run_filters(http: httpx.Client, examples: int) -> None:
    @fuzz(examples)
    @given(_filters)
    def asked(filter: Any) -> None:
        statuses = {check_answer(answer).status_code for answer in ask(http, filter)}
        assert statuses in ({200}, {422})

    asked()
    http.delete("/subscribers/olga/subscriptions/f")


def test_filters_of_all_kinds(http: httpx.Client) -> None:
    run_filters(http, 80)


@pytest.mark.slow
def test_filters_of_all_kinds_many_times(http: httpx.Client) -> None:
    run_filters(http, 4_000)


@pytest.mark.parametrize("text", ["ELSE", "else price", "VAR_MAP(price)", "ok AND VAR_MAP(1)"])
def test_words_that_parsers_stumble_over(text: str) -> None:
    try:
        compile_filter(Schema({"price": "float", "ok": "bool"}), text)
    except BoxmatchError:
        return
    except (StopIteration, IndexError) as error:
        pytest.fail(repr(error))


def test_afterwards(siege: Siege) -> None:
    siege.check()
