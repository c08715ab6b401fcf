"""Settings with which Spark is quick on tiny tables."""

from __future__ import annotations

import os
from pathlib import Path

SETTINGS = {
    # Generating code for a few rows takes longer than they do.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.daemon.module": "warm_daemon",
    "spark.ui.enabled": "false",
}


def variables() -> dict[str, str]:
    """What a process that starts a Spark with these settings needs in its environment."""
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def write_defaults(folder: Path) -> dict[str, str]:
    """Make the settings the defaults of processes with the variables that are returned."""
    folder.mkdir(parents=True)
    lines = [f"{name} {value}\n" for name, value in SETTINGS.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
    return {**variables(), "SPARK_CONF_DIR": str(folder)}
