"""Leases of notifications, with a clock that is given; also against plain Python."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from boxmatch.broker.delivery.leases import Exhausted, LeaseBook
from boxmatch.broker.store.progress import Progress
from boxmatch.wire.requests import Sharing

NOTHING = Progress(0, {})


def book_of(progress: Progress = NOTHING, **settings: int) -> LeaseBook:
    return LeaseBook(progress, Sharing(**settings))


def test_the_cursor_moves_over_what_is_done_without_a_gap() -> None:
    book = book_of()
    book.hand_out([3, 5, 8], "a", 10.0)
    assert (book.cursor, book.progress) == (2, Progress(8, {3: 1, 5: 1, 8: 1}))
    assert book.acknowledge([5, 5, 4]) == (1, [])
    assert (book.cursor, book.progress) == (2, Progress(8, {3: 1, 8: 1}))
    assert book.acknowledge([3]) == (1, [])
    assert book.cursor == 7
    assert book.acknowledge([8]) == (1, [])
    assert (book.cursor, book.progress) == (8, Progress(8, {}))


def test_what_is_rejected_waits_for_its_time() -> None:
    book = book_of()
    book.hand_out([1, 2], "a", 10.0)
    assert book.reject([1], 5.0, "busy") == 1
    assert book.reject([1], 5.0, "busy") == 0
    assert book.hand_out_again("b", 4.9, 20.0, 9) == []
    assert book.hand_out_again("b", 5.0, 20.0, 9) == [1]
    assert book.deliveries(1, "b") == 2
    assert book.deliveries(1, "a") is None


def test_only_who_has_it_may_reject_or_extend() -> None:
    book = book_of()
    book.hand_out([1], "a", 10.0)
    assert book.reject([1], 0.0, "", "b") == 0
    assert book.extend([1], 99.0, "b") == 0
    assert book.extend([1], 50.0, "a") == 1
    assert book.expire(49.0) == 0
    assert book.expire(50.0) == 1
    assert book.extend([1], 99.0, "a") == 0
    assert book.acknowledge([1]) == (1, [])  # too late, but done


def test_who_leaves_gives_back_what_it_had() -> None:
    book = book_of()
    book.hand_out([1, 2], "a", 10.0)
    book.hand_out([3], "b", 10.0)
    assert (book.held_by("a"), book.in_flight) == (2, 3)
    book.release("a")
    assert (book.held_by("a"), book.in_flight) == (0, 1)
    assert book.hand_out_again("b", 0.0, 10.0, 9) == [1, 2]


def test_what_did_not_go_out_was_not_delivered() -> None:
    book = book_of(max_deliveries=1)
    book.hand_out([1, 2], "a", 10.0)
    book.take_back([1, 2], "a")
    assert book.exhausted == []
    assert book.hand_out_again("a", 0.0, 10.0, 1) == [1]
    assert book.deliveries(1, "a") == 1


def test_after_so_many_deliveries_it_is_exhausted() -> None:
    book = book_of(max_deliveries=2)
    book.hand_out([1], "a", 10.0)
    book.reject([1], 0.0, "first")
    book.hand_out_again("a", 0.0, 10.0, 1)
    assert book.expire(10.0) == 1
    assert book.hand_out_again("a", 99.0, 110.0, 1) == []
    assert book.exhausted == [Exhausted(1, 2, "not acknowledged in time")]
    assert book.cursor == 0  # until it is a dead letter
    book.forget(1)
    assert (book.exhausted, book.cursor) == ([], 1)


def test_fewer_deliveries_may_be_allowed_later() -> None:
    book = book_of(max_deliveries=5)
    book.hand_out([1], "a", 10.0)
    book.reject([1], 0.0, "no")
    book.settings = Sharing(max_deliveries=1)
    assert [one.sequence for one in book.exhausted] == [1]
    book.settings = Sharing(max_deliveries=2)
    assert book.exhausted == []
    assert book.hand_out_again("a", 0.0, 10.0, 1) == [1]


def test_dead_letters_are_handed_out_once_more_beside_the_progress() -> None:
    book = book_of(Progress(9, {7: 1}))
    assert book.replay(10, 1) is False  # comes anyway
    assert book.replay(7, 1) is False  # is there already
    assert book.replay(4, 33) is True
    assert book.hand_out_again("a", 0.0, 10.0, 9) == [4, 7]
    assert (book.deliveries(4, "a"), book.letter(4), book.letter(7)) == (1, 33, None)
    assert book.progress == Progress(9, {7: 2})
    assert book.acknowledge([4]) == (1, [33])
    assert book.replay(4, 33)
    assert book.replay(5, 34)
    book.discard([34])
    assert book.hand_out_again("a", 0.0, 10.0, 9) == [4]


def test_what_waits_is_remembered_in_bounded_room() -> None:
    book = book_of()
    for sequence in range(1, 1_000):
        book.hand_out([sequence], "a", 10.0)
        book.reject([sequence], 1e6, "later")
        book.acknowledge([sequence])
    assert book.outstanding == 0
    assert len(book._waiting) < 100


@dataclass
class Known:
    deliveries: int
    holder: str | None
    until: float
    letter: int | None = None


HOLDERS = st.sampled_from("abc")
SEQUENCES = st.lists(st.integers(1, 40), max_size=6)
MOST = 3
ROOM = 6


class Model(RuleBasedStateMachine):
    """Notifications 1, 2, 3, … are handed to three workers."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = Sharing(max_deliveries=MOST, max_in_flight=ROOM)
        self.book = LeaseBook(NOTHING, self.settings)
        self.now = 0.0
        self.next = 1
        self.known: dict[int, Known] = {}
        self.done: set[int] = set()
        self.dead: dict[int, int] = {}
        self.letters = 0
        self.firsts: list[int] = []

    def hand(self, sequences: list[int], holder: str) -> None:
        for sequence in sequences:
            one = self.known[sequence]
            assert one.holder is None  # never to two at a time
            assert sequence not in self.done
            one.deliveries += 1
            assert one.deliveries <= MOST
            assert self.book.deliveries(sequence, holder) == one.deliveries
            one.holder, one.until = holder, self.now + 10.0

    @rule(holder=HOLDERS, most=st.integers(1, 4))
    def take(self, holder: str, most: int) -> None:
        due = sorted(
            (one.until, sequence)
            for sequence, one in self.known.items()
            if one.holder is None and one.until <= self.now and one.deliveries < MOST
        )
        again = self.book.hand_out_again(holder, self.now, self.now + 10.0, most)
        assert list(again) == [sequence for _, sequence in due][:most]
        self.hand(list(again), holder)
        new = range(self.next, self.next + min(most - len(again), self.book.room))
        self.book.hand_out(new, holder, self.now + 10.0)
        for sequence in new:
            self.known[sequence] = Known(0, None, 0.0)
            self.firsts.append(sequence)
        self.hand(list(new), holder)
        self.next += len(new)

    def give_up(self, sequence: int, until: float) -> None:
        one = self.known[sequence]
        one.holder, one.until = None, until

    def leased(self, sequences: list[int], holder: str | None) -> list[int]:
        return [
            sequence
            for sequence in dict.fromkeys(sequences)
            if sequence in self.known
            and self.known[sequence].holder is not None
            and holder in (None, self.known[sequence].holder)
        ]

    @rule(sequences=SEQUENCES)
    def acknowledge(self, sequences: list[int]) -> None:
        found = [sequence for sequence in dict.fromkeys(sequences) if sequence in self.known]
        letters = [self.known[sequence].letter for sequence in found]
        gone = [letter for letter in letters if letter is not None]
        assert self.book.acknowledge(sequences) == (len(found), gone)
        for sequence in found:
            del self.known[sequence]
            self.dead.pop(sequence, None)
            self.done.add(sequence)

    @rule(sequences=SEQUENCES, delay=st.sampled_from([0.0, 3.0]), holder=st.none() | HOLDERS)
    def reject(self, sequences: list[int], delay: float, holder: str | None) -> None:
        found = self.leased(sequences, holder)
        assert self.book.reject(sequences, self.now + delay, "no", holder) == len(found)
        for sequence in found:
            self.give_up(sequence, self.now + delay)

    @rule(sequences=SEQUENCES, seconds=st.sampled_from([1.0, 30.0]), holder=st.none() | HOLDERS)
    def extend(self, sequences: list[int], seconds: float, holder: str | None) -> None:
        found = self.leased(sequences, holder)
        assert self.book.extend(sequences, self.now + seconds, holder) == len(found)
        for sequence in found:
            self.known[sequence].until = self.now + seconds

    @rule(holder=HOLDERS)
    def disconnect(self, holder: str) -> None:
        self.book.release(holder)
        for sequence, one in self.known.items():
            if one.holder == holder:
                self.give_up(sequence, 0.0)

    @rule(seconds=st.sampled_from([2.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        late = [
            sequence
            for sequence, one in self.known.items()
            if one.holder is not None and one.until <= self.now
        ]
        assert self.book.expire(self.now) == len(late)
        for sequence in late:
            self.give_up(sequence, 0.0)

    @rule()
    def bury(self) -> None:
        for one in self.book.exhausted:
            assert self.known[one.sequence].deliveries == one.deliveries == MOST
            self.book.forget(one.sequence)
            if self.known.pop(one.sequence).letter is None:
                self.letters += 1
                self.dead[one.sequence] = self.letters

    @rule()
    def replay(self) -> None:
        for sequence, letter in self.dead.items():
            assert self.book.replay(sequence, letter) == (sequence not in self.known)
            self.known.setdefault(sequence, Known(0, None, 0.0, letter))

    @rule()
    def restart(self) -> None:
        self.book = LeaseBook(self.book.progress, self.settings)
        self.known = {n: one for n, one in self.known.items() if one.letter is None}
        for sequence in self.known:
            self.give_up(sequence, 0.0)

    @invariant()
    def nothing_is_lost(self) -> None:
        assert self.firsts == list(range(1, self.next))
        undone = [n for n in self.firsts if n not in self.done and n not in self.dead]
        outstanding = {n: one.deliveries for n, one in self.known.items() if one.letter is None}
        assert list(outstanding) == undone
        assert self.book.progress == Progress(self.next - 1, outstanding)
        assert self.book.cursor == self.book.progress.cursor == min(undone, default=self.next) - 1
        assert self.book.outstanding == len(self.known)
        held = [one.holder for one in self.known.values() if one.holder is not None]
        assert self.book.in_flight == len(held)
        assert all(self.book.held_by(holder) == held.count(holder) for holder in "abc")
        exhausted = {
            n for n, one in self.known.items() if one.holder is None and one.deliveries >= MOST
        }
        assert {one.sequence for one in self.book.exhausted} == exhausted


TestModel = Model.TestCase
TestModel.settings = hypothesis_settings(max_examples=100, stateful_step_count=40, deadline=None)
