"""API keys: made, rotated and revoked on the command line, looked up by the broker at every
request.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from boxmatch.broker.access.grant import ALL, OPEN, Grant, check_names
from boxmatch.broker.access.key_file import EarlierSecret, KeyFile, KeyRow
from boxmatch.broker.settings import Limits
from boxmatch.errors import AccessError, BrokerError, StorageError

_TEXT = re.compile(r"bm_([0-9a-z]{8})_([A-Za-z0-9_-]{43})")
_ID_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"  # none that look alike
_LABEL_LENGTH = 128
_YEAR_10000 = 253402300800.0
"""The first moment that Python's dates cannot show."""
_STALE_SECONDS = 30.0
"""How long the keys that were read last are good for when the file cannot be read."""
_MOST_EARLIER = 8
"""Secrets that rotations replaced, of one key. They are not dropped as soon as they end: a clock
that is wrong for a moment must not take one away."""


class KeyInfo(NamedTuple):
    """A key without its secret, which nobody but its holder has."""

    grant: Grant
    limits: Mapping[str, Any]
    """Those that are its own; `grant.limits` has the broker's too."""
    created: float
    expires: float | None
    revoked: float | None
    earlier: tuple[float, ...]
    """When secrets that rotations replaced end, or ended, in the order of the rotations."""

    def state(self, now: float) -> Literal["active", "expired", "revoked"]:
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and now >= self.expires else "active"


class _Secret(NamedTuple):
    """One that a key can be shown with."""

    grant: Grant
    ends: float | None


_NO_SECRETS = (_Secret(Grant(id="", label="", digest=bytes(32)), None),)
_ENDED = {"expired": "has expired", "revoked": "was revoked"}


class _Key(NamedTuple):
    info: KeyInfo
    secrets: tuple[_Secret, ...]
    """The current one first."""


