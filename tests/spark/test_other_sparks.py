"""The portable tests once more, on Spark Connect and on executors that are processes of their own.

A process has one kind of Spark, so each kind gets a run of pytest to itself.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("kind", ["connect", "local-cluster"])
def test_portable_tests(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0",
         "-m", "portable", str(FOLDER)],
        env={**_plain_environment(), "BOXMATCH_TEST_SPARK": kind},
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


WITHOUT_PACKAGE = """
import pickle, sys
sys.modules["boxmatch"] = None  # as if it were not installed
with open(sys.argv[1], "rb") as file:
    run = pickle.load(file)
list(run(iter([])))
"""


def test_a_worker_without_the_package_says_so(tmp_path: Path) -> None:
    from pyspark import cloudpickle

    from boxmatch.spark.entry import task

    run = task("boxmatch.spark.worker:match", path="x", shards=[])
    (tmp_path / "task").write_bytes(cloudpickle.dumps(run))
    command = [sys.executable, "-c", WITHOUT_PACKAGE, str(tmp_path / "task")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (
        "has no package boxmatch: install it for the Python that the executors run" in done.stderr
    )


def test_a_worker_with_another_version_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import cloudpickle

    import boxmatch
    from boxmatch.spark.entry import task

    run = pickle.loads(cloudpickle.dumps(task("boxmatch.spark.worker:match")))
    monkeypatch.setattr(boxmatch, "__version__", "0.0.1")
    with pytest.raises(RuntimeError, match=r"has boxmatch 0.0.1, the driver has"):
        list(run(iter([])))
