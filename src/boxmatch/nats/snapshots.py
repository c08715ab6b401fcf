"""The subscriptions of a shard in the object store, from which a worker starts more quickly.

The bucket stays the truth: a snapshot says up to which revision it goes, and what was written since
is read from there. One of another bucket, of other settings, of another version, or too old is not
used.
"""

from __future__ import annotations

import asyncio
import json
import logging
import tarfile
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import nats.errors
import nats.js.errors
from nats.js.api import ObjectMeta

from boxmatch import __version__
from boxmatch.engine.matcher import Matcher
from boxmatch.engine.saved_files import Saved, SavedFolder
from boxmatch.errors import BoxmatchError, StorageError
from boxmatch.nats.bucket import DELETED_SECONDS
from boxmatch.nats.subscriptions import RouteSubscriptions, unknown_of

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from nats.js import JetStreamContext

    from boxmatch.nats.names import Names
    from boxmatch.nats.settings import RouteSettings

_ABOUT: Final = "about.json"
_FAILURES: Final = (
    nats.errors.Error,
    BoxmatchError,
    OSError,
    TimeoutError,
    tarfile.TarError,
    ValueError,
    KeyError,
    TypeError,
)

log = logging.getLogger("boxmatch.route")


class Capture(NamedTuple):
    """Subscriptions at one moment."""

    revision: int
    matchers: dict[str, Saved]
    refused: dict[str, str]


class Snapshots:
    """The snapshots of one shard. None of its methods raises because of the object store."""

    def __init__(
        self, js: JetStreamContext, names: Names, settings: RouteSettings, shard: int, bucket: str
    ) -> None:
        """`bucket` says which bucket of this name it is."""
        self._js = js
        self._store = names.snapshots
        self._settings = settings
        self._shard = shard
        self._name = names.consumer(shard, settings.shards)
        self._same = {
            "version": __version__,
            "bucket": bucket,
            "settings": settings.encode().decode(),
        }
        self.revision = 0
        """Of the newest snapshot that is known."""

    async def load(self, thread: ThreadPoolExecutor) -> RouteSubscriptions | None:
        """What the newest one has; None if there is none of use."""
        folder = TemporaryDirectory(prefix="boxmatch-", ignore_cleanup_errors=True)
        path = Path(folder.name)
        try:
            store = await self._js.object_store(self._store)
            with (path / "snapshot.tar").open("wb") as file:
                await store.get(self._name, writeinto=file)
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(thread, self._unpack, path)
        except nats.js.errors.NotFoundError:  # of the store, or of the snapshot
            folder.cleanup()
            return None
        except _FAILURES as error:
            log.warning("the snapshot is not used: %s", str(error) or type(error).__name__)
            folder.cleanup()
            return None
        found.folder = folder  # whose files are mapped into memory
        return found

    def _unpack(self, path: Path) -> RouteSubscriptions:
        with tarfile.open(path / "snapshot.tar", "r:") as tar:
            tar.extractall(path, filter="data")
        (path / "snapshot.tar").unlink()
        about = json.loads((path / _ABOUT).read_text(encoding="utf-8"))
        for name, value in self._same.items():
            if about[name] != value:
                raise StorageError(f"it has another {name}")
        if not 0 <= time.time() - about["at"] + 60 < DELETED_SECONDS / 2:
            raise StorageError("it is too old: removals may be forgotten")
        matchers = {}
        for number, feed in enumerate(self._settings.feeds):
            saved = SavedFolder(path / str(number)).load()
            matchers[feed] = Matcher.of_saved(saved, unknown=unknown_of(self._settings, feed))
        found = RouteSubscriptions(self._settings, self._shard, matchers)
        found.refused = dict(about["refused"])
        found.revision = self.revision = int(about["revision"])
        return found

    async def newest(self) -> int:
        """The revision of the newest snapshot, whoever wrote it."""
        try:
            store = await self._js.object_store(self._store)
            info = await store.get_info(self._name)
            said = json.loads(info.description or "{}")
            if said.get("bucket") == self._same["bucket"]:
                self.revision = max(self.revision, int(said["revision"]))
        except _FAILURES:
            pass
        return self.revision

    async def save(self, capture: Capture) -> bool:
        """Write one; whether that was done."""
        try:
            with TemporaryDirectory(prefix="boxmatch-") as folder:
                path = Path(folder)
                await asyncio.to_thread(self._pack, path, capture)
                said = {"revision": capture.revision, "bucket": self._same["bucket"]}
                meta = ObjectMeta(name=self._name, description=json.dumps(said))
                store = await self._js.object_store(self._store)
                with (path / "snapshot.tar").open("rb") as file:
                    await store.put(self._name, file, meta)
        except _FAILURES as error:
            log.warning("no snapshot was written: %s", str(error) or type(error).__name__)
            return False
        self.revision = capture.revision
        log.info("snapshot written", extra={"revision": capture.revision})
        return True

    def _pack(self, path: Path, capture: Capture) -> None:
        about: dict[str, Any] = {
            **self._same,
            "revision": capture.revision,
            "refused": capture.refused,
            "at": time.time(),
        }
        (path / _ABOUT).write_text(json.dumps(about), encoding="utf-8")
        for number, saved in enumerate(capture.matchers.values()):
            SavedFolder(path / str(number)).save(saved)
        with tarfile.open(path / "snapshot.tar", "w") as tar:
            for one in (_ABOUT, *map(str, range(len(capture.matchers)))):
                tar.add(path / one, one)
