from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmatch.errors import StorageError, SubscriptionIdError
from boxmatch.spaces.journal import Journal
from boxmatch.spaces.journal_rows import MemberChange
from boxmatch.spaces.records import Which
from boxmatch.spaces.transitions import Transition, Transitions
from boxmatch.storage.group_commit import Ticket

SETTINGS = '{"spaces": {}}'
WHICH: tuple[Which, ...] = ("publication", "subscription")
SOON = 10.0  # seconds; nothing here should come near it


def open_journal(path: Path, sync: Any = "normal") -> Journal:
    """Not the safest way, which keeps the disk busy; the tests of sudden ends take that too."""
    return Journal.open(path, settings=SETTINGS, sync=sync)


def id_column(ids: Sequence[object]) -> Any:
    if ids and isinstance(ids[0], int):
        return np.array(ids, np.int64)
    column = np.empty(len(ids), object)
    column[:] = ids
    return column


def notified(first: int, rows: Sequence[tuple[int, object, object]]) -> Transitions:
    codes, publications, subscriptions = zip(*rows, strict=True) if rows else ((), (), ())
    return Transitions(
        first, np.array(codes, np.uint8), id_column(publications), id_column(subscriptions)
    )


def put(number: int, first: int = 0, tells: int = 0) -> MemberChange:
    """A publication whose body and transitions follow from its number."""
    rows = [(place % 3, number, f"s{place}") for place in range(tells)]
    return MemberChange("publication", number, b"number %d" % number, None, notified(first, rows))


def one_by_one(batches: Iterable[Transitions]) -> list[Transition]:
    return [transition for batch in batches for transition in batch]


# What was written is read again

int_ids = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([1, 2**53 + 1, -(2**63), 2**63 - 1])
text_ids = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["1", "", "a\0b"])


@st.composite
def tellings(draw: st.DrawFn) -> list[tuple[int, object, object]]:
    publications, subscriptions = (
        draw(st.sampled_from([int_ids, text_ids])),
        draw(st.sampled_from([int_ids, text_ids])),
    )
    rows = st.tuples(st.integers(0, 2), publications, subscriptions)
    drawn = draw(st.lists(rows, max_size=6))
    if drawn and draw(st.booleans()):  # as operations tell: one side is the same everywhere
        drawn = [(code, drawn[0][1], subscription) for code, _, subscription in drawn]
    return drawn


steps = st.tuples(
    st.sampled_from(WHICH),
    st.sampled_from([1, "1"]) | int_ids | text_ids,
    st.none() | st.binary(),
    st.none() | st.floats(allow_nan=False),
    tellings(),
)


@settings(max_examples=40)
@given(st.lists(st.lists(steps, max_size=4), max_size=5), st.booleans(), st.integers(0, 30))
def test_members_and_notifications_come_back(
    tmp_path_factory: pytest.TempPathFactory,
    calls: list[list[Any]],
    reopens: bool,
    since: int,
) -> None:
    path = tmp_path_factory.mktemp("journal") / "spaces"
    members: dict[str, dict[object, tuple[bytes, float | None]]]
    members = {"publication": {}, "subscription": {}}
    expected: list[Transition] = []
    journal = open_journal(path)
    for call in calls:
        changes = []
        for which, member_id, body, expires, rows in call:
            batch = notified(len(expected) + 1, rows)
            expected += batch
            changes.append(MemberChange(which, member_id, body, expires, batch))
            if body is None:
                members[which].pop(member_id, None)
            else:
                members[which][member_id] = (body, expires)
        journal.write(*changes).wait(SOON)
        if reopens:
            journal.close()
            journal = open_journal(path)
    with journal:
        for which in WHICH:
            found = list(journal.members(which))
            assert found == [(key, *value) for key, value in members[which].items()]
            assert [type(row[0]) for row in found] == [type(key) for key in members[which]]
        assert journal.next_sequence == len(expected) + 1
        assert one_by_one(journal.transitions()) == expected
        later = one_by_one(journal.transitions(since))
        assert later == [one for one in expected if one.sequence >= since]


