from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmatch.broker.access import OPEN, Grant, Keys
from boxmatch.broker.access import keys as keys_module
from boxmatch.broker.settings import Limits
from boxmatch.errors import AccessError, BrokerError, StorageError
from boxmatch.wire.http import NAME


class Clock:
    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

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


class TestGrant:
    @given(
        st.booleans(),
        *[st.frozensets(st.sampled_from(["a", "b", "*"])) for _ in range(4)],
        st.sampled_from(["a", "b", "c", "*", ""]),
    )
    def test_allows_what_is_named(
        self,
        admin: bool,
        publish: frozenset[str],
        read: frozenset[str],
        subscribe: frozenset[str],
        subscribe_to: frozenset[str],
        name: str,
    ) -> None:
        grant = Grant(
            id="x",
            label="x",
            admin=admin,
            publish=publish,
            read=read,
            subscribe=subscribe,
            subscribe_to=subscribe_to,
        )
        assert grant.may_publish(name) == (admin or bool(publish & {name, "*"}))
        assert grant.may_read(name) == (admin or bool(read & {name, "*"}))
        assert grant.may_subscribe(name) == (admin or bool(subscribe & {name, "*"}))
        to = admin or bool(subscribe and subscribe_to & {name, "*"})
        assert grant.may_subscribe_to(name) == to
        assert grant.may_ask(name) == (to or bool((publish | read) & {name, "*"}))
        if to:
            assert grant.subscribed_feeds is None or name in grant.subscribed_feeds
        assert grant.may_administer() == admin

    def test_a_role_does_not_give_another(self) -> None:
        grant = Grant(id="x", label="x", publish=frozenset("*"))
        assert grant.may_publish("feed")
        assert not grant.may_read("feed")
        assert not grant.may_subscribe("me")
        assert not grant.may_subscribe_to("feed")
        assert not grant.may_administer()

    def test_open_allows_all(self) -> None:
        assert OPEN.may_publish("a")
        assert OPEN.may_read("a")
        assert OPEN.may_subscribe("a")
        assert OPEN.may_subscribe_to("a")
        assert OPEN.may_administer()


