"""New processes, with an empty and with a full cache of kernels, until the index is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from boxmatch_bench.answers import FailedError
from boxmatch_bench.tables import Table, number

FORMS: Final = ("texts", "dicts", "columns", "arrays")
CACHES: Final = ("cold", "warm")

_FIGURES = {
    "import_seconds": "import",
    "subscribe_seconds": "subscribe",
    "batch_seconds": "first batch",
    "match_seconds": "first match",
    "first_answer_seconds": "until then, s",
    "index_seconds": "index, s",
    "longest_seconds": "longest call",
    "compiled": "compiled",
    "cached": "cached",
}

# Nothing may be imported before the clock runs. The index is there when no segment is scanned.
_SCRIPT = """
import json, sys, time
began = time.perf_counter()
import boxmatch
boxmatch.Matcher
imported = time.perf_counter()
import numpy as np
form, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random = np.random.default_rng(seed)
names = [f"a{n}" for n in range(10)]
low = random.integers(0, 900, (count, 10))
high = low + random.integers(50, 400, (count, 10))
asked = random.random((count, 10)).argsort() < 3
low, high = np.where(asked, low, -1), np.where(asked, high, 2000)
points = random.integers(0, 1000, (300, 10))
events = [dict(zip(names, point)) for point in points.tolist()]
ids = list(range(count))

def bounds(row):
    return [(names[a], int(low[row, a]), int(high[row, a])) for a in np.flatnonzero(asked[row])]

if form == "texts":
    texts = [" AND ".join(f"{a} BETWEEN {b} AND {c}" for a, b, c in bounds(id)) for id in ids]
    given = [{"id": id, "filter": text} for id, text in zip(ids, texts)]
elif form == "dicts":
    given = [{"id": id, "filter": {a: (b, c) for a, b, c in bounds(id)}} for id in ids]
elif form == "columns":
    import pyarrow as pa
    given = {"id": ids}
    for a, name in enumerate(names):
        given[name + "_low"], given[name + "_high"] = low[:, a], high[:, a]
    given = pa.table(given)
calls = []

def timed(call, *arguments):
    before = time.perf_counter()
    answer = call(*arguments)
    calls.append(time.perf_counter() - before)
    return answer

prepared = time.perf_counter()
matcher = boxmatch.Matcher({name: "int" for name in names})
if form == "arrays":
    timed(matcher.subscribe_boxes, ids, low, high)
else:
    timed(matcher.subscribe_many, given)
batch = timed(matcher.match_batch, events)
one = timed(matcher.match, events[0])
answered = time.perf_counter()
subscribe_seconds, batch_seconds, match_seconds = calls

inside = [np.flatnonzero(((low <= p) & (p <= high)).all(1)).tolist() for p in points]
right = sorted((e, id) for e, found in enumerate(inside) for id in found)

def check(batch, one):
    found = sorted(zip(batch.event.tolist(), batch.subscription.tolist()))
    if found != right or sorted(one) != inside[0]:
        raise SystemExit("wrong answer")

check(batch, one)
from boxmatch.kernels.background import ALL, background
from boxmatch.kernels.jit import notice
is_scanned = lambda: any(getattr(view.store, "interim", False) for view in matcher.snapshot.views)
index_seconds = time.perf_counter() - began - (prepared - imported) if is_scanned() else None
while is_scanned() or not background.has(ALL):
    check(timed(matcher.match_batch, events), timed(matcher.match, events[0]))
    if is_scanned():
        index_seconds = time.perf_counter() - began - (prepared - imported)
    time.sleep(0.02)
print(json.dumps({
    "import_seconds": imported - began,
    "subscribe_seconds": subscribe_seconds,
    "batch_seconds": batch_seconds,
    "match_seconds": match_seconds,
    "first_answer_seconds": answered - began - (prepared - imported),
    "index_seconds": index_seconds,
    "longest_seconds": max(calls),
    "compiled": notice.compiled,
}))
"""


def measure_start(form: str, *, subscriptions: int, seed: int) -> Iterator[dict[str, Any]]:
    """A row with an empty cache, and one with the cache that the first process has filled.

    Answers are compared with brute force as long as the kernels are compiled. The time to make the
    subscriptions that are then handed over is left out.
    """
    setting = {"preset": "start", "form": form, "subscriptions": subscriptions, "seed": seed}
    with tempfile.TemporaryDirectory() as folder:
        for cache in CACHES:
            figures = _start([form, str(subscriptions), str(seed)], folder)
            kernels = sum(1 for _ in Path(folder).rglob("*.nbc"))
            yield setting | {"cache": cache, **figures, "cached": kernels}


def _start(arguments: list[str], folder: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *arguments],
        env=os.environ | {"NUMBA_CACHE_DIR": folder, "BOXMATCH_BACKGROUND_COMPILATION": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode:
        raise FailedError(f"a new process failed: {done.stderr.strip()[-500:]}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def start_table(rows: list[dict[str, Any]]) -> Table:
    """Seconds by form and cache."""
    shown = [
        (row["form"], row["cache"], *("" if (x := row[f]) is None else number(x) for f in _FIGURES))
        for row in rows
    ]
    return Table("a new process", ("form", "cache", *_FIGURES.values()), tuple(shown), labels=2)
