"""`boxmatch bench broker` at a tiny scale: that figures are there and deliveries are compared."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import signal
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from boxmatch.cli import app
from boxmatch.engine.matcher import Matcher
from boxmatch.workloads import RangeWorkload
from boxmatch_bench.answers import FailedError, MismatchError
from boxmatch_bench.broker.alternatives import measure_alternatives
from boxmatch_bench.broker.deliveries import Truth, compare, find_truth
from boxmatch_bench.broker.processes import LoadGenerator
from boxmatch_bench.broker.watch import disk, slope
from boxmatch_bench.broker.wire import HttpConnection, TextSocket, WireError, request_bytes
from boxmatch_bench.options import BrokerOptions
from boxmatch_bench.settings import BrokerSetting, Schedule

TINY = ["--subscriptions", "400", "--subscribers", "20", "--width", "0.3", "--pool", "300"]
TINY += ["--batch", "10", "--seconds", "0.4", "--latency-seconds", "0.4", "--rate", "200"]
TINY += [
    "--compare",
    "0.2",
    "--soak",
    "0.4",
    "--soak-rate",
    "500",
    "--warmup",
    "0.1",
    "--unread",
    "0.2",
]

# One run for all of them: they go to the same process.


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]], Path]:
    """What one run printed, its JSON lines, and where the broker's folder is."""
    folder = tmp_path_factory.mktemp("bench")
    path = folder / "rows.jsonl"
    arguments = ["bench", "broker", *TINY, "--json", str(path), "--scratch", str(folder / "kept")]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output, [json.loads(line) for line in path.read_text().splitlines()], folder


def test_every_row_says_where_it_comes_from(run: tuple[str, list[dict[str, Any]], Path]) -> None:
    rows = run[1]
    closed = ["1 in flight", "16 in flight", "1 batch in flight"]
    loops = [*closed[:2], "half of 16 in flight", closed[2]]
    ours = ["unread", "load", "throughput", "latency", *loops, "soak"]
    assert [row["phase"] for row in rows] == [*ours, *closed, *closed]
    assert [row.get("alternative") for row in rows] == (
        len(ours) * [None] + 3 * ["SQLite"] + 3 * ["NATS JetStream"]
    )
    assert rows[len(ours)]["alternative_version"] == sqlite3.sqlite_version
    for row in rows:
        assert {"commit", "machine", "packages", "date", "disk"} <= row.keys()
        assert (row["bench"], row["seed"]) == ("broker", 1)
        assert row["parameters"]["subscriptions"] == 400
        assert row["parameters"]["subscribers"] == 20
        assert row["options"]["batch"] == 10


def test_phases_have_their_figures(run: tuple[str, list[dict[str, Any]], Path]) -> None:
    unread, load, *phases = (row for row in run[1] if "alternative" not in row)
    assert unread["waiting"] > unread["events"] > 0
    assert unread["times"] == pytest.approx(
        unread["events_per_second_unmatched"] / unread["events_per_second"]
    )
    assert load["seconds"] > 0
    for row, batch in zip(phases, (10, 1, 1, 1, 1, 10, 10), strict=True):
        assert row["load"]["batch"] == batch
        assert row["events"] % batch == 0
        assert row["matches"] >= row["notifications"] > 0
        assert row["events_per_second"] == pytest.approx(row["events"] / row["seconds"])
        delivery = row["delivery_ms"]
        assert 0 < delivery["p50"] <= delivery["p90"] <= delivery["p99"] <= delivery["max"]
    throughput, latency, *closed, soak = phases
    assert throughput["load"]["rate"] is None
    assert latency["events"] == 80  # 200 a second for 0.4 s, whatever became of those before
    assert [row["load"]["connections"] for row in closed] == [1, 16, 128, 1]
    assert closed[2]["load"]["rate"] == closed[1]["events_per_second"] / 2
    assert soak["events"] == 200
    assert sum(third["notifications"] for third in soak["thirds"]) == soak["notifications"]


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="Linux tells in /proc")
def test_the_server_was_watched(run: tuple[str, list[dict[str, Any]], Path]) -> None:
    for row in (row for row in run[1][2:] if "alternative" not in row):
        memory = row["memory"]
        assert 0 < memory["private_before"] <= memory["resident_before"]
        assert len(memory["seconds"]) == len(memory["private"]) > 0
        assert row["server_cores"] >= 0
        assert row["stages"]["commit"]["count"] > 0


def test_the_tables_have_all_phases(run: tuple[str, list[dict[str, Any]], Path]) -> None:
    printed = run[0]
    for word in (
        "Closed loops",
        "SQLite",
        "NATS JetStream",
        "one writer at a time",
        "throughput",
        "latency",
        "soak",
        "second half",
        "fsync",
    ):
        assert word in printed


