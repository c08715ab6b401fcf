from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from boxmatch.broker.access import Keys
from boxmatch.cli.key_descriptions import describe_key, describe_roles
from boxmatch.errors import AccessError
from command_line import Command


class TestKeys:
    def test_made_listed_and_revoked_while_a_broker_has_them(
        self, run_boxmatch: Command, tmp_path: Path
    ) -> None:
        data = ("--data", str(tmp_path))
        with Keys.open(tmp_path, refresh_seconds=0) as broker:
            made = run_boxmatch("admin", "keys", "create", "the shop", "--publish", "sales",
                                "--publish", "news", "--subscribe", "bob", *data)  # fmt: skip
            assert made.code == 0
            text = made.out.strip()  # nothing but the key, for scripts
            grant = broker.authenticate(text)
            assert grant.publish == {"sales", "news"}
            assert grant.subscribe == {"bob"}
            assert "publish to news, sales; subscribe as bob" in made.err
            assert text not in made.err

            shown = run_boxmatch("admin", "keys", "list", *data)
            assert grant.id in shown.out
            assert "active" in shown.out
            assert text not in shown.out

            revoked = run_boxmatch("admin", "keys", "revoke", grant.id, *data)
            assert revoked == (0, f"Key {grant.id} is revoked.\n", "")
            with pytest.raises(AccessError, match="was revoked"):
                broker.authenticate(text)
            assert "revoked" in run_boxmatch("admin", "keys", "list", *data).out

    def test_json(self, run_boxmatch: Command, tmp_path: Path) -> None:
        data = ("--data", str(tmp_path), "--json")
        made = json.loads(
            run_boxmatch("admin", "keys", "create", "x", "--read", "*", "--events-per-second",
                         "5", "--subscriptions", "7", "--expires", "2w", *data).out
        )  # fmt: skip
        assert re.fullmatch(rf"bm_{made['id']}_.{{43}}", made["key"])
        listed = json.loads(run_boxmatch("admin", "keys", "list", *data).out)
        assert "key" not in listed
        assert {name: listed[name] for name in made if name != "key"} == {
            "id": made["id"],
            "label": "x",
            "admin": False,
            "publish": [],
            "read": ["*"],
            "subscribe": [],
            "subscribe_to": [],
            "limits": {"events_per_second": 5.0, "subscriptions": 7},
        }
        assert listed["state"] == "active"
        assert listed["revoked"] is None
        assert listed["expires"] - listed["created"] == pytest.approx(14 * 86400, abs=5)
        with Keys.open(tmp_path) as keys:
            limits = keys.authenticate(made["key"]).limits
        assert (limits.events_per_second, limits.subscriptions) == (5.0, 7)

    @pytest.mark.parametrize(
        ("text", "moment"),
        [
            ("2999-01-31", 32474736000.0),
            ("2999-01-31T12:00", 32474779200.0),
            ("2999-01-31T12:00+01:00", 32474775600.0),
        ],
    )
    def test_dates(self, run_boxmatch: Command, tmp_path: Path, text: str, moment: float) -> None:
        run_boxmatch("admin", "keys", "create", "x", "--admin", "--expires", text, "--data",
                     str(tmp_path))  # fmt: skip
        with Keys.open(tmp_path) as keys:
            assert [info.expires for info in keys.list()] == [moment]
        assert "2999-01-31" in run_boxmatch("admin", "keys", "list", "--data", str(tmp_path)).out

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ((), "needs a role"),
            (("--publish", "a b"), "cannot be the name of a feed"),
            (("--admin", "--expires", "soon"), "neither like 90d nor a date"),
            (("--admin", "--expires", "2001-01-01"), "in the future"),
            (("--admin", "--expires", "999999999w"), "before the year 10000"),
            (("--admin", "--body-bytes", "-1"), "body-bytes"),
            (("--publish", "a", "--subscribe-to", "a"), "needs a subscriber"),
            (("--admin", "--subscribe-to", "a"), "an admin may subscribe to all feeds"),
            (("--subscribe", "a", "--subscribe-to", "a b"), "cannot be the name of a feed"),
            (("--admin", "--events-per-second", "inf"), "cannot be inf"),
        ],
    )
    def test_mistakes(
        self, run_boxmatch: Command, tmp_path: Path, arguments: tuple[str, ...], said: str
    ) -> None:
        done = run_boxmatch(
            "admin", "keys", "create", "x", *arguments, "--data", str(tmp_path / "data")
        )
        assert done.code == 2
        assert done.out == ""
        assert said in re.sub(r"[\s│]+", " ", done.err)
        with Keys.open(tmp_path / "data") as keys:
            assert not keys.any()

    def test_a_label_is_no_markup(self, run_boxmatch: Command, tmp_path: Path) -> None:
        data = ("--data", str(tmp_path))
        run_boxmatch("admin", "keys", "create", "[b]x[/i]", "--admin", *data)
        assert "[b]x[/i]" in run_boxmatch("admin", "keys", "list", *data).out

    def test_of_a_folder_without_any(self, run_boxmatch: Command, tmp_path: Path) -> None:
        data = ("--data", str(tmp_path / "typo"))
        for arguments in (("list",), ("revoke", "abc"), ("show", "abc"), ("rotate", "abc")):
            done = run_boxmatch("admin", "keys", *arguments, *data)
            assert done.code == 2
            assert "there are no keys in" in done.err
        assert not (tmp_path / "typo").exists()

    def test_shows_that_one_has_expired(self, run_boxmatch: Command, tmp_path: Path) -> None:
        with Keys.open(tmp_path, clock=lambda: time.time() - 100) as keys:
            keys.create("x", admin=True, expires=time.time() - 50)
        listed = json.loads(
            run_boxmatch("admin", "keys", "list", "--data", str(tmp_path), "--json").out
        )
        assert listed["state"] == "expired"

    def test_feeds_to_subscribe_to(self, run_boxmatch: Command, tmp_path: Path) -> None:
        data = ("--data", str(tmp_path))
        made = run_boxmatch("admin", "keys", "create", "x", "--subscribe", "bob", "--subscribe-to",
                            "sales", "--subscribe-to", "news", *data)  # fmt: skip
        assert "may subscribe as bob to news, sales." in made.err
        plain = run_boxmatch("admin", "keys", "create", "y", "--subscribe", "bob", *data)
        assert "may subscribe as bob. " in plain.err  # as before there was a choice
        with Keys.open(tmp_path) as keys:
            assert keys.authenticate(made.out.strip()).subscribed_feeds == {"sales", "news"}
            assert keys.authenticate(plain.out.strip()).subscribed_feeds is None
        lines = run_boxmatch("admin", "keys", "list", *data, "--json").out.splitlines()
        told = {one["label"]: one["subscribe_to"] for one in map(json.loads, lines)}
        assert told == {"x": ["news", "sales"], "y": ["*"]}

    def test_rotated_while_a_broker_has_it(self, run_boxmatch: Command, tmp_path: Path) -> None:
        data = ("--data", str(tmp_path))
        made = run_boxmatch("admin", "keys", "create", "shop", "--publish", "sales", *data)
        old = made.out.strip()
        with Keys.open(tmp_path, refresh_seconds=0) as broker:
            grant = broker.authenticate(old)
            rotated = run_boxmatch("admin", "keys", "rotate", "shop", *data)
            assert rotated.code == 0
            new = rotated.out.strip()
            assert f"Key {grant.id} has a new secret; the old one is valid until " in rotated.err
            assert new not in rotated.err
            assert broker.authenticate(new) == broker.authenticate(old) == grant
            [info] = broker.list()
            assert info.earlier[0] - time.time() == pytest.approx(3600, abs=60)
            shown = run_boxmatch("admin", "keys", "show", grant.id, *data).out.splitlines()
            assert shown[0] == (
                f"Key {grant.id} ('shop') may publish to 'sales', subscribe to nothing, and read "
                f"nothing; it never expires."
            )
            assert re.fullmatch(
                r"A secret that was replaced is valid for another 60 minutes, until .* UTC\.",
                shown[1],
            )
            done = run_boxmatch("admin", "keys", "rotate", new, "--overlap", "0m", *data, "--json")
            document = json.loads(done.out)
            assert document["earlier_secrets_end"] == []
            for text in (old, new):
                with pytest.raises(AccessError, match="unknown key"):
                    broker.authenticate(text)
            assert broker.authenticate(document["key"]) == grant
            again = run_boxmatch("admin", "keys", "rotate", "shop", "--overlap", "0m", *data)
            assert "; the old one has ended. " in again.err
            assert run_boxmatch("admin", "keys", "revoke", "shop", *data).code == 0
            shown = run_boxmatch("admin", "keys", "show", grant.id, *data).out.splitlines()
            assert len(shown) == 1
            assert "could publish to 'sales'" in shown[0]

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("rotate", "x", "--overlap", "soon"), "'soon' is no time like 30m"),
            (("rotate", "x", "--overlap", "1"), "'1' is no time like 30m"),
            (("rotate", "x", "--overlap", "-1h"), "'-1h' is no time like 30m"),
            (("rotate", "x", "--overlap", "999999999w"), "before the year 10000"),
            (("rotate", "y"), "there is no key 'y'"),
            (("show", "y"), "there is no key 'y'"),
            (("rotate", "two"), "several keys have the label 'two'"),
            (("show", "two"), "several keys have the label 'two'"),
            (("rotate", "gone"), "was revoked: create another one"),
        ],
    )
    def test_mistakes_with_keys_that_are_there(
        self, run_boxmatch: Command, tmp_path: Path, arguments: tuple[str, ...], said: str
    ) -> None:
        with Keys.open(tmp_path) as keys:
            for label in ("x", "two", "two", "gone"):
                keys.create(label, admin=True)
            keys.revoke("gone")
            before = keys.list()
            done = run_boxmatch("admin", "keys", *arguments, "--data", str(tmp_path))
            assert (done.code, done.out) == (2, "")
            assert said in re.sub(r"[\s│]+", " ", done.err)
            assert keys.list() == before


