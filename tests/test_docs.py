"""Every block of code in the documentation is run, by this module or by one named here.

What the pages list (operators, errors, indexes, layers) is compared with what there is.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final, get_args

import pytest

from boxmatch.errors import FilterError
from boxmatch.indexes.registry import index_class, index_names
from boxmatch.model import axis_table
from boxmatch.model.expressions import patterns
from boxmatch.model.expressions.functions import FUNCTIONS
from boxmatch.model.filters import compile_filter, parsing, scope, sql
from boxmatch.model.filters.conditions import Operator
from boxmatch.model.filters.mapping import _TESTS as TEXT_TESTS
from boxmatch.model.schema import Schema
from command_line import Command
from guide import AT_THE_ROOT, ROOT, Guide, check, lines, run
from layer_diagram import DIAGRAM, drawn
from test_package import LAYERS

HERE: Final = "tests/test_docs.py"
PAGES: Final = (
    "quickstart.md",
    "concepts.md",
    "dialects.md",
    "filters.md",
    "indexes.md",
    "adaptive.md",
    "asyncio.md",
)
RUN_BY: Final = {
    **dict.fromkeys((*PAGES, "README.md"), HERE),
    "broker.md": "tests/broker/test_broker_docs.py",
    "route.md": "tests/route/test_route_docs.py",
    "spaces.md": "tests/spaces/test_spaces_docs.py",
    "spark.md": "tests/spark/test_spark_docs.py",
}
SHELL: Final = ("bash", "sh")

ALL: Final = [
    *AT_THE_ROOT,
    *(str(path.relative_to(ROOT / "docs")) for path in sorted((ROOT / "docs").rglob("*.md"))),
]


@pytest.mark.parametrize("name", PAGES)
def test_page(name: str, tmp_path: Path) -> None:
    guide = Guide(name)
    check(guide.printed(tmp_path), guide.said)
    for block, says in guide.with_output():
        if block.kind in SHELL and block.not_run is None:
            printed = run(["bash", "-euo", "pipefail", "-c", block.text], tmp_path)
            assert not says or lines(printed) == lines(says)


def test_readme_begins_with_an_example(tmp_path: Path) -> None:
    guide = Guide("README.md", section="")
    assert len(guide.said) == 1
    check(guide.printed(tmp_path), guide.said)


def test_readme_has_the_first_example_of_the_spark_guide() -> None:
    # Where it is run. A session of Spark for this page alone would take long.
    (shown,) = Guide("README.md", section="On Spark").blocks("python")
    assert shown == next(Guide("spark.md").blocks("python"))


@pytest.mark.parametrize("name", ALL)
def test_every_block_is_run(name: str) -> None:
    guide = Guide(name)
    fences = re.findall(r"^ *(?:```|~~~)", guide.page, re.MULTILINE)
    assert len(fences) == 2 * len(guide.all), "a block is indented, or has no language"
    before = None
    for block in guide.all:
        if block.kind == "text":
            assert before is not None, f"nothing prints this: {block.text}"
            assert before.kind in ("python", *SHELL), f"nothing prints this: {block.text}"
            assert before.not_run is None, f"this was not run: {block.text}"
        elif block.not_run is None:
            known = block.kind in ("python", *SHELL) or block.file is not None
            assert known, f"neither run nor marked as not run: {block.text}"
            assert name in RUN_BY, f"no test runs this: {block.text}"
        before = block


@pytest.mark.parametrize(("name", "test"), RUN_BY.items())
def test_reports_are_run_where_it_is_said(name: str, test: str) -> None:
    source = (ROOT / test).read_text(encoding="utf-8")
    assert name in PAGES or f'Guide("{name}"' in source


@pytest.mark.parametrize("name", ALL)
def test_commands_that_are_not_run_exist(name: str, run_boxmatch: Command) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for block in Guide(name).all:
        if block.kind not in SHELL or block.not_run is None:
            continue
        for line in block.text.splitlines():
            command, *arguments = shlex.split(line, comments=True) or [""]
            if Path(command).name == "boxmatch":
                # Options are read before the help is shown, and unknown ones are an error.
                assert run_boxmatch(*arguments, "--help").code == 0, line
            elif command == "make":
                assert f"\n{arguments[0]}:" in makefile, line


def test_filter_page_has_every_operator_and_error() -> None:
    page = Guide("filters.md").page
    kinds = {FilterError, *FilterError.__subclasses__()}
    assert [kind.__name__ for kind in kinds if f"\n### {kind.__name__}" not in page] == []
    assert [one for one in get_args(Operator) if f" {one} " not in page] == []


def test_filter_page_has_every_construct_that_is_refused() -> None:
    page = Guide("filters.md").page
    names = sorted(set(parsing._NAMES.values()))
    assert [one for one in names if f" {one}\n" not in page] == []


def _schema_of_the_filter_page() -> Schema:
    variables: dict[str, Schema] = {}
    exec(next(Guide("filters.md").blocks("python"))[0], variables)
    return variables["schema"]


def test_filter_page_tells_costs() -> None:
    schema = _schema_of_the_filter_page()
    rows = re.findall(
        r"^\| `(.*?)` \| ((?:box|axis|residual)(?:, (?:axis|residual))*) \|",
        Guide("filters.md").page,
        re.MULTILINE,
    )
    assert len(rows) > 40
    for filter, said in rows:
        compiled = compile_filter(schema, filter)
        positions = {position for box in compiled.boxes for position, _, _ in box}
        costs = {"box" if position < len(schema) else "axis" for position in positions}
        costs |= {"residual"} if compiled.residual else set()
        assert costs == set(said.split(", ")), filter


def test_filter_page_has_every_function_with_an_example_that_is_true() -> None:
    schema = _schema_of_the_filter_page()
    page = Guide("filters.md").page
    table = page.partition("| function |")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    for row in rows:
        example = re.findall(r"`([^`]+)`", row)[-1]
        assert compile_filter(schema, example).boxes == ((),), example
    names = {name for name in FUNCTIONS if name.isidentifier()}
    inner = {"and", "or", "not", "in", "div", "neg", "like", "rlike", "is_null", "is_true"}
    inner |= {"is_false", "field", "array"}
    assert [one for one in sorted(names - inner) if f"{one.upper()}" not in page] == []
    assert [one for one in sorted(TEXT_TESTS) if f"`{one}`" not in page] == []


def test_filter_page_tells_limits() -> None:
    table = Guide("filters.md").page.partition("\n## Limits\n")[2].partition("\n\n```")[0]
    for limit in (
        sql.MOST_CHARACTERS,
        scope.MOST_AXES,
        axis_table.MOST_EXPRESSIONS,
        parsing._MOST_NESTED,
        patterns.MOST_CHARACTERS,
    ):
        assert f" {limit:,} |" in table
    assert f"{patterns.MEMORY >> 20} MB" in table


def test_index_page_has_every_index_with_its_parameters() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|.*\| (.*) \| (yes|no) \|$", Guide("indexes.md").page, re.M)
    assert {name for name, *_ in rows} == set(index_names())
    for name, parameters, skips in rows:
        found = index_class(name)
        said = ", ".join(f"`{key}={value!r}`" for key, value in found.parameters.items())
        assert parameters == (said or "–"), name
        assert skips == ("yes" if found.capabilities.approximate else "no"), name


def test_architecture_page_has_every_layer_in_order() -> None:
    table = Guide("architecture.md").page.partition("| layer |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == LAYERS


def test_architecture_page_names_modules_that_exist() -> None:
    page = Guide("architecture.md").page
    paths = re.findall(r"`(\w+/[\w/]+\.py|\w+/[\w/]+)`", page)
    assert len(paths) > 8
    roots = (ROOT, ROOT / "src" / "boxmatch")
    assert [one for one in paths if not any((root / one).exists() for root in roots)] == []


def test_diagram_of_layers_shows_the_imports() -> None:
    message = "draw it anew: PYTHONPATH=tests .venv/bin/python tests/layer_diagram.py"
    assert DIAGRAM.read_text(encoding="utf-8") == drawn(), message
