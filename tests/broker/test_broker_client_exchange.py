"""The client without sockets: what is asked, when it is asked again, how events are cut."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from email.utils import format_datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from boxmatch.client.batches import BatchPart, encode, parts
from boxmatch.client.exchange import (
    Request,
    Response,
    RetryPolicy,
    Sleep,
    Unanswered,
    base_url,
    path,
    retrying,
)
from boxmatch.client.operations import Operations
from boxmatch.errors import ClientError, EventError
from boxmatch.wire.http import retry_after


class Clock:
    """Time goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def drive(operation: Any, *answers: Any, seconds: float = 60.0) -> tuple[Any, list[Any]]:
    """The result of an operation (or its error) for these answers, and the steps that it took."""
    clock = Clock()
    retries = RetryPolicy(seconds=seconds, clock=clock, chance=lambda: 1.0)
    exchange = retrying(operation, retries)
    waiting = list(answers)
    steps = []
    try:
        step = next(exchange)
        while True:
            steps.append(step)
            if isinstance(step, Sleep):
                clock.now += step.seconds
                step = exchange.send(None)
            else:
                answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
                step = exchange.send(answer(step) if callable(answer) else answer)
    except StopIteration as done:
        return done.value, steps
    except ClientError as error:
        return error, steps


def said(status: int, document: Any = None, **headers: str) -> Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, names, json.dumps(document or {}).encode())


RECEIPT = said(200, {"first": 1, "last": 1, "count": 1, "durable": True, "repeated": False})


def sleeps(steps: list[Any]) -> list[float]:
    return [step.seconds for step in steps if isinstance(step, Sleep)]


def test_a_request_is_repeated_under_the_same_key_with_growing_pauses() -> None:
    lost = Unanswered("gone", sent=True)
    result, steps = drive(
        Operations.publish("ticks", {"a": 1}), lost, said(503), lost, said(429), RECEIPT
    )
    assert result.first == 1
    requests = [step for step in steps if isinstance(step, Request)]
    assert len(requests) == 5
    assert len({one.key for one in requests}) == 1
    assert requests[0].key
    assert sleeps(steps) == [0.1, 0.2, 0.4, 0.8]


def test_pauses_have_an_upper_end_and_patience_too() -> None:
    result, steps = drive(Operations.feeds(), Unanswered("refused", sent=False), seconds=30)
    assert isinstance(result, ClientError)
    assert result.status is None
    assert "refused" in str(result)
    assert max(sleeps(steps)) == 5.0
    assert 20 < sum(sleeps(steps)) <= 30


def test_retry_after_is_waited_for() -> None:
    result, steps = drive(Operations.feeds(), said(429, retry_after="7"), said(200, {"feeds": []}))
    assert result == []
    assert sleeps(steps) == [7.0]


def test_a_retry_after_beyond_all_patience_ends_at_once() -> None:
    result, steps = drive(Operations.feeds(), said(503, {"detail": "full"}, retry_after="3600"))
    assert (result.status, sleeps(steps)) == (503, [])
    assert "full" in str(result)


@pytest.mark.parametrize(
    "text",
    [
        *("", "soon", "-1", "1e9", "inf", "nan", "٣", "1, 2", "9" * 400),
        *("Mon, 99 Foo 0000", "Thu, 01 Jan 1970", "Fri, 01 Jan 99999999999 00:00:00 GMT"),
    ],
)
def test_a_retry_after_that_makes_no_sense_is_ignored(text: str) -> None:
    assert retry_after({"retry-after": text}) is None


def test_a_retry_after_may_be_a_date() -> None:
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=30)
    seconds = retry_after({"retry-after": format_datetime(soon, usegmt=True)})
    assert seconds == pytest.approx(30, abs=3)
    assert retry_after({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}) == 0.0
    assert retry_after({"retry-after": "Thu, 01 Jan 1970 00:00:07 -0000"}, 0.0) == 7.0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 500])
def test_a_refusal_is_final(status: int) -> None:
    result, steps = drive(Operations.feeds(), said(status, {"detail": "No.", "position": 3}))
    assert len(steps) == 1
    assert result.status == status
    assert result.problem["position"] == 3
    assert str(result) == f"No. (HTTP {status})"


def test_an_answer_that_is_not_json_says_so() -> None:
    result, _ = drive(Operations.feeds(), Response(200, {}, b"<html>"))
    assert "hardly a Boxmatch broker" in str(result)
    result, _ = drive(Operations.feeds(), Response(502, {}, b"Bad gateway"), seconds=0)
    assert (result.status, result.problem) == (502, {"detail": "Bad gateway"})


