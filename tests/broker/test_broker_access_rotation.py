"""New secrets for keys: which of them are valid when, and files from before there were several."""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from boxmatch.broker.access import Keys
from boxmatch.broker.access.key_file import KeyFile
from boxmatch.errors import AccessError, BrokerError, StorageError

HOUR = 3600.0
KEY_OF_FORMAT_1 = f"bm_abcdefgh_{'s' * 43}"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(tmp_path: Path, clock: Clock) -> Iterator[Keys]:
    """As a server has them, but looking at the file every time."""
    with Keys.open(tmp_path, refresh_seconds=0, clock=clock) as opened:
        yield opened


def is_valid(keys: Keys, text: str) -> bool:
    try:
        keys.recheck(keys.authenticate(text))
    except AccessError as error:
        return not error.unknown
    return True


class TestRotate:
    def test_both_are_valid_until_the_overlap_ends(self, keys: Keys, clock: Clock) -> None:
        grant, old = keys.create(
            "shop", publish=["a"], subscribe=["bob"], subscribe_to=["b"], limits={"body_bytes": 9},
            expires=clock.now + 10 * HOUR,
        )  # fmt: skip
        [before] = keys.list()
        held = keys.authenticate(old)
        clock.now += 5
        info, new = keys.rotate(grant.id, HOUR)
        assert new != old
        assert new[:12] == old[:12]
        assert info == before._replace(earlier=(clock.now + HOUR,))
        assert keys.list() == [info]
        assert keys.authenticate(new) == keys.authenticate(old) == grant
        clock.now += HOUR - 0.1
        assert is_valid(keys, old)
        clock.now += 0.1
        with pytest.raises(AccessError, match=f"secret of key {grant.id} was replaced"):
            keys.authenticate(old)
        with pytest.raises(AccessError, match=f"secret of key {grant.id} was replaced"):
            keys.recheck(held)  # it was granted for the old one
        assert is_valid(keys, new)

    def test_a_running_broker_notices(self, tmp_path: Path) -> None:
        with Keys.open(tmp_path, refresh_seconds=1000) as broker, Keys.open(tmp_path) as line:
            grant, old = line.create("x", admin=True)
            assert is_valid(broker, old)
            _, new = line.rotate(grant.id, HOUR)
            assert is_valid(broker, new)  # at once: whoever makes a secret uses it
            assert is_valid(broker, old)

    def test_revoking_ends_all(self, keys: Keys) -> None:
        grant, old = keys.create("x", admin=True)
        _, new = keys.rotate(grant.id, HOUR)
        held = [keys.authenticate(old), keys.authenticate(new)]
        assert keys.revoke(old) == grant.id
        for text in (old, new):
            with pytest.raises(AccessError, match="was revoked"):
                keys.authenticate(text)
        for one in held:
            with pytest.raises(AccessError, match="was revoked"):
                keys.recheck(one)
        with pytest.raises(BrokerError, match=r"was revoked: create another one"):
            keys.rotate(grant.id, HOUR)

    def test_an_expired_key_stays_expired(self, keys: Keys, clock: Clock) -> None:
        grant, old = keys.create("x", admin=True, expires=clock.now + 10)
        _, new = keys.rotate(grant.id, HOUR)
        clock.now += 10
        for text in (old, new):
            with pytest.raises(AccessError, match="has expired"):
                keys.authenticate(text)
        with pytest.raises(BrokerError, match=r"has expired: create another one"):
            keys.rotate(grant.id, HOUR)

    def test_earlier_secrets_keep_their_ends(self, keys: Keys, clock: Clock) -> None:
        """A rotation whose secret got lost is done again: nobody is locked out by that."""
        grant, used = keys.create("x", admin=True)
        keys.rotate(grant.id, 2 * HOUR)  # and the new one was never printed
        info, new = keys.rotate(grant.id, HOUR)
        assert info.earlier == (clock.now + 2 * HOUR, clock.now + HOUR)
        clock.now += HOUR
        assert is_valid(keys, used)
        assert is_valid(keys, new)
        clock.now += HOUR
        assert not is_valid(keys, used)

    def test_without_an_overlap_all_earlier_ones_end(self, keys: Keys, clock: Clock) -> None:
        grant, first = keys.create("x", admin=True)
        _, second = keys.rotate(grant.id, HOUR)
        info, third = keys.rotate(grant.id, 0)
        assert info.earlier == ()
        assert [is_valid(keys, one) for one in (first, second, third)] == [False, False, True]
        clock.now -= 10 * HOUR  # no clock brings back one that has leaked
        assert [is_valid(keys, one) for one in (first, second, third)] == [False, False, True]

    def test_a_clock_that_was_wrong_loses_nothing(self, keys: Keys, clock: Clock) -> None:
        grant, old = keys.create("x", admin=True)
        _, new = keys.rotate(grant.id, 2 * HOUR)
        right = clock.now
        clock.now += 100 * HOUR
        assert [is_valid(keys, one) for one in (old, new)] == [False, True]
        _, newer = keys.rotate(grant.id, HOUR)
        clock.now = right
        assert all(is_valid(keys, one) for one in (old, new, newer))
        clock.now = right - 100 * HOUR
        assert all(is_valid(keys, one) for one in (old, new, newer))

    def test_no_more_than_eight_that_are_valid(self, keys: Keys, clock: Clock) -> None:
        grant, first = keys.create("x", admin=True)
        texts = [first]
        for _ in range(8):
            texts.append(keys.rotate(grant.id, HOUR)[1])
            clock.now += 1
        with pytest.raises(BrokerError, match="8 earlier secrets that are still valid"):
            keys.rotate(grant.id, HOUR)
        assert all(is_valid(keys, one) for one in texts)
        clock.now += HOUR - 8
        assert not is_valid(keys, first)
        texts = [*texts[1:], keys.rotate(grant.id, HOUR)[1]]
        [info] = keys.list()
        assert len(info.earlier) == 8
        assert all(is_valid(keys, one) for one in texts)

    @pytest.mark.parametrize("overlap", [-1.0, float("nan"), float("inf"), 253402300800.0])
    def test_overlaps_that_make_no_sense(self, keys: Keys, overlap: float) -> None:
        grant, _ = keys.create("x", admin=True)
        with pytest.raises(BrokerError, match="an overlap"):
            keys.rotate(grant.id, overlap)

    @pytest.mark.parametrize("step", ["UPDATE key SET digest", "COMMIT"])
    def test_an_end_in_between_changes_nothing(
        self, keys: Keys, step: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        grant, old = keys.create("x", admin=True)
        connect = sqlite3.connect

        class Failing(sqlite3.Connection):
            def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
                if sql.startswith(step):
                    raise sqlite3.OperationalError("disk I/O error")
                return super().execute(sql, *parameters)  # type: ignore[arg-type]

        def failing(*arguments: object, **options: object) -> sqlite3.Connection:
            return connect(*arguments, **options, factory=Failing)  # type: ignore[no-any-return,call-overload]

        monkeypatch.setattr(sqlite3, "connect", failing)
        with pytest.raises(StorageError, match="disk I/O error"):
            keys.rotate(grant.id, 0)
        monkeypatch.undo()
        assert is_valid(keys, old)
        _, new = keys.rotate(grant.id, 0)
        assert [is_valid(keys, one) for one in (old, new)] == [False, True]

    def test_the_secrets_are_nowhere_on_disk(self, keys: Keys, tmp_path: Path) -> None:
        grant, old = keys.create("shop", admin=True)
        _, new = keys.rotate(grant.id, HOUR)
        kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        for text in (old, new):
            assert text[12:].encode() not in kept

    def test_at_once_in_several_processes(self, tmp_path: Path) -> None:
        with Keys.open(tmp_path) as keys:
            grant, first = keys.create("x", admin=True)
            texts, failures = [first], []

            def work() -> None:
                try:
                    with Keys.open(tmp_path) as elsewhere:
                        texts.append(elsewhere.rotate(grant.id, HOUR)[1])
                except BaseException as error:
                    failures.append(error)

            threads = [threading.Thread(target=work) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert failures == []
            assert len(set(texts)) == 7
            assert all(is_valid(keys, one) for one in texts)

    @pytest.mark.parametrize("seed", range(6))
    def test_as_a_list_of_secrets_would(self, tmp_path: Path, clock: Clock, seed: int) -> None:
        """Rotations, revocations, restarts and clocks that jump, of three keys."""
        random_ = random.Random(seed)
        keys = Keys.open(tmp_path, refresh_seconds=0, clock=clock)
        ids, secrets, revoked = [], {}, set()
        for label in "abc":
            grant, text = keys.create(label, admin=True)
            ids.append(grant.id)
            secrets[text] = float("inf")
        for _ in range(60):
            clock.now += random_.choice([0, 1, 10, 100, -30])
            id = random_.choice(ids)
            action = random_.random()
            if action < 0.6 and id not in revoked:
                overlap = random_.choice([0, 5, 50, 500])
                mine = [text for text in secrets if text[3:11] == id]
                try:
                    _, new = keys.rotate(id, overlap)
                except BrokerError:
                    valid = [text for text in mine if clock.now < secrets[text]]
                    assert len(valid) == 9
                    continue
                for text in mine:
                    if secrets[text] == float("inf"):
                        secrets[text] = clock.now + overlap
                    if overlap == 0:
                        secrets[text] = float("-inf")
                secrets[new] = float("inf")
            elif action < 0.62:
                keys.revoke(id)
                revoked.add(id)
            elif action < 0.7:
                keys.close()
                keys = Keys.open(tmp_path, refresh_seconds=0, clock=clock)
            # Of those that have ended for long, a ninth is dropped, whatever the clock says later.
            secrets = {
                text: ends
                for text, ends in secrets.items()
                if clock.now < ends + 40 or ends == float("-inf")
            }
            told = {text: is_valid(keys, text) for text in secrets}
            assert told == {
                text: text[3:11] not in revoked and clock.now < ends
                for text, ends in secrets.items()
            }
        keys.close()


class TestFind:
    def test_by_id_label_or_whole_key(self, keys: Keys) -> None:
        grant, text = keys.create("the shop", admin=True)
        keys.create("other", admin=True)
        for name in (grant.id, "the shop", text):
            assert keys.find(name).grant == grant

    def test_of_one_label_only_the_active_one(self, keys: Keys) -> None:
        first, _ = keys.create("shop", admin=True)
        second, _ = keys.create("shop", admin=True)
        for ask in (keys.find, keys.revoke, lambda name: keys.rotate(name, HOUR)):
            with pytest.raises(BrokerError, match="several keys have the label 'shop'") as caught:
                ask("shop")
            assert first.id in str(caught.value)
            assert second.id in str(caught.value)
        keys.revoke(first.id)
        assert keys.find("shop").grant == second
        keys.revoke("shop")
        assert [info.revoked is None for info in keys.list()] == [False, False]
        with pytest.raises(BrokerError, match="several keys"):
            keys.find("shop")
        assert keys.find(first.id).grant == first

    def test_an_id_is_no_label(self, keys: Keys) -> None:
        first, _ = keys.create("shop", admin=True)
        keys.create(first.id, admin=True)
        assert keys.find(first.id).grant == first


def make_format_1(folder: Path, *, wal: bool = True) -> None:
    """A file as earlier versions made it, with a key that subscribes and one that publishes."""
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(KEY_OF_FORMAT_1[12:].encode()).digest()
    roles = {"admin": False, "publish": [], "read": [], "subscribe": ["bob"]}
    with closing(sqlite3.connect(folder / "keys.sqlite")) as connection:
        if wal:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute(
            "CREATE TABLE key (id TEXT PRIMARY KEY, digest BLOB NOT NULL, label TEXT NOT NULL, "
            "roles TEXT NOT NULL, limits TEXT NOT NULL, created REAL NOT NULL, expires REAL, "
            "revoked REAL) WITHOUT ROWID"
        )
        row = ("abcdefgh", digest, "bob", json.dumps(roles), '{"body_bytes": 7}', 5.0, None, None)
        connection.execute("INSERT INTO key VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        roles |= {"publish": ["sales"], "subscribe": []}
        row = ("bcdefghj", digest, "shop", json.dumps(roles), "{}", 6.0, None, 7.0)
        connection.execute("INSERT INTO key VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("PRAGMA application_id = 0x426F784B")
        connection.execute("PRAGMA user_version = 1")
        connection.commit()


class TestFormat1:
    @pytest.mark.parametrize("wal", [True, False])
    def test_its_keys_mean_what_they_meant(self, tmp_path: Path, wal: bool) -> None:
        make_format_1(tmp_path, wal=wal)
        with Keys.open(tmp_path, make=False) as keys:
            grant = keys.authenticate(KEY_OF_FORMAT_1)
            assert grant.subscribers == {"bob"}
            assert grant.subscribed_feeds is None
            assert grant.may_subscribe_to("any")
            assert not grant.may_see("any")
            assert grant.limits.body_bytes == 7
            first, second = keys.list()
            assert (first.created, first.state(10.0), first.earlier) == (5.0, "active", ())
            assert (second.grant.publish, second.state(10.0)) == ({"sales"}, "revoked")
            assert not second.grant.may_subscribe_to("any")
            _, new = keys.rotate("bob", HOUR)
            assert is_valid(keys, KEY_OF_FORMAT_1)
        with Keys.open(tmp_path, make=False) as keys:
            assert all(is_valid(keys, text) for text in (KEY_OF_FORMAT_1, new))

    def test_versions_that_know_only_it_refuse_what_it_becomes(self, tmp_path: Path) -> None:
        """They would not look at the feeds that a key may subscribe to."""
        make_format_1(tmp_path)
        Keys.open(tmp_path).close()
        with closing(sqlite3.connect(tmp_path / "keys.sqlite")) as connection:
            assert connection.execute("PRAGMA user_version").fetchall() == [(2,)]
            assert len(connection.execute("SELECT * FROM key").fetchall()) == 2

    def test_opened_at_once_by_many(self, tmp_path: Path) -> None:
        make_format_1(tmp_path)
        failures: list[BaseException] = []

        def work() -> None:
            try:
                with Keys.open(tmp_path) as keys:
                    assert is_valid(keys, KEY_OF_FORMAT_1)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []

    def test_from_a_backup_in_the_place_of_another(self, keys: Keys, tmp_path: Path) -> None:
        _, old = keys.create("old", admin=True)
        make_format_1(tmp_path / "other")
        for path in tmp_path.glob("keys.sqlite-*"):
            path.unlink()
        (tmp_path / "other" / "keys.sqlite").replace(tmp_path / "keys.sqlite")
        assert is_valid(keys, KEY_OF_FORMAT_1)
        assert not is_valid(keys, old)

    def test_an_older_version_that_runs_reads_on(self, tmp_path: Path) -> None:
        """It has the file open, and does not look at its format again."""
        make_format_1(tmp_path)
        query = "SELECT id, digest, label, roles, limits, created, expires, revoked FROM key"
        with closing(sqlite3.connect(tmp_path / "keys.sqlite")) as older:
            before = older.execute(query).fetchall()
            KeyFile.open(tmp_path, make=False).close()
            assert older.execute(query).fetchall() == before
