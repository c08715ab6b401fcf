"""A matcher in a directory: a journal that every change is in before it returns, and files that
take over what is in the journal.

Files are written in the background once the journal is long. Changes have numbers; the files say
which is the last that they have, so what is in both does no harm.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from boxmatch.engine.bulk import Bulk, place_filters
from boxmatch.engine.ids import check_id, check_ids
from boxmatch.engine.journal import (
    Change,
    Journal,
    JournalReader,
    pack_filter,
    read_journal,
    unpack_filter,
)
from boxmatch.engine.recording import Recorded
from boxmatch.engine.saved_files import Saved, SavedFolder, Settings
from boxmatch.engine.stores import Stores
from boxmatch.errors import StorageError
from boxmatch.model.axis_table import AxisTable
from boxmatch.model.filters import CompiledFilter
from boxmatch.model.ids import SubscriptionId
from boxmatch.storage.group_commit import Ticket
from boxmatch.storage.sqlite import Sync

_log = logging.getLogger("boxmatch")

_FEWEST: Final = 1_024
_SHARE: Final = 100
"""The journal is long with so many changes, and one in so many of the subscriptions."""

_FEW_LOADED: Final = 1_000
"""More subscriptions than these at once go into files, not into the journal."""

_ONE_BY_ONE: Final = 32
"""So many new subscriptions are added one by one, not as a segment of their own."""

_TRY_AGAIN: Final = 60.0
"""Seconds after which files are tried again that could not be written."""

_LOOK_AGAIN: Final = 0.05
"""Seconds after which a reader looks for changes."""


def apply_changes(stores: Stores, changes: Sequence[Change]) -> None:
    """Bring stores to where they are after some changes, of which the last of each id counts."""
    last = {change.id: change for change in changes}
    gone = [id for id, change in last.items() if change.filter is None]
    if gone:
        stores.remove_many(check_ids(gone)[0], missing_ok=True)
    added = [change for change in last.values() if change.filter is not None]
    compiled = [unpack_filter(change.filter or "") for change in added]
    if len(added) <= _ONE_BY_ONE:
        for change, one in zip(added, compiled, strict=True):
            stores.add(*check_id(change.id), one, change.text)
    else:
        ids, kind = check_ids([change.id for change in added])
        texts = [change.text for change in added]
        stores.add_many(place_filters(ids, kind, compiled, texts))


def describe(stores: Stores, settings: Settings) -> tuple[Saved, Recorded]:
    """What there is to save, and the changes that it has."""
    snapshot, recorded = stores.without_tails()
    saved = Saved(
        settings, stores.kind, snapshot.size, snapshot.axes, snapshot.views, recorded.number
    )
    return saved, recorded


def load_folder(path: Path) -> tuple[Saved, list[Change]]:
    """What the files of a directory have, and the changes that they do not have."""
    folder = SavedFolder(path, journal=True)
    while True:
        saved = folder.load()
        files, changes = read_journal(path, saved.change)
        # Else the files have taken over more from the journal, before this was read.
        if files.number <= saved.change:
            return saved, changes


class OpenedFolder:
    """A matcher's directory that is open, for a matcher that is yet to be made of what it holds.

    To read only if there is no `sync`; else, if no matcher is there, with the one that is made.
    """

    def __init__(self, path: Path, *, sync: Sync | None, make: Callable[[], Saved] | None) -> None:
        self._path = path
        self._files = SavedFolder(path, journal=True)
        self._files.check()
        if not self._files.is_saved and (sync is None or make is None):
            raise StorageError(f"there is no matcher at {path}: say with which schema to make it")
        self._journal = None if sync is None else Journal.open(path, sync)
        try:
            if make is not None and not self._files.is_saved:
                self._files.save(make())
            self.saved = self._files.load()
        except BaseException:
            self.close()
            raise

    def attach(self, stores: Stores) -> Keeper | Follower:
        """What brings changes from the stores, which hold what is saved, to the disk, or from it
        to them.
        """
        number = self.saved.change
        if self._journal is None:
            return Follower(self._path, stores, number)
        _, changes = read_journal(self._path, number)
        apply_changes(stores, changes)
        last = changes[-1].number if changes else number
        files = Recorded(number, number)
        keeper = Keeper(self._files, self._journal, stores, self.saved.settings, files, last)
        stores.recorder = keeper
        return keeper

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()


class _FilesWritten:
    """A change that is on disk once the files are."""

    def __init__(self, keeper: Keeper, number: int) -> None:
        self._keeper = keeper
        self._number = number

    def wait(self) -> None:
        self._keeper.write_files(self._number)


class Keeper:
    """Writes down every change of the stores: their `Recorder`."""

    def __init__(
        self,
        folder: SavedFolder,
        journal: Journal,
        stores: Stores,
        settings: Settings,
        files: Recorded,
        number: int,
    ) -> None:
        self._folder = folder
        self._journal = journal
        self._stores = weakref.ref(stores)
        self._settings = settings
        self._files = files
        """The changes that the files have."""
        self.last = Recorded(number, files.needed)
        self._saving = threading.RLock()  # of `abandon`, which may come at any time
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._try_again = 0.0
        self._closed = False

    @property
    def pending(self) -> int:
        """Changes that only the journal has."""
        return self.last.number - self._files.number

    def check(self) -> None:
        """`StorageError` if nothing can be written any more."""
        self._journal.check()

    def refresh(self) -> None:
        """Its matcher has everything already."""

    # What stores tell, while their writer has its turn.

    def added(
        self, subscription_id: SubscriptionId, compiled: CompiledFilter, text: str | None
    ) -> Ticket:
        return self._write([(subscription_id, pack_filter(compiled), text)])

    def removed(self, ids: Sequence[SubscriptionId]) -> Ticket:
        return self._write([(id, None, None) for id in ids])

    def loaded(self, bulk: Bulk) -> Ticket | _FilesWritten:
        if len(bulk.filters) != len(bulk.ids) or len(bulk.ids) > _FEW_LOADED:
            number = self.last.number + 1
            self.last = Recorded(number, needed=number)
            return _FilesWritten(self, number)
        texts: list[str | None] = [None] * len(bulk.ids)
        if bulk.texts is not None:
            _, first = np.unique(bulk.owner, return_index=True)
            texts = bulk.texts.take(first).to_pylist()
        filters = map(pack_filter, bulk.filters)
        return self._write(list(zip(bulk.ids.tolist(), filters, texts, strict=True)))

    def _write(self, rows: Sequence[tuple[SubscriptionId, str | None, str | None]]) -> Ticket:
        first = self.last.number + 1
        changes = [Change(number, *row) for number, row in enumerate(rows, first)]
        ticket = self._journal.write(changes)
        self.last = self.last._replace(number=changes[-1].number)
        if self._is_long() and time.monotonic() >= self._try_again:
            self._wake()
        return ticket

    # Files

    def _is_long(self) -> bool:
        stores = self._stores()
        size = 0 if stores is None else stores.snapshot.size
        return self.pending > max(_FEWEST, size // _SHARE)

    def _wake(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="boxmatch-files", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        try:
            while self._is_long() and not self._closed:
                self.write_files()
        except Exception:
            # Nothing is lost: it is in the journal.
            self._try_again = time.monotonic() + _TRY_AGAIN
            _log.exception("cannot write the files of a matcher; its journal gets longer")

    def write_files(self, number: int = 0) -> None:
        """Have all changes in files, or at least those up to a number, and out of the journal."""
        with self._saving:
            self._journal.check()
            stores = self._stores()
            if stores is None or (number and self._files.number >= number):
                return  # another who waited has done it
            stores.merge_once()  # what is left to be merged while writers wait is little
            saved, recorded = describe(stores, self._settings)
            self._folder.save(saved)
            self._journal.forget(recorded).wait()
            self._files = recorded

    def close(self) -> None:
        """Write what is pending, and let others open the directory. Again does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if self.pending:
                self.write_files()
        finally:
            self._journal.close()

    def abandon(self) -> None:
        """Let others open the directory; what is pending stays in the journal."""
        if not self._closed:
            self._closed = True
            # Files that are being written would take the place of those of the next who opens it.
            with self._saving:
                self._journal.close()