@pytest.mark.parametrize("document", [[], {}, {"feeds": 3}, {"feeds": [3]}, {"feeds": [{}]}])
def test_an_answer_of_another_shape_is_an_error(document: Any) -> None:
    result, _ = drive(Operations.feeds(), Response(200, {}, json.dumps(document).encode()))
    assert isinstance(result, ClientError)


def test_what_must_not_happen_twice_is_not_repeated_if_it_may_have_arrived() -> None:
    made = Operations.create_feed("ticks", {"price": "float"})
    result, steps = drive(made, Unanswered("reset", sent=True))
    assert isinstance(result, ClientError)
    assert len(steps) == 1
    made = Operations.create_feed("ticks", {"price": "float"})
    answer = said(201, {"name": "ticks", "schema": {"price": "float"}})
    result, steps = drive(made, Unanswered("refused", sent=False), answer)
    assert result.schema["price"].type == "float"


def test_deleted_by_an_attempt_that_was_not_answered_is_deleted() -> None:
    result, _ = drive(Operations.unsubscribe("o", "s"), Unanswered("reset", sent=True), said(404))
    assert result is None
    result, _ = drive(
        Operations.unsubscribe("o", "s"), Unanswered("refused", sent=False), said(404)
    )
    assert result.status == 404


def test_a_wrong_certificate_is_not_tried_again() -> None:
    result, steps = drive(Operations.feeds(), Unanswered("certificate", sent=False, hopeless=True))
    assert isinstance(result, ClientError)
    assert len(steps) == 1


def test_many_events_go_out_in_several_requests() -> None:
    answers = [
        said(200, {"first": f, "last": f + c - 1, "count": c, "durable": True})
        for f, c in ((1, 4), (9, 4), (20, 2))
    ]
    receipts: list[Any] = []
    events = ({"n": n} for n in range(10))
    result, steps = drive(
        Operations.publish("ticks", events, key="mine", batch=4, on_receipt=receipts.append),
        *answers,
    )
    assert [step.key for step in steps] == ["mine", "mine-1", "mine-2"]
    assert b"\n".join(step.body for step in steps).count(b"\n") == 9
    assert (result.first, result.last, result.count) == (1, 21, 10)
    assert [one.count for one in receipts] == [4, 4, 2]


def test_a_part_that_is_too_large_is_halved() -> None:
    sizes = []

    def broker(step: Request) -> Response:
        count = step.body.count(b"\n") + 1 if step.body else 0
        if count > 3:
            return said(413, {"detail": "too many"})
        sizes.append((count, step.key))
        return said(200, {"first": 1, "last": 1, "count": count, "durable": True})

    result, _ = drive(Operations.publish("t", [{"n": n} for n in range(10)], key="k"), broker)
    assert result.count == 10
    assert sizes == [(2, "kaa"), (3, "kab"), (2, "kba"), (3, "kbb")]


def test_one_event_that_is_too_large_is_an_error() -> None:
    result, _ = drive(Operations.publish("t", {"a": "x"}), said(413, {"detail": "too large"}))
    assert result.status == 413


def test_an_error_in_a_later_part_tells_what_is_published() -> None:
    ok = said(200, {"first": 1, "last": 4, "count": 4, "durable": True})
    bad = said(422, {"detail": "wrong", "index": 2})
    result, _ = drive(Operations.publish("t", [{}] * 10, batch=4), ok, bad)
    assert result.problem["index"] == 6
    assert result.problem["published"] == 4
    assert "4 events" in str(result)


def test_no_events_are_no_request() -> None:
    result, steps = drive(Operations.publish("t", []), RECEIPT)
    assert (result.count, result.first, steps) == (0, None, [])


def test_a_state_feed_may_take_its_time() -> None:
    """The first one has the broker compile."""
    requests = [
        next(Operations.create_feed("f", {"x": "int"})),
        next(Operations.create_feed("f", spaces={"s": {"x": "int"}})),
    ]
    assert requests[0].wait == 0
    assert requests[1].wait >= 60


def test_received_events_have_no_number_yet() -> None:
    answer = said(202, {"first": 0, "last": 0, "count": 1, "durable": False, "repeated": False})
    result, steps = drive(Operations.publish("t", {"a": 1}, wait="received"), answer)
    assert steps[0].query == {"wait": "received"}
    assert (result.first, result.durable) == (None, False)


def test_lists_are_cut_by_bytes_too() -> None:
    events = [{"text": "x" * 1000}] * 10
    found = list(parts(events, nbytes=3500))
    assert [part.count for part in found] == [3, 3, 3, 1]
    assert max(len(part.body()) for part in found) < 3500
    assert [part.count for part in parts(events, nbytes=1)] == [1] * 10


