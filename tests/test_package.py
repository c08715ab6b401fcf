from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

import boxmatch
from boxmatch.errors import BoxmatchError

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "boxmatch"

# Each may import those before it. Modules directly in the package come first.
LAYERS = [
    "errors",
    "extras",
    "arrays",
    "logs",
    "storage",
    "kernels",
    "reports",
    "model",
    "adaptive",
    "indexes",
    "engine",
    "spaces",
    "wire",
    "client",
    "workloads",
    "spark",
    "broker",
    "nats",
    "cli",
]

EXPORTED = [
    "AccessError",
    "Attribute",
    "AttributeValueError",
    "BoxmatchError",
    "BrokerError",
    "ClientError",
    "DeviceError",
    "DuplicateMemberError",
    "DuplicateSubscriptionError",
    "EventError",
    "Explanation",
    "FeedExistsError",
    "FilterError",
    "FilterSyntaxError",
    "FilterTooLargeError",
    "IndexConfigError",
    "IndexTooLargeError",
    "Interval",
    "LimitError",
    "Explainer",
    "MatchResult",
    "Matcher",
    "MatcherInfo",
    "Miss",
    "Nearest",
    "Predicate",
    "Rejected",
    "ResultTooLargeError",
    "Subscribed",
    "SubscriptionId",
    "MissingExtraError",
    "Transition",
    "Transitions",
    "OverloadError",
    "RegionError",
    "RegionFilterError",
    "RouteError",
    "Schema",
    "SchemaError",
    "Spaces",
    "SparkError",
    "StorageError",
    "Stored",
    "SubscriptionIdError",
    "TargetError",
    "UnknownAttributeError",
    "UnknownEventError",
    "UnknownFeedError",
    "UnknownMemberError",
    "UnknownSubscriptionError",
    "UnsupportedFilterError",
    "__version__",
]

EXPORTED_BY_SPARK = [
    "IndexVersion",
    "MatchPlan",
    "ParquetSink",
    "Pipeline",
    "SparkSink",
    "TableSink",
    "build_index",
    "cloudevents",
    "explain",
    "follow_changes",
    "local_session",
    "match",
    "match_function",
    "match_stream",
    "read_version",
    "register",
    "register_broker",
    "rejected",
    "stream_metrics",
    "transitions",
    "update_index",
]


def test_exported_names() -> None:
    assert sorted(boxmatch.__all__) == sorted(EXPORTED)
    for name in EXPORTED:
        value = getattr(boxmatch, name)
        assert getattr(value, "__name__", name) == name
    assert dir(boxmatch) == sorted(EXPORTED)


USER = """
import boxmatch as bm

declared = {"side": ["buy", "sell"], "price": "float", "at": "timestamp"}
m: bm.Matcher = bm.Matcher(declared, unknown="warn")
bm.Matcher({"side": ("buy", "sell"), "price": {"type": "float", "domain": [0, 1]}})
bm.Schema({"side": ["buy", "sell"]})
bm.Spaces({"map": declared})
done: bm.Subscribed = m.subscribe("a", {"price": (1, None)})
rejected: tuple[bm.Rejected, ...] = done.rejected
ids: list[bm.SubscriptionId] = m.match({"side": "buy"})
found: bm.MatchResult = m.match_batch([{"side": "buy"}], keep=["side"])
rows: list[int] = [event for event, ids in found if len(ids) and len(found[event])]
near: bm.Nearest = m.nearest({"side": "buy"})
failed: list[bm.Predicate] = [one for miss in near.misses for one in miss.predicates]
why: bm.Explanation = m.explain({"side": "buy"}, "a")
bm.Matcher(declared, unknown="carry")
"""


