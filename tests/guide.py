"""A guide in `docs`: its blocks are run in order, and print what the guide says."""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent

AT_THE_ROOT = ("README.md", "CONTRIBUTING.md")

_BLOCK = re.compile(r"(?:^<!-- ([^\n]+) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
_MARK = "=== block ==="


class Block(NamedTuple):
    kind: str
    text: str
    mark: str
    """What the comment right above it says: `slow`, or `not run: ` and why."""

    @property
    def file(self) -> str | None:
        """The name in a comment in its first line: then it is a file."""
        named = _FILE.match(self.text)
        return None if named is None else named[1]

    @property
    def not_run(self) -> str | None:
        """Why it is left out; None if it is not."""
        found = self.mark.partition("not run: ")
        return found[2] or None


class Guide:
    """A page, or the part of it under one heading; "" is what comes before all headings."""

    def __init__(self, name: str, *, section: str | None = None) -> None:
        path = ROOT / name if name in AT_THE_ROOT else ROOT / "docs" / name
        page = self.page = path.read_text(encoding="utf-8")
        if section:
            page = page.split(f"\n## {section}\n")[1]
        if section is not None:
            page = page.partition("\n## ")[0]
        self.all = [Block(kind, text, mark) for mark, kind, text in _BLOCK.findall(page)]
        self.slow = {block.text for block in self.all if block.mark == "slow"}

    def blocks(self, language: str) -> Iterator[tuple[str, str]]:
        """Blocks of a language, each with the text that it prints."""
        for block, says in self.with_output():
            if block.kind == language:
                yield block.text, says

    def with_output(self) -> Iterator[tuple[Block, str]]:
        """Blocks, each with the text that it prints."""
        following = [*self.all[1:], Block("", "", "")]
        for block, after in zip(self.all, following, strict=True):
            if block.kind != "text":
                yield block, after.text if after.kind == "text" else ""

    def write_files(self, folder: Path, change: Callable[[str], str] = str) -> None:
        """Blocks that start with a comment that names a file."""
        for block in self.all:
            if block.file is not None and block.not_run is None:
                path = folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(change(block.text), encoding="utf-8")

    @property
    def said(self) -> list[tuple[str, list[str]]]:
        """Blocks of Python that are said to print something, each with the lines of it."""
        return [(text, lines(says)) for text, says in self._steps if says]

    def printed(
        self, folder: Path, variables: Mapping[str, str] | None = None
    ) -> list[tuple[str, list[str]]]:
        """What they do print, all of them run in the folder one after the other.

        In a process of its own, so that relative paths mean the same to all that is run, with
        further variables in its environment.
        """
        self.write_files(folder)
        script = f"print({_MARK!r})\n".join(text for text, _ in self._steps)
        (folder / "guide.py").write_text(script, encoding="utf-8")
        parts = run(["python", "guide.py"], folder, variables).split(_MARK + "\n")
        steps = zip(self._steps, parts, strict=True)
        return [(text, lines(part)) for (text, says), part in steps if says]

    @property
    def _steps(self) -> list[tuple[str, str]]:
        return [
            (block.text, says)
            for block, says in self.with_output()
            if block.kind == "python" and block.file is None
        ]


def check(printed: Sequence[tuple[str, list[str]]], said: Sequence[tuple[str, list[str]]]) -> None:
    """Blocks print what is said; of one that does not, only the lines that differ are shown."""
    for (text, prints), (_, says) in zip(printed, said, strict=True):
        different = difflib.unified_diff(says, prints, "said", "printed", n=0, lineterm="")
        assert prints == says, "\n".join([*different, "", text])


def run(command: list[str], folder: Path, variables: Mapping[str, str] | None = None) -> str:
    """What a command prints, with the Python and the package that are being tested."""
    env = {**environment(), **(variables or {})}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return done.stdout


def environment() -> dict[str, str]:
    """The variables of this process, with the Python and the package that are being tested."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK"))}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "MASTER": "local-cluster[2,1,1024]",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "BOXMATCH": str(ROOT),
    }


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]
