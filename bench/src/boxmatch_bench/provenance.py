"""Where a figure comes from: commit, versions, machine, date."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("numba", "llvmlite", "numpy", "pyarrow", "sqlglot", "duckdb")


def provenance() -> dict[str, Any]:
    """What every result carries beside its parameters."""
    from boxmatch import __version__

    return {
        "version": __version__,
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def shown_commit(origin: Mapping[str, Any]) -> str:
    """The commit of a `provenance` for people: its beginning, and the `+` if it has one."""
    commit: str = origin["commit"] or "unknown"
    return commit[:12] + "+" * commit.endswith("+")


def resident_bytes() -> int | None:
    """Memory of this process that is in RAM; None where the system does not tell simply."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def peak_bytes() -> Iterator[list[int]]:
    """Append the most memory that this process had in RAM meanwhile, where the system tells."""
    peak: list[int] = []
    process = Path("/proc/self")
    try:
        (process / "clear_refs").write_text("5")  # forget the peak until now
    except OSError:
        yield peak
        return
    yield peak
    known = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    peak.append(1024 * int(known["VmHWM"].split()[0]))


def _commit() -> str | None:
    """The commit of the checkout that this file is part of, `+` if tracked files changed since.

    None when installed from elsewhere: an installed copy may well lie inside another project's
    repository, so the file itself must be tracked.
    """
    here = Path(__file__).resolve()
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    commit = _git(here.parent, "rev-parse", "HEAD")
    changed = _git(here.parent, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}+" if commit and changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