@pytest.mark.slow
def test_types_of_a_program_that_uses_the_package(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(USER)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary"]
    checked = subprocess.run(
        [*command, "--follow-imports=silent", f"--cache-dir={tmp_path}", program.name],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(Path(boxmatch.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    (wrong,) = checked.stdout.splitlines()
    assert wrong.startswith(f"program.py:{USER.count(chr(10))}: ")
    assert "incompatible type \"Literal['carry']\"" in wrong


def test_exported_names_of_spark() -> None:
    import boxmatch.spark

    assert sorted(boxmatch.spark.__all__) == sorted(EXPORTED_BY_SPARK)
    for name in EXPORTED_BY_SPARK:
        assert getattr(boxmatch.spark, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'matches'"):
        _ = boxmatch.spark.matches


EXPORTED_BY_NATS = [
    "Connection",
    "FeedSettings",
    "LocalServer",
    "Notification",
    "RouteSettings",
    "Router",
    "Storage",
    "create_route",
    "publish",
    "read_notification",
    "status",
    "subscribe",
    "unsubscribe",
]


def test_exported_names_of_nats() -> None:
    import boxmatch.nats

    assert sorted(boxmatch.nats.__all__) == dir(boxmatch.nats) == EXPORTED_BY_NATS
    for name in EXPORTED_BY_NATS:
        assert getattr(boxmatch.nats, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'route'"):
        _ = boxmatch.nats.route


def test_every_error_is_exported() -> None:
    import boxmatch.errors as errors

    tree = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, BoxmatchError)
    }
    assert tree <= set(EXPORTED)
    for name in tree - {"BoxmatchError"}:
        bases = getattr(errors, name).__mro__
        assert any(
            b.__module__ == "builtins" and b not in (Exception, BaseException, object)
            for b in bases
        )


@pytest.mark.parametrize(
    "error",
    [
        boxmatch.AttributeValueError("price", 1, "is not a string"),
        boxmatch.AttributeValueError("price", 1, "is not a string", row=3),
        boxmatch.EventError("row 3: no", row=3),
        boxmatch.FilterError("the condition is incomplete", "price >", 6),
        boxmatch.UnknownSubscriptionError("alice"),
        boxmatch.UnknownMemberError("publication", "van"),
        boxmatch.DuplicateMemberError("publication", "van"),
        boxmatch.StorageError("there is nothing"),
        boxmatch.MissingExtraError("the broker", "fastapi", "broker"),
        boxmatch.UnknownEventError("ticks", 7),
        boxmatch.LimitError("too many", retry_after=3.0),
        boxmatch.ClientError("no", status=404, problem={"code": "x"}),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_reach_other_processes(error: BoxmatchError) -> None:
    """A pool of processes whose worker raises what cannot be unpickled hangs, or breaks."""
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'matcher_'"):
        _ = boxmatch.matcher_


def test_import_is_light() -> None:
    script = (
        "import sys, boxmatch, boxmatch.spark, boxmatch.nats; "
        "heavy = {'numba', 'numpy', 'pyarrow', 'pyspark', 'sqlglot', 'pandas', 'typer', 'rich'}; "
        "heavy |= {'nats', 'msgspec'}; "
        "print(*(heavy & set(sys.modules)))"
    )
    assert _python(script).split() == []


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_collected_after_the_import_as_before(enabled: bool) -> None:
    switch = "enable" if enabled else "disable"
    code = f"import gc, boxmatch; gc.{switch}(); boxmatch.Matcher; print(gc.isenabled())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(enabled)


def test_client_import_is_light() -> None:
    script = (
        "import sys; from boxmatch.client import AsyncClient, Client, Notification; "
        "heavy = {'numba', 'numpy', 'pyarrow', 'pydantic', 'sqlglot', 'boxmatch.engine'}; "
        "print(*(heavy & set(sys.modules)))"
    )
    assert _python(script).split() == []


def test_command_line_import_is_light() -> None:
    script = (
        "import sys; import boxmatch.cli; "
        "print(*({'numba', 'pyarrow', 'pyspark', 'sqlglot', 'numpy'} & set(sys.modules)))"
    )
    assert _python(script).split() == []


def test_matching_needs_no_data_frames() -> None:
    script = (
        "import sys, boxmatch; boxmatch.Schema({'price': 'float'}); "
        "print(*({'numba', 'pandas', 'polars', 'sqlglot'} & set(sys.modules)))"
    )
    assert _python(script).split() == []


FIRST_USE = """
import threading
import boxmatch as bm

start, answers = threading.Barrier(8), []

def use(number):
    start.wait()
    matcher = bm.Matcher(bm.Schema({"symbol": "string", "price": "float"}))
    if number % 2:
        matcher.subscribe("low", "symbol = 'IBM' AND price < 30")
    else:
        matcher.subscribe("low", {"symbol": "IBM", "price": (None, 20)})
        assert "symbol" in matcher.filter_of("low")
    import pyarrow
    table = pyarrow.table({"symbol": ["IBM"], "price": [10.0]})
    found = matcher.match_batch(table).subscription
    answers.append((matcher.match({"symbol": "IBM", "price": 10.0}), list(found)))

threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(answers == [(["low"], ["low"])] * 8)
"""


def test_first_use_by_many_threads_at_once() -> None:
    """What is imported late is then imported by all of them."""
    assert _python(FIRST_USE) == "True\n"


FIRST_NAMES = """
import sys, threading, time
import boxmatch as bm

looking, found = threading.Event(), []

class SlowToFind:
    def find_spec(name, path=None, target=None):
        if name == "boxmatch.model":
            looking.set()
            time.sleep(0.3)

sys.meta_path.insert(0, SlowToFind)
other = threading.Thread(target=lambda: looking.wait() and found.append(bm.Schema))
other.start()
found.append(bm.Matcher)
other.join()
print(len(found))
"""


def test_first_use_of_different_names_at_once() -> None:
    """One thread is within a package, the other wants a module of it that the first needs too."""
    assert _python(FIRST_NAMES) == "2\n"


def _python(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_version_is_written_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dynamic"] == ["version"]
    assert boxmatch.__version__.count(".") == 2


CHECKED = {
    "numba": ("0.68", "numba.core.event, caching and cgutils, in kernels"),
    "sqlglot": ("30.30", "Parser._tokens and _index, in model/filters/parsing.py"),
    "uvicorn": ("0.54", "subclasses of its protocols, in broker/server"),
}
"""Whose inner parts are used: the newest version that these were checked with, and which."""


@pytest.mark.parametrize("name", CHECKED)
def test_inner_parts_were_checked_with_this_version(name: str) -> None:
    checked, parts = CHECKED[name]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["broker"]]
    (bound,) = (
        part[1:] for one in asked if one.startswith(f"{name}>=") for part in one.split(",")[1:]
    )
    assert minor(checked) < minor(bound)
    installed = version(name)
    assert minor(installed) < minor(bound), f"{name} {installed} is beyond the bound, {bound}"
    assert minor(installed) <= minor(checked), (
        f"{name} {installed} is newer than {checked}: look at {parts}, then raise it here"
    )


def minor(version: str) -> tuple[int, int]:
    major, minor, *_ = [*version.split("."), "0"]
    return int(major), int(minor)


def test_typed_marker_is_shipped() -> None:
    assert (SOURCE / "py.typed").exists()


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE))
)
def test_layers(path: Path) -> None:
    layer = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if layer in ("__init__", "__main__"):  # the package's own face
        return
    assert layer in LAYERS, f"{layer} has no place in the layers"
    allowed = LAYERS[: LAYERS.index(layer) + 1]
    for imported in imports(path):
        assert imported in allowed, f"{layer} must not import {imported}"


@pytest.mark.parametrize(
    "path", sorted((SOURCE / "broker").rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE))
)
def test_the_broker_does_not_import_its_client(path: Path) -> None:
    """What both need is `wire`."""
    assert "client" not in imports(path)


def imports(path: Path) -> Iterator[str]:
    """Layers that a module imports, anywhere in it, types included."""
    for name in imported_names(path):
        first, _, rest = name.partition(".")
        if first == "boxmatch" and rest and rest != "__version__":
            yield rest.partition(".")[0]


def imported_names(path: Path) -> Iterator[str]:
    """Modules that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            # `from boxmatch import x` names a layer, or something of the package itself.
            own = [f"boxmatch.{a.name}" for a in node.names]
            yield from own if module == "boxmatch" else [module]


def test_the_package_never_imports_its_benchmarks() -> None:
    """They are a distribution of their own, which the command line finds as an entry point."""
    for path in SOURCE.rglob("*.py"):
        first = {name.partition(".")[0] for name in imported_names(path)}
        assert "boxmatch_bench" not in first, path
    assert _python(
        "import sys; sys.argv = ['boxmatch', 'check', 'x > 1', '--attribute', 'x=int']\n"
        "import boxmatch.cli\n"
        "try: boxmatch.cli.main()\n"
        "except SystemExit: print('boxmatch_bench' in sys.modules)"
    ).endswith("\nFalse\n")


def test_makefile_and_ci_agree() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
