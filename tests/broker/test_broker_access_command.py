from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from boxmatch.broker.access import Keys
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
        for arguments in (("list",), ("revoke", "abc")):
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
