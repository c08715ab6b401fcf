"""CloudEvents SQL against the conformance cases of its specification, where they are at hand.

They are read from `cesql_tck` in the folder that BOXMATCH_SUITES names, or in a folder
`shared/suites` beside the checkout or above it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cesql_pattern_oracle import holds

from boxmatch.errors import FilterError, FilterSyntaxError
from boxmatch.model.dialects.cesql import translate
from boxmatch.model.dialects.cesql_evaluation import evaluate
from boxmatch.model.dialects.cesql_syntax import parse

ANY_EVENT = {"specversion": "1.0", "id": "1", "source": "/test", "type": "test"}


class WithoutTimes(yaml.SafeLoader):
    """Times are the strings that they are written as."""


WithoutTimes.yaml_implicit_resolvers = {
    first: [one for one in resolvers if one[0] != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def folder() -> Path | None:
    named = os.environ.get("BOXMATCH_SUITES")
    above = [parent / "shared" / "suites" for parent in Path(__file__).resolve().parents]
    candidates = [Path(named)] if named else above
    return next((one / "cesql_tck" for one in candidates if (one / "cesql_tck").is_dir()), None)


def cases() -> Iterator[Any]:
    found = folder()
    if found is None:
        skip = pytest.mark.skip("the conformance cases are not at hand: set BOXMATCH_SUITES")
        yield pytest.param({}, marks=skip)
        return
    for file in sorted(found.glob("*.yaml")):
        text = file.read_text(encoding="utf-8")
        typed = yaml.load(text, WithoutTimes)["tests"]
        written = yaml.load(text, yaml.BaseLoader)["tests"]
        for case, as_text in zip(typed, written, strict=True):
            expression = as_text["expression"]
            yield pytest.param(case | {"expression": expression}, id=f"{file.stem}: {expression}")


CASES = list(cases())


@pytest.mark.parametrize("case", CASES)
def test_conformance_case(case: dict[str, Any]) -> None:
    if case.get("error") == "parse":
        with pytest.raises(FilterSyntaxError):
            parse(case["expression"])
        return
    event = case.get("event", ANY_EVENT) | case.get("eventOverrides", {})
    value, errors = evaluate(parse(case["expression"]), event)
    assert errors == ({case["error"]} if "error" in case else set())
    assert (type(value), value) == (type(case["result"]), case["result"])


@pytest.mark.parametrize("case", CASES)
def test_conformance_case_as_filter(case: dict[str, Any]) -> None:
    event = case.get("event", ANY_EVENT) | case.get("eventOverrides", {})
    wanted = case.get("result") is True and "error" not in case
    try:
        translated = translate(case["expression"])
    except FilterError:
        assert "error" in case
        return
    found = holds(translated.pattern, event)
    if translated.wants:
        found = found and translated.wants(*(event.get(name) for (name,) in translated.paths))
    assert found == wanted


@pytest.mark.skipif(folder() is None, reason="the conformance cases are not at hand")
def test_there_are_many_cases() -> None:
    assert len(CASES) >= 275
