"""Every example runs from the command that `examples/README.md` gives, and prints what it says."""

from __future__ import annotations

import ast
import importlib
import json
import re
import runpy
import signal
import socket
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import boxmatch as bm
from boxmatch.indexes import registry
from boxmatch.workloads import RangeWorkload
from guide import ROOT, Guide, environment

EXAMPLES = ROOT / "examples"
README = (EXAMPLES / "README.md").read_text(encoding="utf-8")


def said(section: str) -> tuple[str, str]:
    """The command of a section of the README, and what it prints."""
    block, says = next(Guide("../examples/README.md", section=section).with_output())
    assert block.kind == "sh"
    return block.text.strip(), says


def pattern(says: str) -> str:
    """A regular expression in which `…` stands for anything."""
    return ".*".join(map(re.escape, says.strip().split("…")))


def test_every_example_is_listed() -> None:
    links = set(re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", README, re.MULTILINE))
    here = {path.name for path in EXAMPLES.iterdir() if not path.name.startswith((".", "_"))}
    assert links == here - {"README.md"}


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.name)
def test_examples_say_what_they_show(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring
    if path.parent in (EXAMPLES, EXAMPLES / "broker_page"):  # those that are commands
        assert f"Run it with `python {path.name}`" in docstring.replace("\n", " ")


@pytest.mark.parametrize(
    "section",
    [
        "Price alerts",
        "Alerts over nested JSON",
        "Geofences",
        "Alerts that are kept",
        "Geofences in a process that is killed",
    ],
)
def test_programs(section: str, capsys: pytest.CaptureFixture[str]) -> None:
    command, says = said(section)
    runpy.run_path(str(ROOT / command.removeprefix("python ")), run_name="__main__")
    assert capsys.readouterr().out == says


def test_files_through_the_command_line() -> None:
    command, says = said("Files through the command line")
    done = subprocess.run(
        command.split(), cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == says
    assert "symbol=string, price=float, volume=int" in done.stderr


# --- a page that listens to a broker ---------------------------------------------------------


@pytest.fixture
def page() -> Iterator[httpx.Client]:
    command, says = said("A web page for a broker")
    running = subprocess.Popen(
        [sys.executable, *command.split()[1:], "--port", "0", "--every", "0.05"],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    try:
        announced = running.stdout.readline().strip()
        told = re.fullmatch(r"Open (\S+) .*", announced)
        assert told, announced
        assert re.fullmatch(pattern(says).replace("8000", r"\d+"), announced)
        with httpx.Client(base_url=told[1], timeout=30) as client:
            yield client
    finally:
        running.send_signal(signal.SIGINT)
        out, errors = running.communicate(timeout=60)
    assert running.returncode == 0
    assert out == "Stopping\n"
    # The broker, a process of its own, may have to compile.
    assert re.sub(r"boxmatch: compiling .*\n", "", errors) == ""


def test_a_page_that_listens_to_a_broker(page: httpx.Client) -> None:
    shown = page.get("/")
    assert shown.headers["content-type"] == "text/html; charset=utf-8"
    assert 'new EventSource("/notifications")' in shown.text
    assert page.get("/filter").text == "price > 100"
    last = 0
    for note in notes(page, lambda heard: len(heard) == 3):
        assert note["event"]["price"] > 100
        assert note["sequence"] > last
        last = note["sequence"]

    wrong = page.put("/filter", content="prize > 100")
    assert wrong.status_code == 422
    assert wrong.text.startswith("there is no attribute 'prize'; did you mean 'price'?")
    assert page.put("/filter", content="symbol = 'KO'").status_code == 204
    assert page.get("/filter").text == "symbol = 'KO'"
    # Who comes again goes on behind what was seen, first with notes of the old filter.
    later = notes(page, has_ko, {"Last-Event-ID": str(last)})
    assert all(note["sequence"] > last for note in later)
    assert later[-1]["event"]["symbol"] == "KO"
    assert page.get("/nowhere").status_code == 404
    assert page.put("/nowhere").status_code == 404


def test_a_page_whose_port_is_taken_says_so() -> None:
    command, _ = said("A web page for a broker")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, *command.split()[1:], "--port", str(port)],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr == f"port {port}: Address already in use; choose one with --port\n"


def has_ko(heard: list[Any]) -> bool:
    return heard[-1]["event"]["symbol"] == "KO" or len(heard) == 1_000


def notes(
    page: httpx.Client,
    enough: Callable[[list[Any]], bool],
    headers: dict[str, str] | None = None,
) -> list[Any]:
    """The next few, as a browser hears of them."""
    heard: list[Any] = []
    with page.stream("GET", "/notifications", headers=headers) as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        for line in stream.iter_lines():
            if line.startswith("data: "):
                heard.append(json.loads(line.removeprefix("data: ")))
                if enough(heard):
                    return heard
    raise AssertionError(f"the stream ended after {len(heard)} notes")


# --- the notebook ----------------------------------------------------------------------------

NOTEBOOK = json.loads((EXAMPLES / "explore_workload.ipynb").read_text(encoding="utf-8"))


def test_notebook_is_stored_without_outputs() -> None:
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    cells = NOTEBOOK["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    shown = [value for code in code_cells() if (value := run_cell(code, names)) is not None]
    charts = [value._repr_svg_() for value in shown if hasattr(value, "_repr_svg_")]
    assert len(charts) == 4
    for chart in charts:
        assert ElementTree.fromstring(chart).tag == "{http://www.w3.org/2000/svg}svg"
        assert chart.count("<path") > 5
    printed = capsys.readouterr().out
    assert "<MatchResult: 250,904 matches of 20,000 events>" in printed
    assert "alerts matched nothing" in printed
    assert "matches\n  ✓ symbol" in printed


def code_cells() -> Iterator[str]:
    for cell in NOTEBOOK["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


def run_cell(code: str, names: dict[str, Any]) -> Any:
    """As Jupyter does: the value of the last line, if it is an expression, is what is shown."""
    body = ast.parse(code).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "a cell", "exec"), names)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "a cell", "eval"), names)


