"""A guide in `docs`: its blocks are run in order, and print what the guide says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

_BLOCK = re.compile(r"(^<!-- slow -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
_MARK = "=== block ==="


class Guide:
    def __init__(self, name: str) -> None:
        found = _BLOCK.findall((ROOT / "docs" / name).read_text(encoding="utf-8"))
        self._blocks = [(kind, text) for _, kind, text in found]
        self.slow = {text for slow, _, text in found if slow}

    def blocks(self, language: str) -> Iterator[tuple[str, str]]:
        """Blocks of a language, each with the text that it prints."""
        following = [*self._blocks[1:], ("", "")]
        for (kind, text), (next_kind, says) in zip(self._blocks, following, strict=True):
            if kind == language:
                yield text, says if next_kind == "text" else ""

    def write_files(self, folder: Path) -> None:
        """Blocks that start with a comment that names a file."""
        for _, text in self._blocks:
            if named := _FILE.match(text):
                path = folder / named[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")

    @property
    def said(self) -> list[tuple[str, list[str]]]:
        """Blocks of Python that are said to print something, each with the lines of it."""
        return [(text, _lines(says)) for text, says in self._steps if says]

    def printed(self, folder: Path) -> list[tuple[str, list[str]]]:
        """What they do print, all of them run in the folder one after the other.

        In a process of its own, so that relative paths mean the same to all that is run.
        """
        self.write_files(folder)
        script = f"print({_MARK!r})\n".join(text for text, _ in self._steps)
        (folder / "guide.py").write_text(script, encoding="utf-8")
        parts = run(["python", "guide.py"], folder).split(_MARK + "\n")
        steps = zip(self._steps, parts, strict=True)
        return [(text, _lines(part)) for (text, says), part in steps if says]

    @property
    def _steps(self) -> list[tuple[str, str]]:
        return [(text, says) for text, says in self.blocks("python") if not _FILE.match(text)]


def run(command: list[str], folder: Path) -> str:
    """What a command prints, with the Python and the package that are being tested."""
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
    return done.stdout


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]