class Keys:
    """The keys of one data folder. All methods may be called from any thread.

    All keys are held in memory, and read again at most `refresh_seconds` after another process has
    written them, or when a key comes that is not among them. A key is `bm_`, eight letters that
    name it, `_`, and 43 that are the secret.
    """

    def __init__(
        self,
        file: KeyFile,
        *,
        limits: Limits,
        refresh_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._file = file
        self._limits = limits
        self._open_grant = replace(OPEN, limits=limits)
        self._refresh_seconds = refresh_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: Mapping[str, _Key] = {}
        self._any = False
        self._closed = False
        self._checked = self._read = -math.inf

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        limits: Limits | None = None,
        make: bool = True,
        refresh_seconds: float = 0.5,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Open the keys in a data folder, which may be open elsewhere too.

        `limits` are for what a key has no limit of its own. With `make=False`, a folder without
        keys is a `StorageError` instead of being made.
        """
        keys = cls(
            KeyFile.open(Path(folder), make=make),
            limits=limits or Limits(),
            refresh_seconds=refresh_seconds,
            clock=clock,
        )
        try:
            with keys._lock:
                keys._read_file()
        except BaseException:
            keys.close()
            raise
        return keys

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create(
        self,
        label: str,
        *,
        admin: bool = False,
        publish: Iterable[str] = (),
        read: Iterable[str] = (),
        subscribe: Iterable[str] = (),
        subscribe_to: Iterable[str] | None = None,
        limits: Limits | Mapping[str, float | None] | None = None,
        expires: float | None = None,
    ) -> tuple[Grant, str]:
        """Make a key; the text is to be handed to its holder, and cannot be had again.

        Who has subscribers may subscribe as them to the feeds `subscribe_to`; left out, to all. A
        mapping of limits holds those in which the key differs from the broker's; `Limits` sets them
        all. `expires` is a Unix time.
        """
        roles = {
            "admin": bool(admin),
            "publish": sorted(check_names(publish, "feed")),
            "read": sorted(check_names(read, "feed")),
            "subscribe": sorted(check_names(subscribe, "subscriber")),
        }
        if not any(roles.values()):
            raise BrokerError("a key needs a role: admin, publish, read or subscribe")
        roles["subscribe_to"] = _check_subscribe_to(subscribe_to, roles)
        now = self._clock()
        if expires is not None and not now < expires < _YEAR_10000:
            raise BrokerError("a key must expire in the future, before the year 10000, or never")
        own = _check_limits(asdict(limits) if isinstance(limits, Limits) else dict(limits or {}))
        secret = secrets.token_urlsafe(32)
        while True:
            id = "".join(secrets.choice(_ID_LETTERS) for _ in range(8))
            row = KeyRow(id, _digest(secret), _check_label(label), roles, own, now, expires, None)
            with self._lock:
                self._check_open()
                try:
                    self._file.insert(row)
                except sqlite3.IntegrityError:  # the id is taken
                    continue
                self._read_file()
            return self._grant(row, row.digest), f"bm_{id}_{secret}"

    def rotate(self, name: str, overlap: float) -> tuple[KeyInfo, str]:
        """Give a key, as `find` finds it, a new secret; the text is what `create` returns.

        The secret that it had is valid for `overlap` more seconds, and those that earlier rotations
        replaced until their own overlap ends. With an overlap of 0 all of them end at once.
        """
        id = self.find(name).grant.id
        now = self._clock()
        if not 0 <= overlap < _YEAR_10000 - now:
            raise BrokerError("an overlap ends before the year 10000, and is not negative")
        secret = secrets.token_urlsafe(32)

        def change(row: KeyRow) -> KeyRow:
            state = self._info(row).state(now)
            if state != "active":
                raise BrokerError(f"key {id} {_ENDED[state]}: create another one")
            earlier = _replace_secret(row, now, overlap)
            return row._replace(digest=_digest(secret), earlier=earlier)

        with self._lock:
            self._check_open()
            row = self._file.replace_secret(id, change)
            if row is None:
                raise BrokerError(f"there is no key {id!r}")
            self._read_file()
        return self._info(row), f"bm_{id}_{secret}"

    def revoke(self, name: str) -> str:
        """End a key, as `find` finds it, for good, with all its secrets. Returns its id."""
        id = self.find(name).grant.id
        with self._lock:
            self._check_open()
            if not self._file.revoke(id, self._clock()):
                raise BrokerError(f"there is no key {id!r}")
            self._read_file()
        return id

    def find(self, name: str) -> KeyInfo:
        """The key with this id, or label if no other key has it. Of several with one label it is
        the only one that is active. A whole key does as well as its id.
        """
        whole = _TEXT.fullmatch(name)
        known = whole[1] if whole else name
        self._refresh(at_once=True)
        key = self._entries.get(known)
        if key is not None:
            return key.info
        found = [info for info in self.list() if info.grant.label == known]
        now = self._clock()
        found = [info for info in found if info.state(now) == "active"] or found
        if not found:
            raise BrokerError(f"there is no key {known!r}")
        if len(found) > 1:
            ids = ", ".join(info.grant.id for info in found)
            raise BrokerError(f"several keys have the label {known!r}: name one by its id ({ids})")
        return found[0]

    def list(self) -> Sequence[KeyInfo]:
        """All keys, also those that are expired or revoked, in the order of their making."""
        self._refresh()
        infos = [key.info for key in self._entries.values()]
        return sorted(infos, key=lambda info: (info.created, info.grant.id))

    def any(self) -> bool:
        """Whether a key is needed, because there is one or there was one.

        Keys that are expired or revoked count: ending the last key must not open the doors.
        """
        self._refresh()
        return self._any

    def authenticate(self, text: str) -> Grant:
        """What this key allows; `AccessError` if it is unknown, revoked or expired."""
        self._refresh()
        found = _TEXT.fullmatch(text)
        if found is None:
            raise AccessError("unknown key", unknown=True)
        digest = _digest(found[2])
        secret = self._find_secret(found[1], digest)
        if secret is None:
            self._refresh(at_once=True)  # it may have been made a moment ago
            secret = self._find_secret(found[1], digest)
        return self._valid(secret)

    def admit(self, text: str | None) -> Grant:
        """What a request with this key, or without one, may do. Without keys, all may do all."""
        if not self.any():
            return self._open_grant
        if text is None:
            raise AccessError("a key is needed", unknown=True)
        return self.authenticate(text)

    def recheck(self, grant: Grant) -> None:
        """`AccessError` if what was granted is not any more. For connections that last."""
        if grant.id == OPEN.id:
            if self.any():
                raise AccessError("a key is needed now", unknown=True)
            return
        self._refresh()
        self._valid(self._find_secret(grant.id, grant.digest))

    def _find_secret(self, id: str, digest: bytes) -> _Secret | None:
        # The id is no secret; the rest takes the same time whether the id is known or not.
        key = self._entries.get(id)
        found = None
        for secret in _NO_SECRETS if key is None else key.secrets:
            if hmac.compare_digest(digest, secret.grant.digest):
                found = secret
        return found

    def _valid(self, secret: _Secret | None) -> Grant:
        key = None if secret is None else self._entries.get(secret.grant.id)
        if secret is None or key is None:
            raise AccessError("unknown key", unknown=True)
        id, now = secret.grant.id, self._clock()
        state = key.info.state(now)
        if state != "active":
            raise AccessError(f"key {id} {_ENDED[state]}", unknown=True)
        if secret.ends is not None and now >= secret.ends:
            raise AccessError(f"this secret of key {id} was replaced by another", unknown=True)
        return secret.grant

    def _refresh(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if now - self._checked < self._refresh_seconds and not at_once:
            return
        if not self._lock.acquire(blocking=at_once):  # someone is at it
            return
        try:
            self._check_open()
            self._read_file()
        except StorageError:
            # A moment without the file is no reason to turn everyone away; but a broker that
            # would not hear of a revoked key must not go on for long.
            if self._closed or now - self._read > _STALE_SECONDS:
                raise
            self._checked = now
        finally:
            self._lock.release()

    def _read_file(self) -> None:
        now = time.monotonic()
        rows = self._file.read_if_changed()
        if rows is not None:
            try:
                self._entries = {row.id: self._entry(row) for row in rows}
            except (KeyError, TypeError) as error:
                self._file.close()  # so that it does not pass for read
                raise StorageError(f"{self._file.path} is damaged: {error}") from error
            self._any = self._any or bool(rows)
        self._checked = self._read = now

    def _entry(self, row: KeyRow) -> _Key:
        current = _Secret(self._grant(row, row.digest), None)
        earlier = [_Secret(self._grant(row, digest), ends) for digest, ends in row.earlier]
        return _Key(self._info(row), (current, *earlier))

    def _info(self, row: KeyRow) -> KeyInfo:
        return KeyInfo(
            self._grant(row, row.digest),
            row.limits,
            created=row.created,
            expires=row.expires,
            revoked=row.revoked,
            earlier=tuple(secret.ends for secret in row.earlier),
        )

    def _grant(self, row: KeyRow, digest: bytes) -> Grant:
        return Grant(
            id=row.id,
            label=row.label,
            admin=row.roles["admin"],
            publish=frozenset(row.roles["publish"]),
            read=frozenset(row.roles["read"]),
            subscribe=frozenset(row.roles["subscribe"]),
            # Keys that were made before there was a choice may subscribe to all feeds.
            subscribe_to=frozenset(row.roles.get("subscribe_to", [ALL])),
            limits=replace(self._limits, **row.limits),
            digest=digest,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError(f"{self._file.path} is closed")


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("ascii")).digest()


def _check_subscribe_to(names: Iterable[str] | None, roles: Mapping[str, Any]) -> list[str]:
    """The feeds that a key with these roles may subscribe to."""
    if names is None:
        return [ALL] if roles["subscribe"] else []
    feeds = sorted(check_names(names, "feed"))
    if roles["admin"]:
        raise BrokerError("an admin may subscribe to all feeds: leave out subscribe_to, or admin")
    if not roles["subscribe"]:
        raise BrokerError("a key that names feeds to subscribe to needs a subscriber, too")
    if not feeds:
        raise BrokerError(
            f"a key with subscribers needs a feed to subscribe to; {ALL!r}, or leaving out "
            f"subscribe_to, means all"
        )
    return feeds


def _replace_secret(row: KeyRow, now: float, overlap: float) -> tuple[EarlierSecret, ...]:
    """What the earlier secrets are after a rotation: also the one that was current."""
    if overlap == 0:
        return ()
    kept = [*row.earlier, EarlierSecret(row.digest, now + overlap)]
    if len(kept) > _MOST_EARLIER:
        first = min(kept, key=lambda secret: secret.ends)
        kept.remove(first)
        if first.ends > now:
            raise BrokerError(
                f"key {row.id} has {_MOST_EARLIER} earlier secrets that are still valid: rotate it "
                f"when an overlap has ended, or without an overlap"
            )
    return tuple(kept)


def _check_label(label: str) -> str:
    if not label.strip() or len(label) > _LABEL_LENGTH or not label.isprintable():
        raise BrokerError(
            f"a key needs a label of at most {_LABEL_LENGTH} printable letters, such as who has it"
        )
    return label


_RATES = ("events_per_second", "requests_per_second")


def _check_limits(limits: dict[str, Any]) -> dict[str, Any]:
    known = {field.name for field in fields(Limits)}
    for name, value in limits.items():
        if name not in known:
            raise BrokerError(f"there is no limit {name!r}; there are {', '.join(sorted(known))}")
        if value is None and name in _RATES:  # without a limit, even if the broker has one
            continue
        right = (int, float) if name in _RATES else (int,)
        if isinstance(value, bool) or not isinstance(value, right):
            raise BrokerError(f"the limit {name} is a number, not {value!r}")
        if not (math.isfinite(value) and value >= 0):
            raise BrokerError(f"the limit {name} cannot be {value}")
    return limits
