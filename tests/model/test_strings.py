from __future__ import annotations

import random
import threading
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.strings import AxisFullError, StringAxis, remap_bounds

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["", "\0", "a", "aa", "ab", "b", "\uffff", "\ue000", "\U00010000", "\U0010ffff", "a\0"]
)


def check(axis: StringAxis, known: set[str], probes: list[str]) -> None:
    """The axis against what it promises, in the plainest terms."""
    strings = sorted(known)
    assert strings == sorted(known, key=lambda s: s.encode())
    labels = [axis.label(s) for s in strings]
    assert len(axis) == len(strings)
    assert all(below + 2 <= above for below, above in pairwise(labels))
    if labels:
        assert labels[0] > FIRST + 1
        assert labels[-1] < LAST - 1
    keys = [axis.key(probe) for probe in probes]
    for probe, key in zip(probes, keys, strict=True):
        assert key == axis.key(probe)
        if probe in known:
            assert key == axis.label(probe)
            continue
        smaller = [s for s in strings if s < probe]
        assert key == (axis.label(smaller[-1]) + 1 if smaller else FIRST)
        assert all(key < axis.label(s) for s in strings if s > probe)
    for string, label in zip(strings, labels, strict=True):
        for offset in (-1, 0, 1):
            assert axis.bound(label + offset) == (string, offset)


def middle(low: str, high: str) -> str | None:
    """Some string strictly between the two, if there is one that is easy to find."""
    candidates = (low + "\0" * zeros + "@" for zeros in range(len(high) + 1))
    return next((candidate for candidate in candidates if candidate < high), None)


