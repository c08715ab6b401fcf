"""What is shipped, and what is said where a part of it is not installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import boxmatch as bm
from boxmatch.extras import requires
from guide import ROOT, environment

SOURCE = ROOT / "src" / "boxmatch"
BENCH = ROOT / "bench"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both source distributions, and the wheels that were built from them."""
    folder = tmp_path_factory.mktemp("dist")
    for project in (ROOT, BENCH):
        build = (sys.executable, "-m", "build", "--no-isolation")
        done = subprocess.run(
            [*build, "--outdir", str(folder), str(project)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


def _wheel(built: Path, package: str) -> Path:
    return built / f"{package}-{bm.__version__}-py3-none-any.whl"


def _contents(built: Path, source: Path) -> tuple[set[str], Message]:
    """What a wheel holds besides its package, of which it must hold all, and what it says."""
    with zipfile.ZipFile(_wheel(built, source.name)) as wheel:
        names = set(wheel.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        about = Parser().parsestr(wheel.read(metadata).decode())
    # All of the package and nothing but that: no tests, no caches.
    there = {path for path in source.rglob("*") if path.is_file()}
    shipped = {
        path.relative_to(source.parent).as_posix() for path in there if path.suffix != ".pyc"
    }
    assert shipped == {name for name in names if ".dist-info/" not in name}
    assert about["Version"] == bm.__version__
    assert about["License-Expression"] == "Apache-2.0"
    info = metadata.partition("/")[0]
    assert f"{info}/licenses/LICENSE" in names
    return shipped, about


def test_wheel(built: Path) -> None:
    shipped, about = _contents(built, SOURCE)
    assert {"boxmatch/py.typed", "boxmatch/reports/page.html"} <= shipped
    assert {"index.html", "app.js", "style.css"} <= {
        Path(name).name for name in shipped if name.startswith("boxmatch/broker/dashboard/")
    }
    assert set(about.get_all("Provides-Extra")) == set(EXTRAS)
    assert about.get_payload().strip() == (ROOT / "README.md").read_text().strip()


def test_wheel_of_the_benchmarks(built: Path) -> None:
    """It asks for the same version of the package: it uses private modules of it."""
    shipped, about = _contents(built, BENCH / "src" / "boxmatch_bench")
    assert "boxmatch_bench/py.typed" in shipped
    assert f"boxmatch=={bm.__version__}" in about.get_all("Requires-Dist")
    with zipfile.ZipFile(_wheel(built, "boxmatch_bench")) as wheel:
        (commands,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        assert b"[boxmatch.commands]\nbench = boxmatch_bench.cli:app" in wheel.read(commands)


def _source_distribution(built: Path, package: str) -> set[str]:
    with tarfile.open(built / f"{package}-{bm.__version__}.tar.gz") as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    assert not [name for name in names if "__pycache__" in name or name.startswith(".venv")]
    return names


def test_source_distributions(built: Path) -> None:
    bench = _source_distribution(built, "boxmatch_bench")
    assert {"LICENSE", "README.md", "pyproject.toml", "tests/test_bench.py"} <= bench
    names = _source_distribution(built, "boxmatch")
    for wanted in (
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "Makefile",
        "pyproject.toml",
        "src/boxmatch/py.typed",
        "conftest.py",
        "tests/guide.py",
        "bench/pyproject.toml",
        "docs/spark.md",
        "examples/README.md",
        "examples/broker_page/page.html",
    ):
        assert wanted in names


def test_changelog_has_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(bm.__version__)} - ", changelog, re.MULTILINE)


# --- what is not installed -------------------------------------------------------------------

MODULES = {
    re.split(r"[^\w-]", requirement)[0]
    .replace("-", "_")
    .removesuffix("_python")
    .removesuffix("_py")
    for extra in ("client", "broker", "spark", "nats", "bench")
    for requirement in EXTRAS[extra]
} - {"boxmatch"}

COMMANDS = {
    "serve --data data": "broker",
    "backup copy --data data": "broker",
    "admin check --data data": "broker",
    "publish ticks ticks.ndjson": "client",
    "subscribe alice cheap ticks price<3": "client",
    "listen alice": "client",
    "route status": "nats",
    "pipeline run --config sample/pipeline.toml": "spark",
}

BENCH_COMMANDS = {
    "bench spark": "spark",
    "bench broker --subscriptions 10 --subscribers 1": "broker",
    "bench reproduce hem-width": "bench",
}
"""Of `boxmatch-bench`, where that is installed without what it needs."""

NAMES = {
    "boxmatch.client.Client": "client",
    "boxmatch.client.AsyncClient": "client",
    "boxmatch.nats.Router": "nats",
    "boxmatch.spark.local_session()": "spark",
}

WITHOUT = """
import contextlib, importlib.metadata, io, json, sys

missing, asked = map(json.loads, sys.argv[1:])


class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Nowhere())
if "boxmatch_bench" in missing:
    importlib.metadata.entry_points = lambda **_: ()
"""

COMMANDS_WITHOUT = """
from boxmatch.cli import main
from boxmatch.spark.pipeline import write_sample

write_sample("sample")
said = {}
for command in asked:
    sys.argv = ["boxmatch", *command.split()]
    code = None
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as e:
        try:
            main()
        except SystemExit as exit:
            code = exit.code
    said[command] = [code, e.getvalue()]
print(json.dumps(said))
"""


@pytest.mark.parametrize("bench", [False, True], ids=["alone", "with benchmarks"])
def test_commands_say_what_to_install(bench: bool, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "broker.sqlite").touch()
    (tmp_path / "ticks.ndjson").write_text('{"price": 1}\n')
    assert {"httpx", "fastapi", "pyspark", "vl_convert", "prometheus_client"} <= MODULES
    commands = COMMANDS | (BENCH_COMMANDS if bench else dict.fromkeys(BENCH_COMMANDS, "bench"))
    missing = MODULES - {"boxmatch_bench"} if bench else MODULES
    said = json.loads(_without(missing, COMMANDS_WITHOUT, tmp_path, commands))
    for command, extra in commands.items():
        code, errors = said[command]
        assert code == 2, (command, errors)
        last = errors.strip().splitlines()[-1]
        assert re.fullmatch(rf"boxmatch: .+: pip install 'boxmatch\[{extra}\]'", last), errors
        assert "Traceback" not in errors


HELP_WITHOUT = """
from boxmatch.cli import main

sys.argv = ["boxmatch", *asked]
main()
"""


def test_help_lists_what_is_installed(tmp_path: Path) -> None:
    listed = _without(MODULES, HELP_WITHOUT, tmp_path, ["--help"])
    assert "\n  match " in listed
    assert "\n  bench " not in listed


NAMES_WITHOUT = """
import boxmatch, boxmatch.client, boxmatch.nats, boxmatch.spark

said = {}
for name in asked:
    try:
        eval(name)
    except boxmatch.MissingExtraError as error:
        assert isinstance(error, ImportError) and error.name in missing
        said[name] = [str(error), error.extra]
print(json.dumps(said))
"""


def test_names_say_what_to_install(tmp_path: Path) -> None:
    said = json.loads(_without(MODULES, NAMES_WITHOUT, tmp_path, NAMES))
    for name, extra in NAMES.items():
        message, which = said[name]
        assert which == extra
        assert re.fullmatch(rf"[\w. ]+ needs \w+, .*: pip install 'boxmatch\[{extra}\]'", message)


def _without(missing: Iterable[str], script: str, folder: Path, asked: Iterable[str]) -> str:
    """What a script prints where these modules are not installed."""
    arguments = map(json.dumps, (sorted(missing), sorted(asked)))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + script, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_modules_of_the_package_itself_are_no_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match="boxmatch") as raised, requires("spark", "this"):
        import boxmatch.no_such_module  # type: ignore[import-not-found]  # noqa: F401
    assert not isinstance(raised.value, bm.MissingExtraError)


def test_what_asks_for_more_comes_first() -> None:
    """A broker needs the client: who wants a broker is told of the broker's extra."""
    with (
        pytest.raises(bm.MissingExtraError, match=r"a broker .*boxmatch\[broker\]"),
        requires("broker", "a broker"),
        requires("client", "a client"),
    ):
        raise ModuleNotFoundError("no httpx", name="httpx")


# --- installed, in an environment of its own -------------------------------------------------

PYTHONS = os.environ.get("BOXMATCH_TEST_PYTHONS", "python3.12 python3.13").split()
"""Others than the one that runs the tests."""

LIBRARY = """
import boxmatch as bm

assert "site-packages" in bm.__file__, bm.__file__
m = bm.Matcher(bm.Schema({"symbol": "string", "price": "float"}))
m.subscribe("alice", "symbol = 'IBM' AND price BETWEEN 20 AND 30")
m.subscribe("bob", {"price": (100, None)})
m.save("alerts.bm")
m = bm.Matcher.load("alerts.bm")
assert m.match({"symbol": "IBM", "price": 24.5}) == ["alice"]
assert m.match_batch([{"price": 120.0}] * 3).counts.tolist() == [1, 1, 1]
with bm.Spaces.open("fences", {"map": bm.Schema({"x": "float"})}) as fences:
    fences.subscribe("depot", {"x": (0, 1)})
    assert [kind for _, kind, *_ in fences.publish("van", {"x": 0.5})] == ["enter"]
"""

CLIENT = """
from boxmatch.client import AsyncClient, Client, ClientError

AsyncClient("http://127.0.0.1:9")
try:
    Client("http://127.0.0.1:9", retry_seconds=0).feeds()
except ClientError:
    pass
else:
    raise SystemExit("who answers there?")
"""

BROKER = """
import json, subprocess, sys, time
from pathlib import Path

import httpx

from boxmatch.client import Client

broker = subprocess.Popen([sys.executable, "-m", "boxmatch", "serve", "--data", "d", "--port", "0"])
try:
    while not Path("d/address.json").exists():
        assert broker.poll() is None
        time.sleep(0.1)
    url = json.loads(Path("d/address.json").read_text())["url"]
    with Client(url) as client:
        client.create_feed("ticks", {"price": "float"})
        client.subscribe("alice", "dear", "ticks", "price > 100")
        client.publish("ticks", [{"price": 99.0}, {"price": 101.0}])
        with client.listen("alice") as notes:
            assert next(notes).event == {"price": 101.0}
    for path in ("/", "/dashboard/app.js", "/docs", "/metrics"):
        assert httpx.get(url + path, follow_redirects=True).status_code == 200, path
finally:
    broker.terminate()
    code = broker.wait()
assert code == 0
"""

SPARK = """
from boxmatch.spark import local_session, match

spark = local_session("local[1]")
events = spark.createDataFrame([(1, 24.5), (2, 120.0)], "event_id long, price double")
alerts = spark.createDataFrame([("bob", "price > 100")], "subscription_id string, filter string")
assert [tuple(row) for row in match(events, alerts).collect()] == [(2, "bob")]
spark.stop()
"""

ROUTES = """
import asyncio
from pathlib import Path

import nats

from boxmatch.nats import FeedSettings, LocalServer, Router, RouteSettings, create_route
from boxmatch.nats import publish, status, subscribe


async def route(url):
    connection = await nats.connect(url)
    settings = RouteSettings(feeds={"ticks": FeedSettings(schema={"price": "float"})})
    await create_route(connection.jetstream(), "boxmatch", settings)
    worker = Router(connection)
    work = asyncio.create_task(worker.run())
    await subscribe(connection, "alice", "dear", "price > 100")
    await publish(connection, [{"price": 99.0}, {"price": 101.0}])
    while (await status(connection)).notifications < 1:
        await asyncio.sleep(0.1)
    worker.stop()
    await work
    await connection.close()


with LocalServer(Path("n")) as server:
    asyncio.run(route(server.url))
"""

BENCHMARKS = """
import subprocess, sys

quick = "hem-default --subscriptions 300 --event-count 20 --single 5 --updates 20 --repeats 1"
papers = "reproduce hem-width --scale 0.0001"
for words in (quick, papers):
    subprocess.run([sys.executable, "-m", "boxmatch", "bench", *words.split()], check=True)
"""

PARTS = {
    "": "",
    "client": CLIENT,
    "broker": BROKER,
    "nats,nats-server": ROUTES,
    "spark": SPARK,
    "bench": BENCHMARKS,
}
"""What can be done with each extra, and with none."""


class Environment:
    """A new one, which holds the package with these extras and what that asks for."""

    def __init__(
        self, folder: Path, built: Path, extras: str, python: str = sys.executable
    ) -> None:
        self.folder = folder
        self.bin = folder / "environment" / "bin"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK"))}
        # Kernels are compiled anew: what others have compiled is not what is tested here.
        own = {"PATH": f"{self.bin}:{kept['PATH']}", "NUMBA_CACHE_DIR": str(folder / "cache")}
        self.variables = {**kept, **own, "SPARK_LOCAL_IP": "127.0.0.1"}
        subprocess.run([python, "-m", "venv", str(self.bin.parent)], check=True)
        wanted = str(_wheel(built, "boxmatch")) + (f"[{extras}]" if extras else "")
        quiet = ("--quiet", "--disable-pip-version-check", "--find-links", str(built))
        self.run("-m", "pip", "install", *quiet, wanted)

    def run(self, *arguments: str, code: int = 0) -> str:
        """Everything that its Python prints when it is given these arguments."""
        done = subprocess.run(
            [str(self.bin / "python"), *arguments],
            cwd=self.folder,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout[-3000:]
        return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("extra", PARTS)
def test_installed(extra: str, built: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path, built, extra)
    environment.run("-m", "pip", "check")
    assert environment.run("-m", "boxmatch", "--version") == f"boxmatch {bm.__version__}\n"
    environment.run("-c", LIBRARY + PARTS[extra])
    brought = {
        "broker": {"broker", "client"},
        "nats,nats-server": {"nats", "client"},
        "spark": {"spark", "client"},
    }
    commands = {"serve --data d": "broker", "listen alice": "client", "bench spark": "bench"}
    if extra == "bench":
        commands["bench spark"] = "spark"
    for command, needed in commands.items():
        if needed not in brought.get(extra, {extra}):
            said = environment.run("-m", "boxmatch", *command.split(), code=2)
            assert f"pip install 'boxmatch[{needed}]'" in said


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
def test_other_pythons(python: str, built: Path, tmp_path: Path) -> None:
    works = (
        shutil.which(python)
        and not subprocess.run([python, "-c", "pass"], capture_output=True, check=False).returncode
    )
    if not works:
        pytest.skip(f"there is no {python} here")
    environment = Environment(tmp_path, built, "broker,bench", python)
    environment.run("-m", "pip", "check")
    environment.run("-c", LIBRARY + CLIENT + BROKER + BENCHMARKS)
    environment.run("-m", "boxmatch", "--help")