@pytest.mark.parametrize("events", ["text", b"text", 3, [3], [{"a": object()}], [{3: 4}]])
def test_what_is_no_event_is_refused(events: Any) -> None:
    with pytest.raises(EventError):
        list(parts(events))


def test_values_of_all_kinds_become_json() -> None:
    event = {
        "when": dt.datetime(2024, 1, 2, 3, 4, 5, 600),
        "zoned": dt.datetime(2024, 1, 2, tzinfo=dt.UTC),
        "int": np.int32(3),
        "float": np.float64(0.5),
        "bool": np.bool_(True),
        "text": np.str_("a"),
        "decimal": Decimal("1.5"),
        "stamp": pd.Timestamp("2024-01-02"),
        "na": pd.NA,
        "none": None,
    }
    assert json.loads(encode(event, 0)) == {
        "when": "2024-01-02T03:04:05.000600Z",
        "zoned": "2024-01-02T00:00:00Z",
        "int": 3,
        "float": 0.5,
        "bool": True,
        "text": "a",
        "decimal": 1.5,
        "stamp": "2024-01-02T00:00:00Z",
        "na": None,
        "none": None,
    }


@pytest.mark.parametrize("value", [float("inf"), -np.inf, np.float64("inf"), [1.0, float("inf")]])
def test_infinity_is_refused_rather_than_lost(value: Any) -> None:
    with pytest.raises(EventError, match=r"event 7: .*'a' is infinite"):
        encode({"b": None, "a": value}, 7)


def test_what_json_would_round_is_refused_or_text() -> None:
    moment = pd.Timestamp(1)
    with pytest.raises(EventError, match=rf"event 7: {moment} .*fraction of a microsecond"):
        encode({"a": moment}, 7)
    for number in ("0.3000000000000000001", str(2**53 + 1)):
        assert encode({"a": Decimal(number)}, 7) == f'{{"a":"{number}"}}'.encode()


@pytest.mark.parametrize(
    "value", [float("nan"), np.float32("nan"), Decimal("nan"), pd.NaT, [1.0, float("nan")]]
)
def test_nan_is_refused_rather_than_lost(value: Any) -> None:
    with pytest.raises(EventError, match=r"event 7: 'a' is (nan|NaN|NaT), which has no place"):
        encode({"b": None, "a": value}, 7)


TABLE = pa.table({"n": list(range(10)), "x": [0.5, float("nan")] * 5})


@pytest.mark.parametrize(
    "source",
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_pandas(),
        pl.from_arrow(TABLE),
        pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches()),
    ],
    ids=lambda source: f"{type(source).__module__.partition('.')[0]}.{type(source).__name__}",
)
def test_tables_go_out_as_arrow(source: Any) -> None:
    found = list(parts(source, batch=4))
    assert [part.count for part in found] == [4, 4, 2]
    assert {part.content_type for part in found} == {"application/vnd.apache.arrow.stream"}
    tables = [pa.ipc.open_stream(part.body()).read_all() for part in found]
    rows = pa.concat_tables(tables).to_pylist()
    assert rows == [{"n": n, "x": None if n % 2 else 0.5} for n in range(10)]
    first, second = found[0].halves()
    assert (first.count, second.count) == (2, 2)


def test_a_slice_of_a_table_is_sent_alone() -> None:
    table = pa.table({"text": ["x" * 1000] * 1000})
    found = list(parts(table, nbytes=100_000))
    assert len(found) > 5
    assert max(len(part.body()) for part in found) < 110_000
    assert sum(part.count for part in found) == 1000


@pytest.mark.parametrize("source", [pl.LazyFrame({"a": [1]}), pd.Series([1]), pl.Series([1])])
def test_what_is_nearly_a_table_is_refused(source: Any) -> None:
    with pytest.raises(EventError):
        list(parts(source))


def test_empty_tables_are_no_parts() -> None:
    assert list(parts(TABLE.slice(0, 0))) == []


def test_halves_of_lines() -> None:
    first, second = BatchPart([b"1", b"2", b"3"]).halves()
    assert (first.body(), second.body()) == (b"1", b"2\n3")


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "é", "a b", "x" * 129, "a\n"])
def test_names_that_are_none_do_not_reach_the_path(name: str) -> None:
    with pytest.raises(ClientError, match="cannot be a name"):
        path("/feeds/{}/events", name)


def test_paths() -> None:
    assert (
        path("/subscribers/{}/subscriptions/{}", "a@b.c:d", "x-1")
        == "/subscribers/a@b.c:d/subscriptions/x-1"
    )


@pytest.mark.parametrize(
    "url", ["", "localhost:8080", "ftp://x", "http://", "http://x:y", "http://x?a"]
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ClientError, match="not the address"):
        base_url(url)
