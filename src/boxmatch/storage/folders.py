"""Folders that one process at a time uses, and files that are there whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]  # not a Unix system
try:
    import pwd
except ImportError:
    pwd = None  # type: ignore[assignment]

from boxmatch.errors import StorageError

LOCK = "lock"


def take_lock(folder: Path) -> int:
    """Hold the directory's lock, where the system has such locks; it dies with the process.

    An OSError that is no StorageError is the system's, as it came.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if isinstance(error, BlockingIOError):
                reason = "is open already, here or in another process"
                raise StorageError(f"{folder} {reason}") from None
            raise
    return handle


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait for others who are alone in the folder, where the system has such locks.

    Leaves nothing behind, since what is locked is the folder itself.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_problem(file: Path) -> str | None:
    """Why this process cannot write a file and make others beside it, where the system has users;
    None if it seems to can. SQLite says only that it is unable to open the file.
    """
    if pwd is None:
        return None
    folder = next(one for one in file.absolute().parents if one.exists())
    for path in (folder, *sorted(folder.glob(f"{file.name}*"))):
        if not os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            if os.statvfs(path).f_flag & os.ST_RDONLY:
                return f"{path} cannot be written, its file system is read-only"
            return f"{path} cannot be written by {_user(os.geteuid())}, who runs this"
    return None


def _user(number: int) -> str:
    try:
        return f"user {pwd.getpwuid(number).pw_name!r}"
    except KeyError:  # containers have such users
        return f"user {number}"


def replacing(path: Path) -> AbstractContextManager[Path]:
    """A name to write a file under, which then takes the place of `path` in one step, durably.

    If the block raises, `path` stays what it was. A process that dies leaves a hidden file.
    """
    return _draft(path, os.replace)


def creating(path: Path) -> AbstractContextManager[Path]:
    """As `replacing`, but `FileExistsError` if `path` is there when the block ends."""
    return _draft(path, os.link)  # unlike a rename, this fails if somebody else was first


@contextmanager
def _draft(path: Path, put: Callable[[Path, Path], None]) -> Iterator[Path]:
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield draft
        sync_file(draft)
        put(draft, path)
        sync_folder(path.absolute().parent)
    finally:
        draft.unlink(missing_ok=True)


def sync_file(path: Path) -> None:
    """Make sure that what is in a file is on the disk."""
    _sync(path, os.O_RDWR)


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder are on the disk."""
    _sync(folder, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_names(file: Path) -> None:
    """Make sure that the name of a file is on the disk, and that of its folder."""
    folder = file.absolute().parent
    sync_folder(folder)
    sync_folder(folder.parent)
