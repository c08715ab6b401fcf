"""Disks that are full or cannot be written, and files that are not as they were written."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own in a folder, for the time of the block. Needs root."""
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "none", folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nobody can write into a folder, for the time of the block, not even root."""
    if os.geteuid() != 0:
        folder.chmod(0o500)
        try:
            yield
        finally:
            folder.chmod(0o700)
        return
    _mount("--bind", folder, folder)
    try:
        _mount("-o", "remount,bind,ro", folder)
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


def _mount(*arguments: object) -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount a file system here: {done.stderr.strip()}")


def fill(folder: Path) -> Path:
    """Take all the room of a file system. The file to delete for it to be free again."""
    file = folder / "filling"
    with file.open("wb", buffering=0) as filling:
        for size in (1 << 20, 4096, 1):
            try:
                while filling.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return file


def limit_files(pid: int, nbytes: int) -> None:
    """No file of a process may become longer; -1: any may. To it, it is as if the disk was full."""
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (nbytes, most))


def serve_in_vain(data: Path) -> str:
    """Start a broker that cannot start. What it says."""
    command = [sys.executable, "-m", "boxmatch", "serve", "--data", str(data), "--port", "0"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    return done.stderr


def overwrite(file: Path, where: int, what: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(where)
        opened.write(what)


def flip(file: Path, text: bytes) -> None:
    """Change some bytes in the only place where a text is."""
    content = file.read_bytes()
    assert content.count(text) == 1, content.count(text)
    where = content.index(text) + len(text) // 2
    overwrite(file, where, bytes(byte ^ 0x15 for byte in content[where : where + 3]))
