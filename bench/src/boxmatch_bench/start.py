"""How long a new process takes until its first match, with and without compiled kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Any

_SCRIPT = """
import time
began = time.perf_counter()
import boxmatch
imported = time.perf_counter()
matcher = boxmatch.Matcher(boxmatch.Schema({"symbol": "string", "price": "float"}))
matcher.subscribe("first", "symbol = 'IBM' AND price BETWEEN 20 AND 30")
found = matcher.match({"symbol": "IBM", "price": 24.5})
matched = time.perf_counter()
if found != ["first"]:
    raise SystemExit(f"wrong answer: {found}")
print(imported - began, matched - imported)
"""


def start_seconds(*, cold: bool = False) -> dict[str, Any]:
    """Seconds to import and from there to the first match, in a process of its own.

    `cold` compiles every kernel that it needs, in a cache folder that is thrown away; otherwise
    a first process fills the usual cache and a second one is measured.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ)
        if cold:
            environment["NUMBA_CACHE_DIR"] = folder
        else:
            _run(environment)
        imported, matched = _run(environment)
    return {"import_seconds": imported, "first_match_seconds": matched}


def _run(environment: dict[str, str]) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    imported, matched = done.stdout.split()
    return float(imported), float(matched)