def test_columns_keep_their_types(tmp_path: Path) -> None:
    with open_journal(tmp_path / "j") as journal:
        batch = notified(1, [(0, 7, "a"), (2, 7, "b")])
        journal.write(MemberChange("publication", np.int64(7), b"{}", 1, batch)).wait(SOON)  # type: ignore[arg-type]
        [again] = journal.transitions()
        dtypes = [again.code.dtype, again.publication.dtype, again.subscription.dtype]
        assert dtypes == [np.uint8, np.int64, object]
        assert list(journal.members("publication")) == [(7, b"{}", 1.0)]


def test_a_change_that_tells_many_takes_few_bytes(tmp_path: Path) -> None:
    count = 50_000
    others = np.arange(count) + 2**60
    batch = Transitions(1, np.zeros(count, np.uint8), np.full(count, "p" * 500, object), others)
    with open_journal(tmp_path / "j") as journal:
        journal.write(MemberChange("publication", "p", b"{}", None, batch)).wait(SOON)
        [(size,)] = journal._read("SELECT length(columns) FROM notified")
        assert size < 8 * count + 1000
        [again] = journal.transitions()
        np.testing.assert_array_equal(again.subscription, others)
        assert set(again.publication) == {"p" * 500}


def test_members_stay_in_the_order_in_which_they_were_added(tmp_path: Path) -> None:
    with open_journal(tmp_path / "j") as journal:
        none = notified(0, [])
        for number in range(2500):  # more than a page
            journal.write(put(number))
        journal.write(MemberChange("publication", 3, b"changed", None, none))
        journal.write(MemberChange("publication", 4, None, None, none))
        journal.write(MemberChange("publication", 5, None, None, none))
        journal.write(put(4)).wait(SOON)
        ids = [member_id for member_id, _, _ in journal.members("publication")]
        assert ids == [n for n in range(2500) if n not in (4, 5)] + [4]
        assert list(journal.members("subscription")) == []


def test_since_may_lie_within_a_batch(tmp_path: Path) -> None:
    with open_journal(tmp_path / "j") as journal:
        for number in range(120):  # more than a page
            journal.write(put(number, 1 + 5 * number, tells=5))
        journal.write().wait(SOON)
        everything = one_by_one(journal.transitions())
        assert [one.sequence for one in everything] == list(range(1, 601))
        for since in (-1, 1, 2, 5, 6, 7, 299, 600):
            batches = list(journal.transitions(since))
            assert batches[0].first == max(since, 1)
            assert one_by_one(batches) == everything[max(since, 1) - 1 :]
        assert list(journal.transitions(601)) == list(journal.transitions(2**70)) == []


def test_what_is_forgotten_is_not_numbered_again(tmp_path: Path) -> None:
    with open_journal(tmp_path / "j") as journal:
        for number in range(4):
            journal.write(put(number, 1 + 5 * number, tells=5))
        journal.forget_transitions(8)
        assert [len(batch) for batch in journal.transitions()] == [3, 5, 5]
        journal.forget_transitions(3)  # does not bring anything back
        assert journal.first_sequence == 8
    with open_journal(tmp_path / "j") as journal:
        assert (journal.first_sequence, journal.next_sequence) == (8, 21)
        assert next(journal.transitions()).first == 8
        journal.forget_transitions(1000)
    with open_journal(tmp_path / "j") as journal:
        assert (journal.first_sequence, journal.next_sequence) == (21, 21)
        assert list(journal.transitions()) == []
        journal.write(put(9, 21, tells=2)).wait(SOON)
        assert [one.sequence for one in one_by_one(journal.transitions())] == [21, 22]
        assert len(list(journal.members("publication"))) == 5


# What is refused


