"""A guide whose blocks are one session at a terminal, with a server in the background.

Blocks of bash are run as they stand, by one bash; blocks of Python are programs in between. What
a block prints goes to a file of its own, and a program that it leaves in the background goes on
writing there, so what the guide shows below a block is all that came of it. In what it shows, `…`
stands for what is different every time, within a line.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from guide import Block, Guide, environment, lines

_SHELL: Final = ("bash", "sh")
_RUN: Final = (*_SHELL, "python")
_BEGIN: Final = """\
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
"""


class Step(NamedTuple):
    """A block, and lines that it prints or is said to print."""

    text: str
    lines: list[str]


class Session:
    """The blocks of a guide that are run. Free ports take the place of its `ports`."""

    def __init__(self, guide: Guide, *, ports: Sequence[int] = (8080,)) -> None:
        self._guide = guide
        self._ports = ports
        self._blocks = [
            (block, says)
            for block, says in guide.with_output()
            if block.kind in _RUN and block.not_run is None
        ]

    @property
    def left_out(self) -> dict[str, str]:
        """Blocks that are not run, and why. None is left out without a reason."""
        others = [block for block, _ in self._guide.with_output() if block.kind not in _RUN]
        silent = [block.text for block in others if block.not_run is None and block.file is None]
        assert not silent, f"neither run nor marked as not run: {silent}"
        return {block.text: block.not_run for block in self._guide.all if block.not_run}

    @property
    def said(self) -> list[Step]:
        """What is said to be printed."""
        return [Step(block.text, lines(says)) for block, says in self._blocks if says]

    def printed(self, folder: Path, timeout: float = 180.0) -> list[Step]:
        """What is printed, by the same blocks, in the words of the guide where it says `…`."""
        outputs = folder.parent / f"{folder.name}.printed"
        outputs.mkdir()
        ports = {str(old): str(new) for old, new in _free_ports(self._ports).items()}
        self._write(folder, outputs, ports)
        with (outputs / "errors").open("wb") as errors:
            shell = subprocess.Popen(
                ["bash", str(outputs / "session.sh")],
                cwd=folder,
                env={
                    **environment(),
                    "BOXMATCH_URL": f"http://127.0.0.1:{ports[str(self._ports[0])]}",
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,  # so that nothing of it outlives the test
            )
            try:
                code = shell.wait(timeout)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(shell)
        if code != 0:
            raise AssertionError(f"{_last(outputs, self._blocks)}\nended with {code}")
        steps = []
        for number, (block, says) in enumerate(self._blocks):
            if says:
                text = (outputs / str(number)).read_text(encoding="utf-8")
                got = lines(_replaced(text, {new: old for old, new in ports.items()}))
                steps.append(Step(block.text, _in_words_of(lines(says), got)))
        return steps

    def _write(self, folder: Path, outputs: Path, ports: Mapping[str, str]) -> None:
        self._guide.write_files(folder, lambda text: _replaced(text, ports))
        script = [_BEGIN]
        for number, (block, _) in enumerate(self._blocks):
            script.append(f"exec >'{outputs / str(number)}'\n")
            text = _replaced(block.text, ports)
            if block.kind in _SHELL:
                script.append(text)
            elif block.file is None:
                program = outputs / f"{number}.py"
                program.write_text(text, encoding="utf-8")
                script.append(f"python '{program}'\n")
        (outputs / "session.sh").write_text("".join(script), encoding="utf-8")


def _replaced(text: str, ports: Mapping[str, str]) -> str:
    for old, new in ports.items():
        text = re.sub(rf"\b{old}\b", new, text)
    return text


def _in_words_of(said: list[str], got: list[str]) -> list[str]:
    """Lines that fit what is said, as it is said; others as they are."""
    patterns = [re.escape(line).replace("…", ".*") for line in said]
    fitting = zip(said, patterns, got, strict=False)
    words = [line if re.fullmatch(pattern, one) else one for line, pattern, one in fitting]
    return words + got[len(words) :]


def _free_ports(wanted: Sequence[int]) -> dict[int, int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in wanted]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return dict(zip(wanted, ports, strict=True))


def _end(shell: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()


def _last(outputs: Path, blocks: Sequence[tuple[Block, str]]) -> str:
    """The block at which it ended, what that printed, and all errors."""
    number = max((int(one.name) for one in outputs.iterdir() if one.name.isdigit()), default=0)
    printed = (outputs / str(number)).read_text(encoding="utf-8", errors="replace")
    errors = (outputs / "errors").read_text(encoding="utf-8", errors="replace")
    return f"in the block\n{blocks[number][0].text}\n{printed[-2000:]}\n{errors[-4000:]}"
