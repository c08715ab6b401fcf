"""`boxmatch route` as its users run it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import nats
import pytest
from jetstream import PATIENCE

from boxmatch.errors import MissingExtraError
from boxmatch.nats import connection, local
from boxmatch.nats.operations import publish
from command_line import Command

FILE = """\
replicas = 1
route = "filed"
ack_seconds = 9.0

[feeds.ticks]
schema = { symbol = "string", price = "float" }

[feeds.more]
subject = "more.>"
unknown = "carry"
format = "ndjson"
"""


@contextmanager
def worker(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`boxmatch route run`, ready; with the address of its metrics."""
    process = subprocess.Popen(
        [sys.executable, "-m", "boxmatch", "route", "run", "--metrics-port", "0", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        while line and not line.startswith("Metrics: "):
            line = process.stdout.readline()
        assert line, process.communicate()[1]
        address = line.split()[1].removesuffix("/metrics")
        deadline = time.monotonic() + PATIENCE
        while get(f"{address}/readyz")[0] != 200:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process, address
    finally:
        process.kill()
        process.communicate()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_from_nothing_to_a_notification(tmp_path: Path, run_boxmatch: Command) -> None:
    options = ("--local", "--data", "here", "--port", "-1")
    with worker(tmp_path, *options) as (process, address):
        ports = next((tmp_path / "here").glob("*.ports"))
        url = json.loads(ports.read_text())["nats"][0]
        done = run_boxmatch("route", "subscribe", "ann", "one", "price < 3", "--server", url)
        assert (done.code, done.out) == (0, "Subscribed ann/one at revision 3: price < 3\n")
        done = run_boxmatch("route", "subscribe", "ann", "two", "price <", "--server", url)
        assert (done.code, "incomplete near <" in done.err) == (2, True)

        async def talk() -> bytes:
            connection = await nats.connect(url)
            await publish(connection, [{"price": 2.0}])
            js = connection.jetstream()
            pull = await js.pull_subscribe("boxmatch.out.ann", "ann", "boxmatch-out")
            (message,) = await pull.fetch(1, timeout=PATIENCE)
            await connection.close()
            return message.data

        assert json.loads(asyncio.run(talk()))["subscriptions"] == ["one"]
        code, text = get(f"{address}/metrics")
        assert code == 200
        assert 'boxmatch_route_events_total{feed="events"} 1.0' in text
        assert get(f"{address}/healthz") == (200, '{"status":"ok"}\n')
        assert json.loads(get(f"{address}/readyz")[1])["subscriptions"] == 1
        assert get(f"{address}/other")[0] == 404

        done = run_boxmatch("route", "status", "--server", url)
        assert done.code == 0
        assert "1 keys of subscriptions at revision" in done.out
        assert "1 messages of events, 1 notifications, 0 dead letters" in done.out
        done = run_boxmatch("route", "unsubscribe", "ann", "one", "--server", url, "--json")
        assert json.loads(done.out)["subscriber"] == "ann"
        found = json.loads(run_boxmatch("route", "status", "--server", url, "--json").out)
        assert found["settings"]["feeds"]["events"]["schema"] is None

        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
        assert [json.loads(line)["event"] for line in said.splitlines()] == ["ready"]


def test_options_come_from_the_line_or_variables_or_a_file(
    url: str, tmp_path: Path, run_boxmatch: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "route.toml"
    path.write_text(FILE)
    monkeypatch.setenv("NATS_URL", url)
    done = run_boxmatch("route", "init", "--settings", str(path), "--json")
    assert done.code == 0, done.err
    made = json.loads(done.out)
    assert made["route"] == "filed"
    assert made["ack_seconds"] == 9.0
    assert made["feeds"]["more"] == {
        "subject": "more.>",
        "schema": None,
        "unknown": "carry",
        "format": "ndjson",
    }
    monkeypatch.setenv("BOXMATCH_ROUTE_SETTINGS", str(path))
    done = run_boxmatch("route", "status")
    assert done.out.startswith("Route filed: feeds ticks, more\n")
    monkeypatch.setenv("BOXMATCH_ROUTE", "variable")
    assert "there is no route 'variable'" in run_boxmatch("route", "status").err
    done = run_boxmatch("route", "status", "--route", "line")
    assert (done.code, "there is no route 'line'" in done.err) == (2, True)
    monkeypatch.delenv("BOXMATCH_ROUTE")
    done = run_boxmatch("route", "subscribe", "ann", "one", "price < 3")
    assert "several feeds, so name one of them: ticks, more" in done.err
    done = run_boxmatch("route", "subscribe", "ann", "one", "price < 3", "--feed", "ticks")
    assert done.code == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("replica = 3", "there is no setting 'replica'; did you mean 'replicas'"),
        ("= 1", "is not TOML"),
        ('shards = "many"', "invalid value for '--shards'"),
        ("[feeds.a]\nshema = {}", "shema"),
        ("[feeds.a]\nschema = { x = 'flaot' }", "unknown type 'flaot'"),
        ("", "a route needs a feed"),
    ],
)
def test_files_that_make_no_sense(
    url: str, tmp_path: Path, run_boxmatch: Command, text: str, reason: str
) -> None:
    path = tmp_path / "route.toml"
    path.write_text(text)
    done = run_boxmatch("route", "init", "--settings", str(path), "--server", url)
    assert (done.code, reason in done.err) == (2, True), done.err


def test_a_server_that_is_not_there(
    run_boxmatch: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "Connection", partial(connection.Connection, seconds=0.5))
    done = run_boxmatch("route", "status", "--server", "nats://127.0.0.1:1")
    assert (done.code, done.err.startswith("boxmatch: cannot connect to NATS at")) == (2, True)
    options = ("--server", "nats://127.0.0.1:1", "--creds", str(tmp_path / "none"))
    done = run_boxmatch("route", "status", *options)
    assert (done.code, f"there is no file {tmp_path / 'none'}" in done.err) == (2, True)


def test_a_local_server_that_cannot_start(
    tmp_path: Path, run_boxmatch: Command, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = url.rpartition(":")[2]
    done = run_boxmatch("route", "run", "--local", "--data", str(tmp_path), "--port", port)
    assert (done.code, "the NATS server did not start" in done.err) == (2, True)
    monkeypatch.setattr(local.sys, "executable", str(tmp_path / "python"))  # type: ignore[attr-defined]
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtraError, match=r"boxmatch\[nats-server\]"):
        local.find_server()