def test_a_folder_with_subscriptions_is_used_again(
    run: tuple[str, list[dict[str, Any]], Path],
) -> None:
    folder = run[2] / "kept"
    short = [*TINY, "--seconds", "0.1", "--latency-seconds", "0", "--soak", "0", "--warmup", "0"]
    short += ["--compare", "0"]
    done = CliRunner().invoke(app, ["bench", "broker", *short, "--scratch", str(folder)])
    assert done.exit_code == 0, done.output
    assert "there already" in done.output
    other = [*short, "--seed", "2"]
    done = CliRunner().invoke(app, ["bench", "broker", *other, "--scratch", str(folder)])
    assert done.exit_code == 1
    assert "holds other subscriptions" in done.output


@pytest.mark.parametrize(
    "wrong",
    [
        ["--pool", "150"],
        ["--batch", "0"],
        ["--rate", "0"],
        ["--seconds", "-1"],
        ["--compare", "-1"],
        ["--subscribers", "200000"],
        ["--width", "2"],
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: list[str]) -> None:
    assert CliRunner().invoke(app, ["bench", "broker", *wrong]).exit_code == 2


# What stores the same events beside


def alternatives(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Their rows, by alternative and phase."""
    workload = RangeWorkload(subscriptions=1, attributes=4, event_size=4, predicates=2)
    options = BrokerOptions(pool=20, batch=5, compare_seconds=0.2)
    rows = measure_alternatives(workload, options, folder, lambda *_: None)
    found = {(row["alternative"], row["phase"]): row for row in rows}
    assert not list(folder.iterdir())
    return found


def check_stored(row: dict[str, Any]) -> None:
    assert row["events"] > 0
    assert row["events"] % row["load"]["batch"] == 0
    assert row["events_per_second"] == pytest.approx(row["events"] / row["seconds"])
    assert 0 < row["answer_ms"]["p50"] <= row["answer_ms"]["max"]


def test_what_is_not_installed_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    rows = alternatives(tmp_path)
    assert rows["NATS JetStream", "1 in flight"]["skipped"] == "nats-py is not installed"
    check_stored(rows["SQLite", "1 in flight"])
    check_stored(rows["SQLite", "1 batch in flight"])
    assert rows["SQLite", "16 in flight"]["skipped"] == "one writer at a time"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    skipped = alternatives(tmp_path)["NATS JetStream", "16 in flight"]["skipped"]
    assert skipped == "nats-server is not installed"


def test_nats_stores_all_that_it_acknowledged(tmp_path: Path) -> None:
    rows = {phase: row for (name, phase), row in alternatives(tmp_path).items() if name != "SQLite"}
    if "skipped" in rows["1 in flight"]:
        pytest.skip(rows["1 in flight"]["skipped"])
    for row in rows.values():
        check_stored(row)


def test_an_event_that_was_acknowledged_and_is_not_stored_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(sqlite3.Connection):
        def executemany(self, sql: str, rows: Any) -> Any:  # type: ignore[override]
            return super().executemany(sql, rows[1:])

    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda path, **others: connect(path, factory=Forgetful, **others)
    )
    with pytest.raises(MismatchError, match=r"SQLite, 1 in flight: \d+ events were acknowledged"):
        alternatives(tmp_path)


# What is compared

SETTING = BrokerSetting(
    workload=RangeWorkload(subscriptions=50, attributes=4, event_size=4, predicates=2),
    subscribers=5,
)


@pytest.fixture(scope="module")
def truth() -> Truth:
    return find_truth(SETTING, BrokerOptions(pool=20, batch=5))


def delivered(truth: Truth) -> dict[str, Any]:
    """Six requests of five events, in the order 1 0 2 3 4 5, from a pool of 20; as it should be."""
    first = np.array([6, 1, 11, 16, 21, 26])
    rows = []
    for request, start in enumerate(first.tolist()):
        for place in range(5):
            event = (request * 5 + place) % 20
            matches = truth.subscription[truth.start[event] : truth.start[event + 1]].tolist()
            value, time = truth.value[event], 10.0 + request + 0.5
            rows += [(start + place, match, value, time) for match in matches]
    order = np.random.default_rng(1).permutation(len(rows))
    columns = [np.array(column)[order] for column in zip(*rows, strict=True)]
    received = dict(zip(("sequence", "subscription", "value", "time"), columns, strict=True))
    received |= {"rate": np.zeros(len(rows)), "matches": np.ones(len(rows), np.int64)}
    return {
        "published": {"first": first, "due": 10.0 + np.arange(6)},
        "received": received,
        "disordered": 0,
    }


def test_the_truth_is_what_scan_finds(truth: Truth) -> None:
    matcher = Matcher(SETTING.workload.schema, index="scan")
    for row, filter_ in enumerate(SETTING.workload.filters(0, 50)):
        matcher.subscribe(row, filter_)
    for number, event in enumerate(SETTING.workload.event_dicts(0, 20)):
        found = truth.subscription[truth.start[number] : truth.start[number + 1]]
        assert found.tolist() == sorted(matcher.match(event))
        assert truth.value[number] == event["a0"]


def test_what_is_right_is_found_right(truth: Truth) -> None:
    compared = compare(truth, delivered(truth), 5)
    assert len(compared.counted.true) == 30
    assert compared.counted.true.sum() == len(compared.delays) > 0
    assert not compared.counted.false.any()
    assert compared.delays == pytest.approx(0.5)


def test_what_is_wrong_is_found(truth: Truth) -> None:
    def changed(change: Any) -> dict[str, Any]:
        result = delivered(truth)
        change(result)
        return result

    def cut(result: dict[str, Any]) -> None:
        result["received"] = {name: one[1:] for name, one in result["received"].items()}

    def twice(result: dict[str, Any]) -> None:
        for name, one in result["received"].items():
            result["received"][name] = np.concatenate([one, one[:1]])

    def stranger(result: dict[str, Any]) -> None:
        result["received"]["subscription"][0] = 49_999

    def added(result: dict[str, Any]) -> None:
        twice(result)
        result["received"]["subscription"][-1] = 49_999

    def other_event(result: dict[str, Any]) -> None:
        result["received"]["value"][0] += 1

    def overlapping(result: dict[str, Any]) -> None:
        result["published"]["first"][0] = 2

    for change, message in (
        (cut, "1 are missing"),
        (twice, "1 came twice"),
        (stranger, "1 are missing"),
        (added, "1 matches are false"),
        (other_event, "wrong events"),
        (overlapping, "same sequence numbers"),
        (lambda result: result.update(disordered=3), "out of order"),
    ):
        with pytest.raises(MismatchError, match=message):
            compare(truth, changed(change), 5)


# What is spoken


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        pass


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_frames_are_read_however_they_are_cut(step: int) -> None:
    texts, errors = [], []
    socket, transport = TextSocket("/x", texts.append, errors.append), Transport()
    socket.connection_made(transport)
    assert transport.written.startswith(b"GET /x HTTP/1.1\r\n")
    transport.written = b""
    wanted = [b"a", b"b" * 125, b"c" * 126, b"d" * 70_000, b""]
    stream = b"HTTP/1.1 101 Switching Protocols\r\nx: y\r\n\r\n"
    for text in wanted:
        size = len(text)
        if size < 126:
            head = bytes([0x81, size])
        elif size < 65_536:
            head = bytes([0x81, 126]) + size.to_bytes(2, "big")
        else:
            head = bytes([0x81, 127]) + size.to_bytes(8, "big")
        stream += b"\x89\x02hi" + head + text
    for start in range(0, len(stream), step):
        socket.data_received(stream[start : start + step])
    assert texts == wanted
    assert transport.written == 5 * b"\x8a\x82\0\0\0\0hi"
    assert not errors
    socket.data_received(b"\x88\x04\x03\xf3ok")
    assert "1011" in str(errors[0])


def test_a_handshake_that_is_refused_is_told() -> None:
    errors: list[Exception] = []
    socket = TextSocket("/x", lambda _: None, errors.append)
    socket.connection_made(Transport())
    socket.data_received(b"HTTP/1.1 403 Forbidden\r\n\r\n")
    socket.connection_lost(None)
    assert len(errors) == 1
    assert "403" in str(errors[0])


def test_answers_are_read_however_they_are_cut() -> None:
    answers: list[tuple[int, bytes]] = []
    connection = HttpConnection()
    connection.connection_made(Transport())
    connection.answered = lambda _, status, body: answers.append((status, body))
    stream = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx: y\r\n\r\nhello"
    for place in range(len(stream)):
        connection.data_received(stream[place : place + 1])
    connection.data_received(b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n")
    assert answers == [(200, b"hello"), (204, b"")]
    assert request_bytes("PUT", "/p", b"{}").endswith(b"content-length: 2\r\n\r\n{}")
    with pytest.raises(WireError, match="closed a connection"):
        connection.connection_lost(None)


def test_what_goes_wrong_in_the_generator_is_told() -> None:
    options = BrokerOptions(pool=20, batch=5)
    with LoadGenerator(1, SETTING, options) as generator:  # nobody listens on port 1
        with pytest.raises(FailedError, match="load: "):
            generator.call("load")
        with pytest.raises(FailedError, match="publish: "):
            generator.call("publish", Schedule.steady(seconds=0.1, batch=5, connections=1))


def test_an_interrupt_is_not_for_the_generator() -> None:
    before = signal.getsignal(signal.SIGINT)
    with LoadGenerator(1, SETTING, BrokerOptions(pool=20, batch=5)) as generator:
        assert signal.getsignal(signal.SIGINT) is before
        os.kill(generator.pid, signal.SIGINT)  # as it starts, and once it is there
        assert generator.call("close") is None
        os.kill(generator.pid, signal.SIGINT)
        assert generator.call("close") is None


def test_slopes_are_per_minute(tmp_path: Path) -> None:
    assert slope([0.0, 1.0, 2.0, 3.0], [5, 6, 7, 8]) == pytest.approx(60.0)
    assert slope([0.0, 1.0], [5, 6]) is None
    assert disk(tmp_path)["fsync_ms"] > 0
    assert not list(tmp_path.iterdir())