# --- an index of one's own -------------------------------------------------------------------

OWN = EXAMPLES / "own_index.py"


def test_own_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """That it is found by its name, and right; all that the suite asks for is tested below."""
    monkeypatch.setattr(registry, "_REGISTERED", {})
    monkeypatch.syspath_prepend(EXAMPLES)
    importlib.import_module("own_index")
    workload = RangeWorkload(subscriptions=3_000, attributes=6, predicates=3, event_size=5)
    found = []
    for index in ("narrowest", "scan"):
        matcher = bm.Matcher(workload.schema, index=index)
        matcher.subscribe_boxes(range(3_000), *workload.bounds(0, 3_000))
        matcher.subscribe(3_000, {})
        result = matcher.match_batch(workload.events(0, 200))
        found.append(set(zip(result.event.tolist(), result.subscription.tolist(), strict=True)))
    assert found[0] == found[1]
    assert len(found[0]) > 1_000


def test_own_index_is_short() -> None:
    assert len(OWN.read_text(encoding="utf-8").splitlines()) < 100


@pytest.mark.slow
def test_own_index_passes_the_suite() -> None:
    command, says = said("A custom index")
    done = subprocess.run(
        [sys.executable, *command.split()[1:]],
        cwd=ROOT,
        env=environment() | {"PYTEST_ADDOPTS": "-p no:cacheprovider"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    last = done.stdout.strip().splitlines()[-1]
    assert re.fullmatch(pattern(says), last)
    assert int(last.split()[0]) > 100


@pytest.mark.slow
def test_own_index_is_a_command_line_too() -> None:
    command = [str(OWN), "bench", "equality", "--subscriptions", "1000", "--index", "narrowest"]
    done = subprocess.run(
        [sys.executable, *command], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "index narrowest" in done.stdout
