"""That help reads well: grouped, short, with examples that work; and that the page of the
documentation and the completion of shells say the same.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer

import boxmatch as bm
from boxmatch.cli import app
from boxmatch.cli.help import Documented, examples_of, parameter_rows, summary_of, walk
from cli_reference import PAGE, context_of, page
from command_line import Command

ALL = list(walk(typer.main.get_command(app)))
LEAVES = [one for one in ALL if not one.is_group]

SUMMARY = 66
"""Letters beside the longest name of a command, so that it stays one line of 80."""


def named(one: object) -> str:
    return " ".join(one.words[1:]) if isinstance(one, Documented) else ""


def test_the_first_thing_to_type_shows_everything(run_boxmatch: Command) -> None:
    bare, asked = run_boxmatch(), run_boxmatch("--help")
    assert bare == asked
    assert bare.code == 0
    for one in ALL:
        if len(one.words) == 2:
            assert f"  {one.words[1]} " in bare.out
            assert summary_of(one.command) in bare.out
    headings = [line for line in bare.out.splitlines() if line.endswith(":")]
    assert headings == [
        "Events and subscriptions in files:",
        "Boxmatch as a service:",
        "On NATS:",
        "On Spark:",
        "Benchmarks:",
        "Options:",
        "Examples:",
    ]
    assert "boxmatch demo" in bare.out.split("Events and")[0]


@pytest.mark.parametrize("one", ALL, ids=named)
def test_help_is_whole(one: Documented, run_boxmatch: Command) -> None:
    assert 0 < len(summary_of(one.command)) <= SUMMARY
    lines = examples_of(one.command)
    assert lines
    assert all(len(line) <= 78 for line in lines), "too long for a terminal of 80"
    context = context_of(one)
    for kind in ("argument", "option"):
        for name, text in parameter_rows(one.command, context, kind):
            assert text.strip(), f"{name} has no help"
    done = run_boxmatch(*one.words[1:], "--help")
    assert done.code == 0
    assert done.out.split("Examples:\n")[1] == "".join(f"  {line}\n" for line in lines)


@pytest.mark.parametrize("one", LEAVES, ids=named)
def test_what_prints_data_prints_json(one: Documented) -> None:
    options = {
        name.split()[0] for name, _ in parameter_rows(one.command, context_of(one), "option")
    }
    assert ("--json" in options) == (one.words[1:] not in (("serve",), ("route", "run")))


@pytest.mark.parametrize("columns", ["50", "80", "200"])
def test_help_fits_the_terminal(
    run_boxmatch: Command, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = run_boxmatch("match", "--help").out.split("Examples:")[0]
    assert max(map(len, text.splitlines())) <= min(int(columns), 80)


def test_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    match = next(one for one in LEAVES if one.words[1] == "match")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1mUsage:" in match.command.get_help(context_of(match))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in match.command.get_help(context_of(match))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that examples name."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "schema.json").write_text(bm.Schema({"price": "float"}).to_json())
    (folder / "route.toml").write_text("[feeds.ticks]\n")
    for name in ("data", "saved", "alerts.bm"):
        (folder / name).mkdir()
    return folder


@pytest.mark.parametrize("one", ALL, ids=named)
def test_examples_are_understood(
    one: Documented, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(places)
    called: list[tuple[str, ...]] = []
    root: Any = typer.main.get_command(app)
    for below in walk(root):
        if not below.is_group:
            below.command.callback = lambda words=below.words, **_: called.append(words)
    for line in examples_of(one.command):
        before = len(called)
        for part in shell_parts(line):
            if part[0] == "boxmatch":
                try:
                    root(part[1:], standalone_mode=False, prog_name="boxmatch")
                except Exception as error:
                    pytest.fail(f"{line}: {error}")
        assert len(called) > before or "--help" in line, f"{line} does not call boxmatch"
    assert any(words[: len(one.words)] == one.words for words in called)


def shell_parts(line: str) -> Iterator[list[str]]:
    """The commands of a line, between pipes."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|")
    words.whitespace_split = True
    words.commenters = "#"
    part: list[str] = []
    for word in words:
        if word == "|":
            yield part
            part = []
        else:
            part.append(word)
    yield part


def test_the_page_of_the_documentation_is_in_step() -> None:
    message = "write it anew: PYTHONPATH=tests .venv/bin/python tests/cli_reference.py"
    assert PAGE.read_text(encoding="utf-8") == page(), message


class TestCompletion:
    def complete(
        self, run: Command, monkeypatch: pytest.MonkeyPatch, shell: str, *words: str
    ) -> str:
        line = " ".join(["boxmatch", *words])
        monkeypatch.setenv("_BOXMATCH_COMPLETE", f"complete_{shell}")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        done = run()
        assert done.code == 0
        assert done.err == ""
        return done.out

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_scripts_and_commands(
        self, run_boxmatch: Command, monkeypatch: pytest.MonkeyPatch, shell: str
    ) -> None:
        assert "match" in self.complete(run_boxmatch, monkeypatch, shell, "ma")
        monkeypatch.setenv("_BOXMATCH_COMPLETE", f"source_{shell}")
        script = run_boxmatch()
        assert script.code == 0
        assert f"complete_{shell}" in script.out

    @pytest.mark.parametrize(
        ("words", "found"),
        [
            (("bench", "cp"), ["cpp"]),
            (("bench", "sp"), ["spark"]),
            (("bench", "run", "equ"), ["equality"]),
            (("bench", "--index", "hem"), ["hem"]),
            (("bench", "reproduce", "rein-w"), ["rein-width"]),
            (("serve", "--log-level", "de"), ["debug"]),
            (("check", "x", "--attribute", "at=t"), ["at=timestamp"]),
            (("check", "x", "--attribute", "at"), []),
        ],
    )
    def test_names(
        self,
        run_boxmatch: Command,
        monkeypatch: pytest.MonkeyPatch,
        words: tuple[str, ...],
        found: list[str],
    ) -> None:
        assert self.complete(run_boxmatch, monkeypatch, "bash", *words).split() == found

    def test_feeds_of_the_broker(
        self, run_boxmatch: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps({"feeds": [{"name": "ticks"}, {"name": "orders"}]}).encode()
                allowed = self.headers["Authorization"] == "Bearer secret"
                self.send_response(200 if allowed and self.path == "/feeds" else 401)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        with HTTPServer(("127.0.0.1", 0), Answer) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            monkeypatch.setenv("BOXMATCH_URL", f"http://127.0.0.1:{server.server_port}")
            monkeypatch.setenv("BOXMATCH_KEY", "secret")
            for words in (("publish", "t"), ("subscribe", "alice", "cheap", "t")):
                assert self.complete(run_boxmatch, monkeypatch, "bash", *words) == "ticks\n"
            monkeypatch.setenv("BOXMATCH_KEY", "wrong")
            assert self.complete(run_boxmatch, monkeypatch, "bash", "publish", "t").strip() == ""
            server.shutdown()
        # Nobody is there any more.
        assert self.complete(run_boxmatch, monkeypatch, "bash", "publish", "t").strip() == ""
        monkeypatch.setenv("BOXMATCH_URL", "nonsense")
        assert self.complete(run_boxmatch, monkeypatch, "bash", "publish", "t").strip() == ""
