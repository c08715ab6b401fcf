"""The index of a feed in files beside the data, so that a start need not build it again.

The database stays the truth. For every subscription that the index has, the files have the checksum
of its row; a start compares these with the rows that there are, and changes the index accordingly.
Files that are missing, damaged, of another version or half written are not used.
"""

from __future__ import annotations

import json
import threading
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import structlog
import xxhash

from boxmatch import __version__
from boxmatch.arrays import Int64Array
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.engine.matcher import Matcher
from boxmatch.engine.saved_files import Saved, SavedFolder
from boxmatch.errors import BoxmatchError, StorageError
from boxmatch.storage.folders import replacing

log = structlog.get_logger(__name__)

FOLDER: Final = "indexes"
"""In the data directory; in it is a folder for each feed, by its number."""
_FORMAT: Final = 1
_MATCHERS: Final = ("matcher", "exact")
_ABOUT: Final = "index.json"
_CHECKSUMS: Final = "checksums.npy"


class Capture(NamedTuple):
    """An index at one moment."""

    matcher: Saved
    exact: Saved
    checksums: Int64Array
    """Of the row of each subscription by slot; 0 where a slot is free."""


class LoadedIndex:
    """An index from files."""

    def __init__(self, matcher: Matcher, exact: Matcher, checksums: Int64Array) -> None:
        self.matcher, self.exact = matcher, exact
        self.checksums = checksums
        self._order = np.argsort(checksums)
        self._sorted = checksums[self._order]

    def find(self, checksums: Int64Array) -> Int64Array:
        """The slots of rows with these checksums; -1 where there is none."""
        if not len(self._sorted):
            return np.full(len(checksums), -1)
        places = np.minimum(np.searchsorted(self._sorted, checksums), len(self._sorted) - 1)
        return np.where(self._sorted[places] == checksums, self._order[places], -1)


class IndexFiles:
    """The files of one feed. What they have already of an index is not written again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._matchers = [SavedFolder(folder / name) for name in _MATCHERS]
        self._saving = threading.Lock()

    def load(self, spec: FeedSpec) -> LoadedIndex | None:
        """The index that is in the files; None, which the log says, if there is none of use."""
        if not (self._folder / _ABOUT).exists():
            return None
        try:
            return self._load(spec)
        except (BoxmatchError, OSError, KeyError, TypeError, ValueError) as error:
            log.warning("the files of an index are not used", feed=spec.name, reason=str(error))
            return None

    def save(self, capture: Capture) -> None:
        """Write an index; `StorageError` if that fails, and then the files are of no use."""
        try:
            with self._saving:
                self._save(capture)
        except OSError as error:
            raise StorageError(f"cannot save to {self._folder}: {error}") from error

    def _save(self, capture: Capture) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for folder, saved in zip(self._matchers, capture[:2], strict=True):
            folder.save(saved)
        written = BytesIO()
        np.save(written, capture.checksums)
        with replacing(self._folder / _CHECKSUMS) as draft:
            draft.write_bytes(written.getvalue())
        with replacing(self._folder / _ABOUT) as draft:
            draft.write_text(json.dumps(self._describe()), encoding="utf-8")

    def _load(self, spec: FeedSpec) -> LoadedIndex:
        about = json.loads((self._folder / _ABOUT).read_text(encoding="utf-8"))
        for name, value in self._describe().items():
            if about.get(name) != value:
                raise StorageError(f"{self._folder} has another {name} than {_ABOUT} says")
        saved = [folder.load() for folder in self._matchers]
        if any(one.settings.schema != spec.schema for one in saved):
            raise StorageError(f"{self._folder} is of another schema")
        if saved[0].settings.index != spec.index:
            raise StorageError(f"{self._folder} is of another kind of index")
        checksums = np.load(self._folder / _CHECKSUMS, allow_pickle=False).astype(np.int64)
        used = np.sort(checksums[checksums != 0])
        if checksums.ndim != 1 or bool((used[1:] == used[:-1]).any()):
            raise StorageError(f"{self._folder / _CHECKSUMS} has a checksum twice")
        matcher, exact = map(Matcher.of_saved, saved)
        return LoadedIndex(matcher, exact, checksums)

    def _describe(self) -> dict[str, Any]:
        """What must be as it was when the files were written."""
        files = [f"{name}/manifest.json" for name in _MATCHERS] + [_CHECKSUMS]
        return {
            "format": _FORMAT,
            "version": __version__,
            **{name: _digest(self._folder / name) for name in files},
        }


def _digest(path: Path) -> str:
    return xxhash.xxh3_128_hexdigest(path.read_bytes())