class TestCreate:
    def test_gives_what_the_key_allows(self, keys: Keys) -> None:
        grant, text = keys.create("shop", publish=["sales"], read=["news"], subscribe=["bob"])
        assert re.fullmatch(r"bm_[0-9a-z]{8}_[A-Za-z0-9_-]{43}", text)
        assert text.startswith(f"bm_{grant.id}_")
        assert keys.authenticate(text) == grant
        assert grant.publish == {"sales"}
        assert grant.read == {"news"}
        assert grant.subscribe == {"bob"}
        assert grant.label == "shop"
        assert not grant.admin

    def test_feeds_to_subscribe_to(self, keys: Keys) -> None:
        for named, kept in ((None, {"*"}), (["b", "a"], {"a", "b"}), (["*"], {"*"})):
            grant, text = keys.create("x", subscribe=["bob"], subscribe_to=named)
            assert keys.authenticate(text) == grant
            assert grant.subscribe_to == kept
        grant, _ = keys.create("x", publish=["a"])
        assert grant.subscribe_to == frozenset()

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"subscribe_to": ["a"]}, "needs a role"),
            ({"subscribe_to": ["a"], "publish": ["a"]}, "needs a subscriber"),
            ({"subscribe_to": ["a"], "admin": True}, "an admin may subscribe to all"),
            ({"subscribe_to": [], "subscribe": ["bob"]}, "needs a feed to subscribe to"),
            ({"subscribe_to": ["a b"], "subscribe": ["bob"]}, "cannot be the name of a feed"),
            ({"subscribe_to": "a", "subscribe": ["bob"]}, "not the text 'a'"),
        ],
    )
    def test_feeds_to_subscribe_to_that_make_no_sense(
        self, keys: Keys, given: dict[str, Any], said: str
    ) -> None:
        with pytest.raises(BrokerError, match=said):
            keys.create("x", **given)
        assert not keys.any()

    def test_the_secret_is_nowhere_on_disk(self, keys: Keys, tmp_path: Path) -> None:
        grant, text = keys.create("shop", admin=True)
        secret = text.removeprefix(f"bm_{grant.id}_")
        kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert secret.encode() not in kept
        assert hashlib.sha256(secret.encode()).digest() in kept

    @pytest.mark.skipif(os.name != "posix", reason="modes of files")
    def test_only_its_user_can_read_the_file(self, keys: Keys, tmp_path: Path) -> None:
        keys.create("shop", admin=True)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert set(modes.values()) == {0o600}, modes

    def test_an_id_that_is_taken_is_not_used_again(
        self, keys: Keys, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        letters = iter("aaaaaaaa" + "aaaaaaaa" + "bbbbbbbb")
        monkeypatch.setattr(keys_module.secrets, "choice", lambda _: next(letters))
        first, first_text = keys.create("one", admin=True)
        second, second_text = keys.create("two", admin=True)
        assert (first.id, second.id) == ("aaaaaaaa", "bbbbbbbb")
        assert keys.authenticate(first_text).label == "one"
        assert keys.authenticate(second_text).label == "two"

    def test_needs_a_role(self, keys: Keys) -> None:
        with pytest.raises(BrokerError, match="needs a role"):
            keys.create("nothing")
        assert not keys.any()

    @pytest.mark.parametrize("name", ["", "a b", "-a", "a/b", "a*", "ä", "a\n", "a" * 129, "**"])
    def test_refuses_names_that_nothing_can_have(self, keys: Keys, name: str) -> None:
        assert NAME.fullmatch(name) is None
        with pytest.raises(BrokerError, match="cannot be the name of a feed"):
            keys.create("x", publish=[name])
        with pytest.raises(BrokerError, match="cannot be the name of a feed"):
            keys.create("x", read=[name])
        with pytest.raises(BrokerError, match="cannot be the name of a subscriber"):
            keys.create("x", subscribe=[name])

    def test_a_text_is_no_list_of_names(self, keys: Keys) -> None:
        with pytest.raises(BrokerError, match="not the text 'sales'"):
            keys.create("x", publish="sales")

    @pytest.mark.parametrize("label", ["", "  ", "a\nb", "\x1b[31m", "x" * 129])
    def test_refuses_labels_that_cannot_be_shown(self, keys: Keys, label: str) -> None:
        with pytest.raises(BrokerError, match="label"):
            keys.create(label, admin=True)

    @pytest.mark.parametrize(
        "when", [1_000_000.0, 0.0, -1.0, float("nan"), float("inf"), 253402300800.0]
    )
    def test_expires_in_the_future(self, keys: Keys, when: float) -> None:
        with pytest.raises(BrokerError, match="future"):
            keys.create("x", admin=True, expires=when)


class TestLimits:
    def test_those_left_out_are_the_brokers(self, tmp_path: Path) -> None:
        broker = Limits(body_bytes=10, events_per_second=5.0, requests_per_second=7.0)
        with Keys.open(tmp_path, limits=broker) as keys:
            own = {"subscriptions": 3, "events_per_second": None}
            grant, text = keys.create("x", admin=True, limits=own)
            assert grant.limits == replace(broker, subscriptions=3, events_per_second=None)
            plain, _ = keys.create("y", admin=True)
            assert plain.limits == broker
            whole, _ = keys.create("z", admin=True, limits=Limits(filter_bytes=1))
            assert whole.limits == Limits(filter_bytes=1)
        other = Limits(body_bytes=20)
        with Keys.open(tmp_path, limits=other) as keys:
            expected = replace(other, subscriptions=3, events_per_second=None)
            assert keys.authenticate(text).limits == expected
            shown = {info.grant.label: info.limits for info in keys.list()}
        assert shown["x"] == own
        assert shown["y"] == {}

    @pytest.mark.parametrize(
        ("limits", "said"),
        [
            ({"speed": 3}, "no limit 'speed'"),
            ({"body_bytes": -1}, "body_bytes cannot be -1"),
            ({"body_bytes": 1.5}, "is a number"),
            ({"body_bytes": None}, "is a number"),
            ({"body_bytes": True}, "is a number"),
            ({"events_per_second": float("nan")}, "cannot be nan"),
            ({"requests_per_second": float("inf")}, "cannot be inf"),
            ({"requests_per_second": "fast"}, "is a number"),
        ],
    )
    def test_refuses_senseless_ones(
        self, keys: Keys, limits: dict[str, float | None], said: str
    ) -> None:
        with pytest.raises(BrokerError, match=said):
            keys.create("x", admin=True, limits=limits)


class TestAuthenticate:
    @given(st.text(max_size=80))
    def test_refuses_any_other_text(
        self, tmp_path_factory: pytest.TempPathFactory, text: str
    ) -> None:
        with Keys.open(tmp_path_factory.getbasetemp() / "any") as keys:
            _refused(keys, text)

    def test_every_letter_counts(self, keys: Keys) -> None:
        _, text = keys.create("x", admin=True)
        _, other = keys.create("y", admin=True)
        for place in range(len(text)):
            _refused(keys, text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :])
            _refused(keys, text[:place] + text[place + 1 :])
        _refused(keys, text + "A")
        _refused(keys, text + "\n")
        _refused(keys, f" {text}")
        _refused(keys, text[:12] + other[12:])
        keys.authenticate(text)

    def test_the_digest_does_not_serve_as_a_key(self, keys: Keys, tmp_path: Path) -> None:
        grant, _ = keys.create("x", admin=True)
        with closing(sqlite3.connect(tmp_path / "keys.sqlite")) as connection:
            [(digest,)] = connection.execute("SELECT hex(digest) FROM key")
        _refused(keys, f"bm_{grant.id}_{digest[:43]}")

    def test_the_error_does_not_repeat_the_key(self, keys: Keys) -> None:
        text = f"bm_abcdefgh_{'s' * 43}"
        with pytest.raises(AccessError) as caught:
            keys.authenticate(text)
        assert str(caught.value) == "unknown key"

    def test_expires(self, keys: Keys, clock: Clock) -> None:
        grant, text = keys.create("x", admin=True, expires=clock.now + 10)
        clock.now += 9.9
        keys.authenticate(text)
        keys.recheck(grant)
        clock.now += 0.1
        _refused(keys, text, "has expired")
        with pytest.raises(AccessError, match="has expired"):
            keys.recheck(grant)

    def test_revoked(self, keys: Keys, clock: Clock) -> None:
        grant, text = keys.create("x", admin=True)
        _, other = keys.create("y", admin=True)
        assert keys.revoke(grant.id) == grant.id
        _refused(keys, text, "was revoked")
        with pytest.raises(AccessError, match="was revoked"):
            keys.recheck(grant)
        keys.authenticate(other)
        [info] = [info for info in keys.list() if info.grant.id == grant.id]
        assert info.revoked == clock.now
        clock.now += 5
        keys.revoke(text)  # the key does for the id; the first time stays
        [info] = [info for info in keys.list() if info.grant.id == grant.id]
        assert info.revoked == clock.now - 5

    def test_only_who_has_the_secret_hears_that_it_was_revoked(self, keys: Keys) -> None:
        grant, text = keys.create("x", admin=True)
        keys.revoke(grant.id)
        _refused(keys, text[:-2] + ("AA" if text[-2:] != "AA" else "BB"), "unknown key")

    def test_revoking_what_is_not_there(self, keys: Keys) -> None:
        with pytest.raises(BrokerError, match="no key 'nobody'"):
            keys.revoke("nobody")