class Axis(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.axis = StringAxis()
        self.known: set[str] = set()
        self.probes = ["", "m", "\uffff", "\U0001f600"]

    def add(self, strings: list[str]) -> None:
        before = dict(self.axis.labels)
        try:
            self.axis.add(strings)
        except AxisFullError:
            assert self.axis.labels == before
            check(self.axis, self.known, self.probes)
            self.spread()
            self.axis.add(strings)
        self.known.update(strings)

    @rule(string=text)
    def add_one(self, string: str) -> None:
        self.add([string])

    @rule(strings=st.lists(text, max_size=12))
    def add_some(self, strings: list[str]) -> None:
        self.add(strings)

    @rule(probe=text)
    def probe(self, probe: str) -> None:
        self.probes.append(probe)

    @precondition(lambda self: len(self.known) > 1)
    @rule(data=st.data(), ups=st.lists(st.booleans(), min_size=30, max_size=90))
    def bisect(self, data: st.DataObject, ups: list[bool]) -> None:
        """Always next to the latest one: no way to place labels survives that for long."""
        strings = sorted(self.known)
        place = data.draw(st.integers(0, len(strings) - 2))
        low, high = strings[place], strings[place + 1]
        for up in ups:
            string = middle(low, high)
            if string is None:
                return
            self.add([string])
            low, high = (string, high) if up else (low, string)

    @rule()
    def spread(self) -> None:
        bounds = [ABSENT, FIRST, LAST]
        bounds += [label + offset for label in self.axis.labels.values() for offset in (-1, 0, 1)]
        meaning = [self.axis.bound(bound) for bound in bounds]
        old, new = self.axis.respread()
        assert np.all(old[:-1] < old[1:])
        after = remap_bounds(np.array(bounds), old, new)
        assert [self.axis.bound(bound) for bound in after.tolist()] == meaning

    @rule()
    def copy(self) -> None:
        copy = self.axis.copy()
        copy.add(["only in the copy"])
        check(copy, self.known | {"only in the copy"}, self.probes)

    @rule()
    def save_and_load(self) -> None:
        labels = self.axis.labels
        self.axis = StringAxis.from_arrow(self.axis.to_arrow())
        assert self.axis.labels == labels

    @invariant()
    def promises_hold(self) -> None:
        check(self.axis, self.known, self.probes)


Axis.TestCase.settings = settings(max_examples=60, stateful_step_count=15, deadline=None)
TestAxis = Axis.TestCase


def test_bisecting_exhausts_a_gap_and_respreading_helps() -> None:
    axis = StringAxis(["a", "b"])
    low, high = "a", "b"
    full = 0
    for step in range(200):
        string = middle(low, high)
        assert string is not None
        try:
            axis.add(string)
        except AxisFullError:
            full += 1
            axis.respread()
            axis.add(string)
        low, high = (string, high) if step % 2 else (low, string)
    assert full > 0
    assert len(axis) == 202
    check(axis, set(axis.labels), ["", "a@", "z"])


def numbered(count: int) -> list[str]:
    return [f"{number:06d}" for number in range(count)]


@pytest.mark.parametrize("chunk", [1, 2, 7, 500])
@pytest.mark.parametrize("order", ["up", "down", "random"])
def test_usual_orders_never_run_out_of_labels(order: str, chunk: int) -> None:
    strings = numbered(4000)
    if order == "down":
        strings.reverse()
    elif order == "random":
        random.Random(0).shuffle(strings)
    # An outer pair, so that all additions are in the middle.
    axis = StringAxis([" ", "~"])
    for start in range(0, len(strings), chunk):
        axis.add(strings[start : start + chunk])
    check(axis, {" ", "~", *strings}, [])


@pytest.mark.parametrize("descending", [False, True])
def test_runs_beyond_the_end_never_run_out_of_labels(descending: bool) -> None:
    axis = StringAxis()
    for string in sorted(numbered(5000), reverse=descending):
        axis.add(string)
    check(axis, set(numbered(5000)), ["", "5", "9"])


def test_known_strings_keep_their_labels() -> None:
    axis = StringAxis(["b", "d"])
    before = dict(axis.labels)
    axis.add(["a", "b", "c", "d", "e"])
    assert {s: axis.label(s) for s in before} == before
    axis.add([])
    axis.add("b")
    assert len(axis) == 5
    assert "c" in axis
    assert "x" not in axis
    assert repr(axis) == "<StringAxis of 5 strings>"


def test_code_points_are_compared_not_utf_16() -> None:
    axis = StringAxis(["\U00010000", "\uffff"])
    assert axis.label("\uffff") < axis.label("\U00010000")
    assert axis.key("\U00010001") == axis.label("\U00010000") + 1


def test_without_any_string_all_are_alike() -> None:
    assert [StringAxis().key(text) for text in ("x", "")] == [FIRST, FIRST]


def test_unknown_strings_and_bounds() -> None:
    axis = StringAxis(["x"])
    with pytest.raises(KeyError):
        axis.label("y")
    for key in (axis.label("x") + 2, axis.label("x") - 2, 12345):
        with pytest.raises(KeyError):
            axis.bound(key)
    with pytest.raises(KeyError):
        StringAxis().bound(0)
    assert [axis.bound(key) for key in (ABSENT, FIRST, LAST)] == [ABSENT, FIRST, LAST]


def test_lone_surrogates_are_refused() -> None:
    axis = StringAxis(["x"])
    for call in (axis.add, axis.key, lambda s: axis.between([s])):
        with pytest.raises(ValueError, match="surrogate at offset 1"):
            call("é\udc80")
    assert len(axis) == 1


def test_disordered_tables_are_refused() -> None:
    good = StringAxis(["a", "b", "c"]).to_arrow()
    for column in ("string", "label"):
        place = good.column_names.index(column)
        bad = good.set_column(place, column, good[column].take([0, 2, 1]))
        with pytest.raises(ValueError, match="out of order"):
            StringAxis.from_arrow(bad)
    twice = good.set_column(1, "label", pa.array([0, 1, 2]))
    with pytest.raises(ValueError, match="out of order"):
        StringAxis.from_arrow(twice)
    assert len(StringAxis.from_arrow(StringAxis().to_arrow())) == 0


@given(st.lists(text, unique=True), st.lists(text))
def test_memory_grows_with_the_strings(first: list[str], more: list[str]) -> None:
    axis = StringAxis(first)
    before = axis.nbytes
    axis.add(more)
    assert axis.nbytes >= before
    assert axis.nbytes >= sum(len(s.encode()) for s in axis.labels)


def test_readers_are_right_while_a_writer_adds() -> None:
    """Whatever a reader gets lies between the labels that were known before it asked."""
    fixed = [f"{n:04d}" for n in range(0, 1000, 10)]
    axis = StringAxis(fixed)
    label = dict(axis.labels)
    added = [f"{n:04d}" for n in range(1000) if n % 10]
    random.Random(1).shuffle(added)
    wrong: list[tuple[str, int]] = []
    done = threading.Event()

    def read(seed: int) -> None:
        pick = random.Random(seed)
        while not done.is_set():
            number = pick.randrange(990)
            below = label[f"{number // 10 * 10:04d}"]
            above = label[f"{number // 10 * 10 + 10:04d}"]
            for string in (f"{number:04d}", f"{number:04d}x"):
                key = axis.key(string)
                if not (below <= key < above) or (string in label) != (key == below):
                    wrong.append((string, key))

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for reader in readers:
        reader.start()
    for start in range(0, len(added), 3):
        axis.add(added[start : start + 3])
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong
    check(axis, {*fixed, *added}, [])
