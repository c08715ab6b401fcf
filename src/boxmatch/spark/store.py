"""Where an index lives: a folder that driver and workers see, on this machine or far away.

Whatever Arrow has a filesystem for will do. Files that are mapped into memory are copied to this
machine first, once, if they are not there already.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from boxmatch.errors import SparkError
from boxmatch.storage.folders import alone, creating

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import SparkSession

_UNUSED_SECONDS = 24 * 3600
"""How long a copy on this machine outlives its last use."""

_PUBLISHES_ON_CLOSE = ("s3", "gcs", "abfs")
"""Filesystems on which a file appears whole or not at all, and a folder cannot be renamed."""


@dataclass(frozen=True)
class Folder:
    """A folder by its address: a path of this machine, or a URI such as `s3://bucket/index`."""

    address: str

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Folder:
        """The folder at a path, which is made absolute: workers have another current folder."""
        text = os.fspath(path)
        if not text:
            raise SparkError("the path of a folder is empty")
        scheme, _, rest = text.partition(":")
        if scheme == "file":
            return cls(os.path.abspath(unquote(urlsplit(text).path)))
        if scheme == "dbfs":
            return cls("/dbfs/" + rest.lstrip("/"))
        if scheme in ("s3a", "s3n"):
            return cls(f"s3:{rest}")
        if "://" in text:
            return cls(text.rstrip("/"))
        return cls(os.path.abspath(os.path.expanduser(text)))

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str) -> Folder:
        return Folder(f"{self.address}/{name}")

    @property
    def local(self) -> Path | None:
        """The path, if the folder is on this machine."""
        return None if "://" in self.address else Path(self.address)

    @cached_property
    def _opened(self) -> tuple[FileSystem, str]:
        from pyarrow.fs import LocalFileSystem

        if self.local is not None:
            return LocalFileSystem(), self.address
        return _far(self.address)

    def prepare(self) -> None:
        """Make the folder, and see that it can be written."""
        probe = f".boxmatch-{uuid.uuid4().hex}"
        filesystem, path = self._opened
        try:
            filesystem.create_dir(path, recursive=True)
            with filesystem.open_output_stream(f"{path}/{probe}"):
                pass
            filesystem.delete_file(f"{path}/{probe}")
        except OSError as error:
            raise SparkError(f"cannot write to {self.address}: {error}") from None

    def names(self) -> list[str]:
        """What is in the folder; nothing if there is no such folder."""
        from pyarrow.fs import FileSelector

        filesystem, path = self._opened
        found = filesystem.get_file_info(FileSelector(path, allow_not_found=True))
        return sorted(str(info.base_name) for info in found)

    def files(self) -> list[tuple[str, int, int]]:
        """All files below the folder: path, bytes and time of change in nanoseconds."""
        from pyarrow.fs import FileSelector, FileType

        filesystem, path = self._opened
        own = filesystem.get_file_info(path)
        if own.type == FileType.File:
            found = [own]
        else:
            selector = FileSelector(path, recursive=True, allow_not_found=True)
            found = filesystem.get_file_info(selector)
        return sorted(
            (info.path, info.size, info.mtime_ns or 0)
            for info in found
            if info.type == FileType.File
        )

    def read(self, name: str) -> bytes | None:
        """A small file; None if there is none of this name."""
        filesystem, path = self._opened
        try:
            with filesystem.open_input_stream(f"{path}/{name}") as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def create(self, name: str, content: bytes) -> bool:
        """Write a small file, whole and at once; False if there is one of this name already."""
        filesystem, path = self._opened
        if self.local is not None:
            self.local.mkdir(parents=True, exist_ok=True)
            try:
                with creating(self.local / name) as draft:
                    draft.write_bytes(content)
            except FileExistsError:
                return False
            return True
        from pyarrow.fs import FileType

        if filesystem.get_file_info(f"{path}/{name}").type != FileType.NotFound:
            return False
        if filesystem.type_name in _PUBLISHES_ON_CLOSE:
            with filesystem.open_output_stream(f"{path}/{name}") as file:
                file.write(content)
            return True
        hidden = f"{path}/.{name}-{uuid.uuid4().hex}"
        with filesystem.open_output_stream(hidden) as file:
            file.write(content)
        filesystem.move(hidden, f"{path}/{name}")
        return True

    def replace(self, name: str, content: bytes) -> None:
        """Write a small file in the place of any of this name; a crash may lose it."""
        filesystem, path = self._opened
        filesystem.create_dir(path, recursive=True)
        if filesystem.type_name in _PUBLISHES_ON_CLOSE:
            with filesystem.open_output_stream(f"{path}/{name}") as file:
                file.write(content)
            return
        hidden = f"{path}/.{name}-{uuid.uuid4().hex}"
        with filesystem.open_output_stream(hidden) as file:
            file.write(content)
        filesystem.move(hidden, f"{path}/{name}")

    def remove(self, name: str) -> None:
        """Delete a file or a folder, if it is there."""
        from pyarrow.fs import FileType

        filesystem, path = self._opened
        with suppress(FileNotFoundError):
            if filesystem.get_file_info(f"{path}/{name}").type == FileType.Directory:
                filesystem.delete_dir(f"{path}/{name}")
            else:
                filesystem.delete_file(f"{path}/{name}")

    def move_in(self, source: Folder, name: str) -> None:
        """Rename the folder `source` to `name` here, in the place of what has this name."""
        filesystem, path = self._opened
        self.remove(name)
        filesystem.move(source._opened[1], f"{path}/{name}")

    @property
    def renames(self) -> bool:
        """Can a folder be renamed in one step?"""
        return self._opened[0].type_name not in _PUBLISHES_ON_CLOSE

    @contextmanager
    def open_for_writing(self) -> Iterator[Path]:
        """A folder of this machine to write into; its content ends up here."""
        if self.local is not None:
            self.local.mkdir(parents=True)
            yield self.local
            return
        from pyarrow.fs import LocalFileSystem, copy_files

        filesystem, path = self._opened
        with tempfile.TemporaryDirectory(prefix="boxmatch-") as scratch:
            yield Path(scratch)
            filesystem.create_dir(path, recursive=True)
            copy_files(
                scratch,
                path,
                source_filesystem=LocalFileSystem(),
                destination_filesystem=filesystem,
            )

    def fetch(self) -> Path:
        """The folder on this machine, copied if need be. What is in it must never change."""
        if self.local is not None:
            return self.local
        shelf = _shelf()
        copy = shelf / hashlib.sha256(self.address.encode()).hexdigest()[:32]
        with alone(shelf):
            if not copy.exists():
                from pyarrow.fs import LocalFileSystem, copy_files

                filesystem, path = self._opened
                draft = shelf / f"draft-{uuid.uuid4().hex}"
                draft.mkdir()
                copy_files(
                    path,
                    str(draft),
                    source_filesystem=filesystem,
                    destination_filesystem=LocalFileSystem(),
                )
                draft.rename(copy)
            os.utime(copy)
            _clear(shelf)
        return copy


def require_one_machine(spark: SparkSession, what: str) -> None:
    """Raise an error unless driver and workers surely see the same folders without a path."""
    if not str(spark.conf.get("spark.master", "")).startswith("local"):
        raise SparkError(f"{what} needs a folder that driver and workers see: say which with path=")


def scratch_folder(spark: SparkSession, what: str) -> str:
    """A folder that driver and workers see, where that is sure; gone at the end of the process."""
    require_one_machine(spark, what)
    folder = tempfile.mkdtemp(prefix="boxmatch-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _far(address: str) -> tuple[FileSystem, str]:
    from pyarrow.fs import FileSystem

    try:
        return FileSystem.from_uri(address)
    except (ValueError, OSError, NotImplementedError) as error:
        raise SparkError(f"cannot open {address}: {error}") from None


def _shelf() -> Path:
    """Where this machine keeps copies of folders from elsewhere."""
    chosen = os.environ.get("BOXMATCH_CACHE_DIR")
    user = os.getuid() if hasattr(os, "getuid") else "user"
    place = Path(chosen) if chosen else Path(tempfile.gettempdir(), f"boxmatch-{user}")
    shelf = place / "segments"
    shelf.mkdir(parents=True, exist_ok=True)
    return shelf


def _clear(shelf: Path) -> None:
    oldest = time.time() - _UNUSED_SECONDS
    for copy in shelf.iterdir():
        if copy.is_dir() and copy.stat().st_mtime < oldest:
            # Who has mapped its files keeps them.
            shutil.rmtree(copy, ignore_errors=True)