DAY = 86400.0


@pytest.mark.parametrize(
    ("given", "sentence", "short"),
    [
        ({"admin": True}, "do everything", "do everything"),
        (
            {"publish": ["ticks"], "subscribe": ["alice"], "subscribe_to": ["trades", "ticks"]},
            "publish to 'ticks', subscribe as 'alice' to 'ticks' and 'trades', and read nothing",
            "publish to ticks; subscribe as alice to ticks, trades",
        ),
        (
            {"subscribe": ["bob", "alice"]},
            "subscribe as 'alice' and 'bob' to every feed, publish nothing, and read nothing",
            "subscribe as alice, bob",
        ),
        (
            {"subscribe": ["*"], "subscribe_to": ["a"], "read": ["*"], "publish": ["*", "a"]},
            "publish to every feed, subscribe as every subscriber to 'a', and read every feed",
            "publish to *, a; read *; subscribe as * to a",
        ),
        (
            {"read": ["a", "b", "c"]},
            "read 'a', 'b' and 'c', publish nothing, and subscribe to nothing",
            "read a, b, c",
        ),
    ],
)
def test_what_a_key_may_do(
    tmp_path: Path, given: dict[str, Any], sentence: str, short: str
) -> None:
    with Keys.open(tmp_path) as keys:
        grant, _ = keys.create("x", **given)
        [info] = keys.list()
    assert describe_roles(grant) == short
    [said] = describe_key(info, time.time())
    assert said == f"Key {grant.id} ('x') may {sentence}; it never expires."


