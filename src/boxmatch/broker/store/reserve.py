"""Room on the disk that is kept for when there is no other: deleting needs some too."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

RESERVE = "reserve"
_MOST_BYTES = 16 << 20
"""More than one transaction of tidying takes in the write-ahead log."""
_SHARE = 16
"""Of a small disk it is not more than this part."""


class Reserve:
    """A file that holds room without any use, until that is released. For one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / RESERVE
        self.nbytes = min(_MOST_BYTES, shutil.disk_usage(folder).total // _SHARE)
        self.is_whole = False

    def release(self) -> None:
        """Others may have the room."""
        self.is_whole = False
        with suppress(OSError):  # there is none
            os.truncate(self._file, 0)

    def restore(self) -> bool:
        """Take the room if there is enough, and else none of it. Whether it is held."""
        if not self.is_whole:
            try:
                handle = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600)
                try:
                    _allocate(handle, self.nbytes)
                finally:
                    os.close(handle)
                self.is_whole = True
            except OSError as error:
                self.release()
                # Where a file cannot hold room there is none in reserve, but all goes on.
                self.is_whole = error.errno not in (errno.ENOSPC, errno.EDQUOT)
        return self.is_whole


def _allocate(handle: int, nbytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(handle, 0, nbytes)
            return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
    block = bytes(1 << 16)
    for start in range(0, nbytes, len(block)):
        os.pwrite(handle, block[: nbytes - start], start)
    os.fsync(handle)