class TestAny:
    def test_ending_the_last_key_does_not_open_the_doors(self, keys: Keys, clock: Clock) -> None:
        assert not keys.any()
        grant, _ = keys.create("x", admin=True)
        assert keys.any()
        keys.revoke(grant.id)
        assert keys.any()
        with pytest.raises(AccessError, match="a key is needed"):
            keys.admit(None)

    def test_nor_does_a_fresh_file(self, keys: Keys, tmp_path: Path) -> None:
        _, text = keys.create("x", admin=True)
        for path in tmp_path.iterdir():
            path.unlink()
        assert keys.any()
        Keys.open(tmp_path).close()
        assert keys.any()
        _refused(keys, text)

    def test_admit(self, tmp_path: Path) -> None:
        limits = Limits(events_per_second=3.0)
        with Keys.open(tmp_path, limits=limits, refresh_seconds=0) as keys:
            everything = keys.admit(None)
            assert everything == replace(OPEN, limits=limits)
            assert keys.admit("whatever") == everything
            keys.recheck(everything)
            grant, text = keys.create("x", publish=["a"])
            assert keys.admit(text) == grant
            with pytest.raises(AccessError) as caught:
                keys.admit(None)
            assert caught.value.unknown
            with pytest.raises(AccessError, match="needed now"):
                keys.recheck(everything)


