"""Everything in the Spark guide is run, in order, and prints what the guide says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
GUIDE = (ROOT / "docs" / "spark.md").read_text()
BLOCK = re.compile(r"(^<!-- slow -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(kind, text) for _, kind, text in BLOCK.findall(GUIDE)]
SLOW = {text for slow, _, text in BLOCK.findall(GUIDE) if slow}
FILE = re.compile(r"# ([\w./-]+\.\w+)\n")


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """Blocks of a language, each with the text that it prints."""
    for place, (kind, text) in enumerate(BLOCKS):
        follows = BLOCKS[place + 1] if place + 1 < len(BLOCKS) else ("", "")
        if kind == language:
            yield text, follows[1] if follows[0] == "text" else ""


def write_files(folder: Path) -> None:
    """Blocks that start with a comment that names a file."""
    for _, text in BLOCKS:
        if named := FILE.match(text):
            path = folder / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def squeezed(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


MARK = "=== block ==="


def test_python(tmp_path: Path) -> None:
    """In a process of its own, so that relative paths mean the same to Python and to Spark."""
    write_files(tmp_path)
    wanted = [(text, says) for text, says in blocks("python") if not FILE.match(text)]
    script = f"print({MARK!r})\n".join(text for text, _ in wanted)
    (tmp_path / "guide.py").write_text(script)
    done = run(["python", "guide.py"], tmp_path)
    printed = done.stdout.split(MARK + "\n")
    assert len(printed) == len(wanted)
    for (text, says), out in zip(wanted, printed, strict=True):
        assert not says or squeezed(out) == squeezed(says), text


SHELL = [text for text, _ in blocks("bash")]


@pytest.mark.parametrize(
    "text",
    [pytest.param(text, marks=pytest.mark.slow if text in SLOW else ()) for text in SHELL],
)
def test_shell(text: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    done = run(["bash", "-euo", "pipefail", "-c", text], tmp_path)
    if "job.py" in text:
        assert "True" in done.stdout


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK"))}
    done = subprocess.run(
        command,
        cwd=folder,
        env={
            **inherited,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MASTER": "local-cluster[2,1,1024]",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "BOXMATCH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return done
