from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import boxmatch as bm
from boxmatch.workloads import MarketWorkload
from guide import Guide, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.mark.parametrize("kind", ["batch", "streaming"])
def test_jobs(
    kind: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the session that tests share; otherwise as `examples/README.md` says."""
    _, says = next(Guide("../examples/README.md", section=f"A {kind} job on Spark").with_output())
    example = runpy.run_path(str(EXAMPLES / f"spark_{kind}.py"))
    if kind == "batch":
        example["write_files"](tmp_path)
    example["run"](spark, str(tmp_path))
    assert capsys.readouterr().out.strip() == says.strip()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["batch", "streaming"])
def test_jobs_as_commands(kind: str, tmp_path: Path) -> None:
    guide = Guide("../examples/README.md", section=f"A {kind} job on Spark")
    command, says = next(guide.blocks("sh"))
    script = EXAMPLES.parent / command.split()[1]
    assert run(["python", str(script)], tmp_path).strip() == says.strip()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_declarative_pipeline(tmp_path: Path) -> None:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLES / "declarative_pipeline", folder)
    storage = (folder / "spark-pipeline.yml").read_text()
    (folder / "spark-pipeline.yml").write_text(
        storage.replace("/tmp/boxmatch-declarative-pipeline", str(tmp_path / "storage"))
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK"))}
    environment |= {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    for command in (["python", "prepare.py"], ["spark-pipelines", "run"]):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]

    market = MarketWorkload(symbols=200)
    matcher = bm.Matcher(market.schema, index="scan")
    matcher.subscribe_many(market.alert_texts(0, 2_000))
    result = matcher.match_batch(market.ticks(0, 5_000))
    expected = sorted(zip(result.event.tolist(), result.subscription.tolist(), strict=True))
    found = pq.read_table(folder / "spark-warehouse" / "matches").to_pylist()
    assert sorted((row["event_id"], row["subscription_id"]) for row in found) == expected
    assert pq.read_table(folder / "spark-warehouse" / "busiest").num_rows == 10
