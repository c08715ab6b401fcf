"""The portable tests once more, on another kind of Spark.

A process has one kind of Spark, so each kind gets a run of pytest to itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent


def run_portable_tests(
    kind: str, chosen: str = "", variables: Mapping[str, str] | None = None
) -> None:
    """All, or those whose names are chosen, as `pytest -k` does."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0",
         "-m", "portable", *(["-k", chosen] if chosen else []), str(FOLDER)],
        env={**_plain_environment(), "BOXMATCH_TEST_SPARK": kind, **(variables or {})},
        capture_output=True,
        text=True,
        cwd=FOLDER.parent.parent,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def _plain_environment() -> dict[str, str]:
    """Without what the pytest that runs this test, or its Spark, has put there."""
    ours = ("PYTEST_", "SPARK_", "PYSPARK_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}