@pytest.mark.parametrize(
    ("passed", "sentences"),
    [
        (0.0, ["may do everything; it expires in 12 days", "90 minutes, until 2001-09-09 03:16"]),
        (60.0, ["may do everything; it expires in 12 days", "89 minutes, until 2001-09-09 03:16"]),
        (5399.0, ["may do everything; it expires in 12 days", "1 second, until 2001-09-09 03:16"]),
        (5400.0, ["may do everything; it expires in 12 days"]),
        (10.0 * DAY, ["may do everything; it expires in 2 days"]),
        (10.6 * DAY, ["may do everything; it expires in 34 hours"]),
        (12 * DAY - 140, ["may do everything; it expires in 2 minutes"]),
        (12 * DAY - 100, ["may do everything; it expires in 100 seconds"]),
        (12 * DAY - 1, ["may do everything; it expires in 1 second"]),
        (12 * DAY, ["could do everything; it expired 1 second ago"]),
        (400 * DAY, ["could do everything; it expired 388 days ago"]),
    ],
)
def test_for_how_long(tmp_path: Path, passed: float, sentences: list[str]) -> None:
    now = 1_000_000_000.0
    with Keys.open(tmp_path, clock=lambda: now) as keys:
        grant, _ = keys.create("x", admin=True, expires=now + 12 * DAY, limits={"body_bytes": 5})
        info, _ = keys.rotate(grant.id, 5400)
    said, limits, *more = describe_key(info, now + passed)
    assert said == f"Key {grant.id} ('x') {sentences[0]}."
    assert limits == "Its own limits: body_bytes 5."
    assert more == [
        f"A secret that was replaced is valid for another {one} UTC." for one in sentences[1:]
    ]
    revoked = info._replace(revoked=now + passed)
    said, *_ = describe_key(revoked, now + passed + 3 * DAY)
    assert said == f"Key {grant.id} ('x') could do everything; it was revoked 3 days ago."