def test_numbers_without_a_gap(tmp_path: Path) -> None:
    with open_journal(tmp_path / "j") as journal:
        journal.write(put(0, 1, tells=3))
        for first in (1, 3, 5):
            with pytest.raises(StorageError, match=f"from {first} on cannot follow .* before 4"):
                journal.write(put(1, first, tells=1))
        with pytest.raises(StorageError, match="from 4 on cannot follow"):
            journal.write(put(1, 4, tells=1), put(2, 4, tells=1))
        journal.write(put(3, 4, tells=1)).wait(SOON)
        assert [row[0] for row in journal.members("publication")] == [0, 3]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (MemberChange("publication", 2**63, b"{}", None, notified(0, [])), SubscriptionIdError),
        (MemberChange("publication", True, b"{}", None, notified(0, [])), SubscriptionIdError),
        (MemberChange("publication", "\ud800", b"{}", None, notified(0, [])), SubscriptionIdError),
        (MemberChange("publication", 1, b"{}", float("nan"), notified(0, [])), StorageError),
        (MemberChange("publication", 1, b"{}", None, notified(1, [(3, 1, 2)])), StorageError),
        (
            MemberChange("publication", 1, b"{}", None, notified(1, [(0, "\ud800", 2)])),
            SubscriptionIdError,
        ),
        (
            MemberChange("publication", 1, b"{}", None, notified(1, [(0, "a", 2), (0, 3, 2)])),
            SubscriptionIdError,
        ),
        (MemberChange("other", 1, b"{}", None, notified(0, [])), StorageError),  # type: ignore[arg-type]
    ],
)
def test_a_change_that_cannot_be_kept_is_refused_at_once(
    tmp_path: Path, change: MemberChange, error: type[Exception]
) -> None:
    with open_journal(tmp_path / "j") as journal:
        with pytest.raises(error):
            journal.write(put(1), change)
        journal.write(put(2)).wait(SOON)
        assert [row[0] for row in journal.members("publication")] == [2]


def test_settings_stay(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "j"
    with pytest.raises(StorageError, match="no spaces"):
        Journal.open(path, settings=None)
    assert not path.parent.exists()
    open_journal(path).close()
    for again in (None, "[]"):
        with Journal.open(path, settings=again) as journal:
            assert journal.settings == SETTINGS


def test_one_opener_at_a_time(tmp_path: Path) -> None:
    with open_journal(tmp_path / "j"):
        with pytest.raises(StorageError, match="open already"):
            open_journal(tmp_path / "j")
        script = (
            "import sys; from boxmatch.spaces.journal import Journal\n"
            "Journal.open(sys.argv[1], settings=sys.argv[2])"
        )
        command = [sys.executable, "-c", script, str(tmp_path / "j"), SETTINGS]
        other = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "StorageError" in other.stderr
        assert "open already" in other.stderr
    open_journal(tmp_path / "j").close()


def test_after_closing(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "j")
    tickets = [journal.write(put(number)) for number in range(100)]
    journal.close()
    journal.close()
    for ticket in tickets:
        ticket.wait(0)
    for use in (
        lambda: journal.write(put(1)),
        lambda: journal.forget_transitions(1),
        lambda: list(journal.members("publication")),
    ):
        with pytest.raises(StorageError, match="is closed"):
            use()
    with open_journal(tmp_path / "j") as again:
        assert len(list(again.members("publication"))) == 100


@pytest.mark.parametrize(("sync", "level"), [("full", 2), ("normal", 1)])
def test_sync_is_what_sqlite_does(tmp_path: Path, sync: Any, level: int) -> None:
    with open_journal(tmp_path / "j", sync=sync) as journal:
        assert journal._database.connection.execute("PRAGMA synchronous").fetchall() == [(level,)]
        assert journal._database.connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
    with pytest.raises(StorageError, match="sync is"):
        open_journal(tmp_path / "j", sync="off")


# Files that are not as they were left


def test_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    with pytest.raises(StorageError, match="Not a directory"):
        open_journal(tmp_path / "file")
    with pytest.raises(StorageError, match="Not a directory"):
        open_journal(tmp_path / "file" / "below")
    with pytest.raises(StorageError, match="holds other files"):
        open_journal(tmp_path)

    plain = tmp_path / "text"
    plain.mkdir()
    (plain / "journal.sqlite").write_text("hello, I am no database" * 100)
    other = tmp_path / "other"
    other.mkdir()
    connection = sqlite3.connect(other / "journal.sqlite")
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    for path, reason in ((plain, "not a database"), (other, "database of something else")):
        for text in (SETTINGS, None):
            with pytest.raises(StorageError, match=reason):
                Journal.open(path, settings=text)


def test_other_formats(tmp_path: Path) -> None:
    open_journal(tmp_path / "j").close()
    connection = sqlite3.connect(tmp_path / "j" / "journal.sqlite")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StorageError, match="has format 99; this version reads 2"):
        open_journal(tmp_path / "j")