class Follower:
    """Brings a matcher that only reads to where its writer is, now and then or when asked."""

    def __init__(self, path: Path, stores: Stores, number: int) -> None:
        self._folder = SavedFolder(path, journal=True)
        self._reader = JournalReader(path)
        self._stores = weakref.ref(stores)
        self._number = number
        self._files = number
        self._seen: int | None = None
        """The version of the journal that was applied."""
        self._reading = threading.Lock()
        self._closed = threading.Event()
        self._process = os.getpid()
        self.refresh()
        threading.Thread(target=self._run, name="boxmatch-follower", daemon=True).start()

    pending = None

    def check(self) -> None:
        """Nothing can be written."""
        raise StorageError("this matcher was opened to read; it changes as its writer does")

    def refresh(self) -> None:
        """Apply all that was written until now."""
        if self._process != os.getpid():
            raise StorageError("this matcher was opened by the process that made this one")
        stores = self._stores()
        with self._reading:
            if stores is None or self._closed.is_set():
                return
            version = self._reader.version()
            if version == self._seen:
                return
            files, changes = self._reader.read(self._number)
            while self._number < files.number or self._files < files.needed:
                # What is missing here is no longer in the journal, or never was.
                self._load(stores)
                files, changes = self._reader.read(self._number)
            apply_changes(stores, changes)
            if changes:
                self._number = changes[-1].number
            self._seen = version  # now, so that what fails is tried again

    def _load(self, stores: Stores) -> None:
        saved = self._folder.load()
        table = AxisTable(saved.settings.schema, saved.axes.derived, saved.axes.strings)
        stores.replace(saved.views, table, saved.size, saved.kind)
        self._number = self._files = saved.change

    def _run(self) -> None:
        while not self._closed.wait(_LOOK_AGAIN):
            if self._stores() is None:
                self.close()
                return
            try:
                self.refresh()
            except Exception:  # else it would stay behind, and nobody would know
                _log.exception("cannot read what was written to a matcher; it is tried again")

    def close(self) -> None:
        """Stay as it is now."""
        with self._reading:
            if not self._closed.is_set():
                self._closed.set()
                self._reader.close()

    abandon = close