class TestTwoProcesses:
    """The command line writes while a server runs: each has its own connection."""

    def test_changes_are_seen(self, keys: Keys, tmp_path: Path) -> None:
        with Keys.open(tmp_path) as elsewhere:
            grant, text = elsewhere.create("x", publish=["a"])
            assert keys.any()
            assert keys.authenticate(text) == grant
            elsewhere.revoke(grant.id)
            _refused(keys, text, "was revoked")
        assert [info.grant for info in keys.list()] == [grant]

    def test_within_the_time_that_was_set(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock()
        monkeypatch.setattr(keys_module.time, "monotonic", clock)
        with Keys.open(tmp_path, refresh_seconds=0.5) as keys, Keys.open(tmp_path) as elsewhere:
            assert not keys.any()
            grant, text = elsewhere.create("x", admin=True)
            assert not keys.any()
            keys.authenticate(text)  # at once: whoever makes a key uses it
            assert keys.any()
            elsewhere.revoke(grant.id)
            clock.now += 0.4
            keys.authenticate(text)
            clock.now += 0.1
            _refused(keys, text, "was revoked")

    def test_a_writer_does_not_hold_up_those_who_ask(self, keys: Keys, tmp_path: Path) -> None:
        _, text = keys.create("x", admin=True)
        with closing(sqlite3.connect(tmp_path / "keys.sqlite", isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("DELETE FROM key")
            keys.authenticate(text)
            writer.execute("ROLLBACK")

    def test_another_file_in_its_place(self, keys: Keys, tmp_path: Path) -> None:
        _, old = keys.create("old", admin=True)
        with Keys.open(tmp_path / "other") as other:
            _, new = other.create("new", admin=True)
        for path in tmp_path.glob("keys.sqlite-*"):
            path.unlink()
        (tmp_path / "other" / "keys.sqlite").replace(tmp_path / "keys.sqlite")
        assert keys.authenticate(new).label == "new"
        _refused(keys, old)

    def test_many_threads(self, tmp_path: Path) -> None:
        failures: list[BaseException] = []
        with Keys.open(tmp_path, refresh_seconds=0) as keys:
            _, steady = keys.create("steady", admin=True)

            def work() -> None:
                try:
                    for _ in range(10):
                        grant, text = keys.create("x", publish=["a"])
                        assert keys.authenticate(text) == grant
                        assert keys.authenticate(steady).admin
                        keys.revoke(grant.id)
                        _refused(keys, text, "was revoked")
                except BaseException as error:
                    failures.append(error)

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert failures == []
            assert len(keys.list()) == 41

    def test_opened_at_once_by_many(self, tmp_path: Path) -> None:
        failures: list[BaseException] = []

        def work() -> None:
            try:
                with Keys.open(tmp_path / "new") as keys:
                    keys.create("x", admin=True)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        with Keys.open(tmp_path / "new") as keys:
            assert len(keys.list()) == 8


class TestFile:
    def test_keys_last(self, tmp_path: Path) -> None:
        with Keys.open(tmp_path / "deep" / "data") as keys:
            made = [keys.create(label, admin=True)[0] for label in "abc"]
        with Keys.open(tmp_path / "deep" / "data", make=False) as keys:
            assert [info.grant for info in keys.list()] == made

    def test_is_not_made_unasked(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="no keys in"):
            Keys.open(tmp_path / "typo", make=False)
        assert not (tmp_path / "typo").exists()

    def test_of_something_else(self, tmp_path: Path) -> None:
        with closing(sqlite3.connect(tmp_path / "keys.sqlite")) as connection:
            connection.execute("CREATE TABLE other (x)")
        with pytest.raises(StorageError, match="something else"):
            Keys.open(tmp_path)

    def test_from_a_backup(self, tmp_path: Path) -> None:
        with Keys.open(tmp_path) as keys:
            _, text = keys.create("x", admin=True)
        with closing(sqlite3.connect(tmp_path / "keys.sqlite")) as connection:
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        with Keys.open(tmp_path) as keys:
            keys.authenticate(text)
        with closing(sqlite3.connect(tmp_path / "keys.sqlite")) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]

    def test_of_another_format(self, tmp_path: Path) -> None:
        Keys.open(tmp_path).close()
        with closing(sqlite3.connect(tmp_path / "keys.sqlite")) as connection:
            connection.execute("PRAGMA user_version = 9")
        with pytest.raises(StorageError, match="has format 9"):
            Keys.open(tmp_path)

    def test_empty(self, tmp_path: Path) -> None:
        (tmp_path / "keys.sqlite").touch()
        with pytest.raises(StorageError, match="not a file of keys"):
            Keys.open(tmp_path)

    def test_nothing_is_left_beside_it(self, tmp_path: Path) -> None:
        Keys.open(tmp_path).close()
        assert [path.name for path in tmp_path.iterdir()] == ["keys.sqlite"]

    def test_no_database(self, tmp_path: Path) -> None:
        (tmp_path / "keys.sqlite").write_bytes(b"not a database" * 1000)
        with pytest.raises(StorageError, match=r"keys\.sqlite"):
            Keys.open(tmp_path)

    def test_no_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StorageError):
            Keys.open(tmp_path / "file")

    @pytest.mark.parametrize(
        "damage",
        [
            "roles = '{'",
            "roles = '[]'",
            "roles = '{}'",
            "limits = 'null'",
            """limits = '{"speed": 1}'""",
            "digest = 'text'",
            "earlier = 'null'",
            "earlier = '[1]'",
            """earlier = '[["xy", 1]]'""",
        ],
    )
    def test_a_damaged_key(self, tmp_path: Path, damage: str) -> None:
        with Keys.open(tmp_path) as keys:
            keys.create("x", admin=True)
        with closing(sqlite3.connect(tmp_path / "keys.sqlite")) as connection:
            connection.execute(f"UPDATE key SET {damage}")
            connection.commit()
        with pytest.raises(StorageError, match="damaged"):
            Keys.open(tmp_path)

    def test_what_was_read_is_good_for_a_while(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock()
        monkeypatch.setattr(keys_module.time, "monotonic", clock)
        with Keys.open(tmp_path) as keys:
            _, text = keys.create("x", admin=True)
            with closing(sqlite3.connect(tmp_path / "keys.sqlite")) as connection:
                connection.execute("UPDATE key SET roles = '{}'")
                connection.commit()
                for _ in range(3):
                    clock.now += 10
                    keys.authenticate(text)
                clock.now += 1
                for _ in range(2):
                    with pytest.raises(StorageError, match="damaged"):
                        keys.authenticate(text)
                connection.execute(
                    "UPDATE key SET roles = "
                    """'{"admin": false, "publish": ["a"], "read": [], "subscribe": []}'"""
                )
                connection.commit()
            assert keys.authenticate(text).publish == {"a"}

    def test_after_closing(self, tmp_path: Path) -> None:
        with Keys.open(tmp_path, refresh_seconds=0) as keys:
            _, text = keys.create("x", admin=True)
        keys.close()
        with pytest.raises(StorageError, match="closed"):
            keys.authenticate(text)
        with pytest.raises(StorageError, match="closed"):
            keys.create("y", admin=True)
        with pytest.raises(StorageError, match="closed"):
            keys.revoke("y")


def _refused(keys: Keys, text: str, said: str = "unknown key") -> None:
    with pytest.raises(AccessError, match=said) as caught:
        keys.authenticate(text)
    assert caught.value.unknown