def test_damage_shows(tmp_path: Path) -> None:
    with open_journal(tmp_path / "j") as journal:
        for number in range(50):
            journal.write(put(number, 1 + 40 * number, tells=40))
    whole = (tmp_path / "j" / "journal.sqlite").read_bytes()
    for marker in (b"number 33", b"s30s31"):
        at = whole.index(marker) + 3
        damaged = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        (tmp_path / "j" / "journal.sqlite").write_bytes(damaged)
        with (
            open_journal(tmp_path / "j") as journal,
            pytest.raises(StorageError, match="is damaged"),
        ):
            [*journal.members("publication"), *journal.transitions()]
    for size in (50, 5000, len(whole) // 2):
        (tmp_path / "j" / "journal.sqlite").write_bytes(whole[:size])
        with pytest.raises(StorageError), open_journal(tmp_path / "j") as journal:
            [*journal.members("publication"), *journal.transitions()]


def test_making_that_was_cut_short_begins_again(tmp_path: Path) -> None:
    (tmp_path / "j").mkdir()
    connection = sqlite3.connect(tmp_path / "j" / "journal.sqlite")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    with pytest.raises(StorageError, match="no spaces"):
        Journal.open(tmp_path / "j", settings=None)
    with open_journal(tmp_path / "j") as journal:
        journal.write(put(1)).wait(SOON)


def test_a_log_that_breaks_off_holds_a_prefix(tmp_path: Path) -> None:
    with open_journal(tmp_path / "j") as journal:
        for number in range(20):
            first = put(2 * number, 1 + 4 * number, tells=3)
            journal.write(first, put(2 * number + 1, 4 + 4 * number, 1)).wait(SOON)
        shutil.copytree(tmp_path / "j", tmp_path / "copy")
    log = (tmp_path / "copy" / "journal.sqlite-wal").read_bytes()
    counts = set()
    for size in random.Random(1).sample(range(len(log) // 4, len(log)), 12):
        copy = tmp_path / f"cut-{size}"
        shutil.copytree(tmp_path / "copy", copy)
        (copy / "journal.sqlite-wal").write_bytes(log[:size])
        with open_journal(copy) as journal:
            counts.add(check_prefix(journal, [3, 1] * 20))
    assert all(count % 2 == 0 for count in counts)
    assert len(counts) > 3


def check_prefix(journal: Journal, tells: Sequence[int]) -> int:
    """How many of the changes `put(0)`, `put(1)` … it holds, with what they tell."""
    numbers: list[Any] = [member_id for member_id, _, _ in journal.members("publication")]
    assert numbers == list(range(len(numbers)))
    found = one_by_one(journal.transitions())
    expected: list[Transition] = []
    for number in numbers:
        expected += put(number, len(expected) + 1, tells[number]).notified
    assert found == expected
    assert journal.next_sequence == len(expected) + 1
    return len(numbers)


# Commits


class Gate:
    """Sees the writer's statements, and can hold one of them up."""

    def __init__(self, journal: Journal, held: str) -> None:
        self._held = held
        self.open = threading.Event()
        self.reached = threading.Event()
        self.commits = 0
        journal._database.connection.set_trace_callback(self._see)

    def _see(self, statement: str) -> None:
        if statement.startswith(self._held):
            self.reached.set()
            self.open.wait(SOON)
        self.commits += statement == "COMMIT"


def test_callers_share_a_commit(tmp_path: Path) -> None:
    with open_journal(tmp_path / "j") as journal:
        gate = Gate(journal, "COMMIT")
        first = journal.write(put(0))
        assert gate.reached.wait(SOON)
        written = threading.Barrier(33)

        def write(number: int) -> None:
            ticket = journal.write(put(number))
            written.wait(SOON)
            ticket.wait(SOON)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(1, 33)]
        for thread in threads:
            thread.start()
        written.wait(SOON)
        with pytest.raises(TimeoutError):
            first.wait(0.01)
        assert list(journal.members("publication")) == []
        gate.open.set()
        for thread in threads:
            thread.join(SOON)
        first.wait(0)
        assert gate.commits == 2
        assert {row[0] for row in journal.members("publication")} == set(range(33))


def test_a_failed_commit_is_the_last(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "j")
    journal.write(put(0, 1, tells=2)).wait(SOON)
    [(pages,)] = journal._database.connection.execute("PRAGMA page_count")
    journal._database.connection.execute(
        f"PRAGMA max_page_count = {pages}"
    )  # as a full disk answers
    gate = Gate(journal, "BEGIN")
    large = put(1)._replace(body=b"x" * 100_000)
    tickets = [journal.write(large)]
    assert gate.reached.wait(SOON)
    tickets += [journal.write(put(2, 3, tells=1)), journal.write(put(3))]
    gate.open.set()
    for ticket in tickets * 2:
        with pytest.raises(StorageError, match=r"cannot write to .*disk is full") as caught:
            ticket.wait(SOON)
        assert isinstance(caught.value.__cause__, sqlite3.Error)
    for refused in (lambda: journal.write(put(4)), lambda: journal.forget_transitions(1)):
        with pytest.raises(StorageError, match="disk is full"):
            refused()
    assert [row[0] for row in journal.members("publication")] == [0]
    with pytest.raises(StorageError, match="disk is full"):
        journal.close()
    journal.close()
    with open_journal(tmp_path / "j") as again:
        assert check_prefix(again, [2]) == 1


def test_a_database_that_another_program_locks(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "j")
    journal._database.connection.execute("PRAGMA busy_timeout = 20")
    other = sqlite3.connect(tmp_path / "j" / "journal.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="locked"), journal:
        journal.write(put(0)).wait(SOON)
    other.close()


def test_leaving_the_block_tells_of_what_was_lost(tmp_path: Path) -> None:
    def lose(error: Exception | None) -> None:
        with open_journal(tmp_path / "j") as journal:
            journal._database.connection.execute("PRAGMA max_page_count = 1")
            journal.write(put(0)._replace(body=b"x" * 100_000))
            if error is not None:
                raise error

    with pytest.raises(StorageError, match="disk is full"):
        lose(None)
    with pytest.raises(KeyError, match="mine"):
        lose(KeyError("mine"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_process_is_turned_away(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from boxmatch.errors import StorageError\n"
        "from boxmatch.spaces.journal import Journal\n"
        "journal = Journal.open(sys.argv[1], settings='')\n"
        "if os.fork() == 0:\n"
        "    try:\n"
        "        journal.write()\n"
        "    except StorageError:\n"
        "        journal.close()\n"
        "        os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))\n"
        "journal.write().wait(10)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "j")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "7\n"


# Sudden ends

CHILD = """
import os, sys, threading
from test_journal import Journal, SETTINGS, put
journal = Journal.open(sys.argv[1], settings=SETTINGS, sync=sys.argv[2])
number = int(sys.argv[3])
turn = threading.Lock()

def work():
    global number
    while True:
        with turn:
            mine = number
            number += 1
            ticket = journal.write(put(mine, journal.next_sequence, tells=mine % 4))
        ticket.wait()
        os.write(1, b"%d\\n" % mine)

for _ in range(4):
    threading.Thread(target=work).start()
"""


def run_and_kill(path: Path, sync: str, begin: int, after: float) -> list[int]:
    """The numbers that a process acknowledged before it was ended."""
    command = [sys.executable, "-c", CHILD, str(path), sync, str(begin)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=Path(__file__).parent, text=True
    ) as child:
        timer = threading.Timer(after, child.kill)
        lines: list[str] = []
        for line in child.stdout or ():
            if not lines:
                timer.start()
            lines.append(line)
        timer.join(SOON)
    assert child.returncode == -signal.SIGKILL
    return [int(line) for line in lines if line.endswith("\n")]


def test_killed_in_the_middle_of_work(tmp_path: Path) -> None:
    random_source = random.Random(7)
    tells = [number % 4 for number in range(1_000_000)]
    acknowledged: set[int] = set()
    there = 0
    for turn in range(5):
        after = random_source.uniform(0, 0.15)
        numbers = run_and_kill(tmp_path / "j", ("full", "normal")[turn % 2], there, after)
        assert len(set(numbers)) == len(numbers) > 0
        acknowledged.update(numbers)
        with open_journal(tmp_path / "j") as journal:
            there = check_prefix(journal, tells)
        assert max(acknowledged) < there


def test_order_of_calls_is_the_order_on_disk(tmp_path: Path) -> None:
    turn = threading.Lock()
    tickets: list[Ticket] = []
    with open_journal(tmp_path / "j") as journal:

        def work() -> None:
            for _ in range(100):
                with turn:
                    ticket = journal.write(put(len(tickets), journal.next_sequence, tells=2))
                    tickets.append(ticket)
                ticket.wait(SOON)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert check_prefix(journal, [2] * 800) == 800
