"""Everything in the Spark guide is run, in order, and prints what the guide says."""

from __future__ import annotations

from pathlib import Path

import pytest
from quick_spark import write_defaults  # in this folder

from guide import Guide, check, run

GUIDE = Guide("spark.md")
SHELL = [text for text, _ in GUIDE.blocks("bash")]


def test_python(tmp_path: Path) -> None:
    check(GUIDE.printed(tmp_path, write_defaults(tmp_path / "conf")), GUIDE.said)


@pytest.mark.parametrize(
    "text",
    [pytest.param(text, marks=pytest.mark.slow if text in GUIDE.slow else ()) for text in SHELL],
)
def test_shell(text: str, tmp_path: Path) -> None:
    GUIDE.write_files(tmp_path)
    said = run(["bash", "-euo", "pipefail", "-c", text], tmp_path)
    if "job.py" in text:
        assert "True" in said
