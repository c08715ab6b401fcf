"""The figures of a run, from what its stages noted down."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final

from boxmatch import __version__
from boxmatch.model.schema import Schema
from boxmatch.spark.pipeline.stages import StageRecord

Summary = dict[str, Any]

_PACKAGES: Final = ("pyspark", "pyarrow", "numpy", "numba", "sqlglot")

_SHORTEST: Final = 0.01


def summarise(
    done: Mapping[str, StageRecord],
    *,
    config: Mapping[str, Any],
    schema: Schema,
    spark_version: str,
) -> Summary:
    """All figures of a run, from what its stages noted down."""
    clean, index, match = done["clean"], done["index"], done["match"]
    found = done["statistics"].details
    measured = found["selectivities"]
    return {
        "events": {
            "files": done["read"].details["event_files"],
            "read": clean.details["read"],
            "good": clean.rows,
            "quarantined": clean.details["quarantined"],
            "derived": done["derive"].details["attributes"],
        },
        "subscriptions": {
            "usable": index.rows,
            "rejected": index.details["rejected"],
            "rejected_shown": index.details["rejected_shown"],
            "never": measured["never"],
            "index": {name: index.details[name] for name in ("version", "bytes", "shards")},
        },
        "matches": {
            "pairs": match.rows,
            "skipping": match.details.get("skipping"),
            "by_date": done["notify"].details["by_date"],
            "per_event": found["per_event"],
            "per_subscription": found["per_subscription"],
            "top": found["top"],
            "dead": found["dead"],
            "too_broad": {**found["too_broad"], "share": config["statistics"]["too_broad"]},
        },
        "attributes": measured["attributes"],
        "skipping": {
            "frequency": [attribute["predicates"] for attribute in measured["attributes"]],
            "boxes": measured["boxes"],
            "selectivity": measured["selectivity"],
            "sample": measured["sample"],
        },
        "latency": found["latency"],
        "stages": [_timing(record) for record in done.values()],
        "provenance": {
            "boxmatch": __version__,
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "processed": match.details["processed"],
            "plan": match.details["plan"],
            "python": platform.python_version(),
            "spark": spark_version,
            "packages": {name: _version(name) for name in _PACKAGES},
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            "schema": json.loads(schema.to_json()),
            "config": config,
        },
    }


def as_json(summary: Summary) -> str:
    """The report as JSON, for programs."""
    return json.dumps(summary, indent=2, ensure_ascii=False) + "\n"


def _timing(record: StageRecord) -> Summary:
    # A stage that has nothing to do, such as derive without attributes, has no rate.
    worked = record.seconds >= _SHORTEST
    rate = record.rows / record.seconds if record.rows and worked else None
    return {
        "stage": record.name,
        "seconds": round(record.seconds, 3),
        "rows": record.rows,
        "rows_per_second": rate and round(rate),
        "resumed": record.resumed,
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
