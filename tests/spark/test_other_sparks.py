"""Spark Connect; and workers that lack the package, or have another version of it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from other_sparks import run_portable_tests  # in this folder
from quick_spark import write_defaults


def test_a_few_portable_tests_on_connect(tmp_path: Path) -> None:
    """A table that is not there, an index and matches of it, and a stream."""
    run_portable_tests(
        "connect",
        "(test_errors and source0) or (test_both_plans and sharded)"
        " or test_changes_between_the_batches",
        write_defaults(tmp_path / "conf"),
    )


@pytest.mark.slow
def test_portable_tests_on_connect() -> None:
    # What executors do when a task fails is no other on a server for Connect, and takes long.
    run_portable_tests("connect", "not test_attempts")


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


def test_another_python_of_a_local_connect_server_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    from boxmatch.spark.session import _warn_of_other_python, require_spark

    other = tmp_path / "python3"
    other.write_text("")
    other.chmod(0o755)
    monkeypatch.setenv("SPARK_LOCAL_REMOTE", "1")
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    _warn_of_other_python.cache_clear()
    require_spark()
    require_spark()
    (said,) = caplog.messages
    assert said.startswith(f"workers of this Spark Connect server run {other} (PYSPARK_PYTHON is n")
    caplog.clear()
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    _warn_of_other_python.cache_clear()
    require_spark()
    assert caplog.messages == []
