"""That what goes wrong is told in one paragraph, with the exit code 2, and without a traceback."""

from __future__ import annotations

import errno
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from boxmatch.engine.matcher import Matcher
from boxmatch.errors import ClientError
from command_line import Command, Finished

Fail = Callable[[BaseException], Finished]


@pytest.fixture
def fail(run_boxmatch: Command, monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Runs a command that meets this error, with these options."""

    def call(error: BaseException, *options: str) -> Finished:
        def load(path: object) -> Matcher:
            raise error

        monkeypatch.setattr(Matcher, "load", load)
        return run_boxmatch("info", "saved", *options)

    return call


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "a.csv"), "a.csv: the disk is full"),
        (PermissionError(errno.EACCES, "Permission denied", "a"), "a: Permission denied"),
        (OSError(errno.EXDEV, "Cross-device link", "a", None, "b"), "a and b: Cross-device link"),
        (OSError("odd"), "odd"),
        (MemoryError(), "not enough memory"),
        (sqlite3.OperationalError("database is locked"), "cannot use the database of the "
         "broker: database is locked"),
        (ModuleNotFoundError("No module named 'x'", name="x"), "Boxmatch needs x, which is "
         "not installed"),
        (pa.ArrowInvalid("column 3 is odd\nand more"), "column 3 is odd"),
        (ClientError("a key is needed", status=401), "a key is needed\nGive a key with --key or "
         "BOXMATCH_KEY."),
    ],
)  # fmt: skip
def test_expected_errors(fail: Fail, error: BaseException, said: str) -> None:
    assert fail(error) == (2, "", f"boxmatch: {said}\n")


def test_a_fault_of_ours(fail: Fail) -> None:
    done = fail(KeyError("slot"))
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("boxmatch: internal error: KeyError: 'slot'\n")
    assert "--debug" in done.err
    assert "Traceback" not in done.err


class TestDebug:
    def test_anywhere(self, fail: Any, run_boxmatch: Command) -> None:
        assert "Traceback" in fail(RuntimeError("x"), "--debug").err
        for arguments in (("--debug", "info", "saved"), ("info", "--debug", "saved")):
            done = run_boxmatch(*arguments)
            assert done.code == 2
            assert "Traceback" in done.err
            assert done.err.splitlines()[-2].startswith("boxmatch: internal error")

    def test_by_the_environment(self, fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BOXMATCH_DEBUG", "1")
        assert "Traceback" in fail(RuntimeError("x")).err
        monkeypatch.setenv("BOXMATCH_DEBUG", "0")
        assert "Traceback" not in fail(RuntimeError("x")).err

    def test_not_after_two_dashes(self, run_boxmatch: Command) -> None:
        done = run_boxmatch("check", "--attribute", "x=int", "--", "--debug")
        assert done.code == 2  # SQL takes it for a comment
        assert "Traceback" not in done.err

    def test_not_for_words_that_were_mistyped(self, run_boxmatch: Command) -> None:
        assert "Traceback" not in run_boxmatch("nope", "--debug").err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("matc",), "no such command 'matc'."),
        (("admin", "key"), "\nTry: boxmatch admin --help\n"),
        (("--nope",), "no such option: --nope"),
        (("match",), "missing option '--subscriptions'"),
        (("demo", "extra"), "extra"),
        (("demo", "--ticks", "x"), "'--ticks': "),
        (("serve", "--data", "d", "--port", "70000"), "'--port': "),
        (("serve", "--data", "d", "--sync", "x"), "'--sync': 'x' is not one of 'full', 'normal'"),
        (("check", "x > 1", "--schema", "nowhere.json"), "nowhere.json"),
        (("bench", "--json", "nowhere/out.jsonl"), "nowhere/out.jsonl: No such file"),
        (("bench", "spark", "--estimate", "--json", "bad.jsonl"), "does not hold JSON lines"),
        (("info", "bad.jsonl"), "bad.jsonl"),
        (("pipeline", "run", "--config", "bad.jsonl"), "not TOML"),
        (("pipeline", "sample", "bad.jsonl"), "bad.jsonl"),
        (("backup", "new", "--data", "nowhere"), "nowhere holds no broker"),
        (("admin", "check", "--data", "nowhere"), "nowhere holds no broker"),
        (("admin", "keys", "list", "--data", "nowhere"), "there are no keys in nowhere"),
        (("check", "x > 1"), "give the schema with --schema FILE or --attribute NAME=TYPE"),
        (("feeds", "list", "--url", "nonsense"), "not the address of a broker"),
        (("bench", "reproduce", "rein", "--out", "bad.jsonl"), "bad.jsonl"),
    ],
)  # fmt: skip
def test_mistakes(
    run_boxmatch: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.jsonl").write_text("[1,")
    done = run_boxmatch(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("boxmatch: ")
    assert "\n\n" not in done.err
    assert "Traceback" not in done.err
    assert "should not happen" not in done.err
    assert said in done.err


def test_no_broker_is_told_at_once(run_boxmatch: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for arguments in (("listen", "joe"), ("feeds", "list"), ("publish", "ticks", "x.csv")):
        done = run_boxmatch(*arguments, "--url", f"http://127.0.0.1:{port}")
        assert done.code == 2
        assert f"there is no broker at http://127.0.0.1:{port} (Connection refused)" in done.err


class TestInterrupted:
    @pytest.fixture(autouse=True)
    def _as_before(self) -> Iterator[None]:
        handler, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, handler)
        sys.unraisablehook = hook

    def test_quietly(self, fail: Fail) -> None:
        assert fail(KeyboardInterrupt()) == (130, "", "")

    def test_also_if_it_was_swallowed(
        self, run_boxmatch: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def load(path: object) -> Matcher:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                raise RuntimeError("no compiled object yet") from None
            raise AssertionError

        monkeypatch.setattr(Matcher, "load", load)
        assert run_boxmatch("info", "saved") == (130, "", "")

    def test_nothing_is_left_behind(self, run_boxmatch: Command) -> None:
        hook = sys.unraisablehook
        run_boxmatch("--version")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert sys.unraisablehook is hook


@pytest.mark.parametrize("arguments", [["--help"], ["bench", "reproduce", "--list", "--json"]])
def test_a_reader_that_leaves(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "boxmatch", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_standard_output_that_is_full() -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "boxmatch", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr == b"boxmatch: the disk is full\n"
