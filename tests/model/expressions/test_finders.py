from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import re2
from hypothesis import example, given, settings
from hypothesis import strategies as st

from boxmatch.model.expressions import finders as module
from boxmatch.model.expressions.finder_kernels import find
from boxmatch.model.expressions.finders import NeedleFinder, RegexFinder
from boxmatch.model.expressions.nodes import ExpressionError
from boxmatch.model.expressions.patterns import (
    LikeParts,
    compile_regex,
    like_to_regex,
    split_like,
)
from boxmatch.model.expressions.regex_literals import required_literals

# Few letters, so that needles overlap and are parts of each other.
words = st.text(st.sampled_from("aab\0éẞ😀"), max_size=5) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=3
)
texts = st.text(st.sampled_from("aaabbc\0éẞ😀"), max_size=20) | words

TYPES = [pa.string(), pa.large_string(), pa.string_view()]

# Pieces of expressions of which any sequence is likely to be valid, and to match some text.
pieces = st.sampled_from(
    [
        *["a", "b", "ab", "ba", "aab", "é", "{", "}", "]", "-", ":", " ", r"\.", r"\\", "\\-", "|"],
        *["A", "B", "k", "K", "s", "S", "ſ", "\u212a", "(?i)", "(?-i)", "(?i:", "(?s-i:", "(?im)"],
        *[
            "*",
            "+",
            "?",
            "*?",
            "??",
            "{2}",
            "{0}",
            "{1}",
            "{0,2}",
            "{1,}",
            "{01}",
            "{,2}",
            "{1,2}?",
        ],
        *[
            "[ab]",
            "[^a]",
            "[]a]",
            "[^]a]",
            "[[:alpha:]b]",
            "[a[b]",
            "[]a[b]",
            "[[b]",
            r"[\]a]",
            ".",
        ],
        *[r"\d", r"\w", r"\pL", r"\p{Greek}", r"\PN", r"\n", r"\x61", r"\x{61}", r"\141", r"\C"],
        *[r"[\pLa]", r"[\x{61}b]", "[a-]", "[[:^digit:]]", r"\Qa*b", r"\E", r"\Qab\E"],
        *["(", "(?:", "(?P<n>", "(?<n>", ")", "(a|b)", "(?:ab|)", "(a|bb)+", "(ab?){1,2}", "(|a)"],
        *["^", "$", r"\b", r"\B", r"\A", r"\z", "(?m)^", "(?m)"],
    ]
)
expressions = st.lists(pieces, max_size=8).map("".join)
subjects = st.text(st.sampled_from("aaabbbABékKsSſ\u212a{}[]-:.\\*01, \n2"), max_size=20)


def valid(pattern: str) -> bool:
    try:
        compile_regex(pattern)
    except ExpressionError:
        return False
    return True


def matches(pattern: str, text: str) -> bool:
    options = re2.Options()
    options.log_errors = False
    return re2.search(pattern, text, options) is not None


def rows(found: tuple[Any, Any]) -> list[list[int]]:
    starts, numbers = found
    assert starts.dtype == numbers.dtype == np.int64
    assert starts[0] == 0
    assert starts[-1] == len(numbers)
    return [sorted(numbers[a:b].tolist()) for a, b in pairwise(starts)]


def contained(needles: list[str], text: str | None) -> list[int]:
    return [i for i, one in enumerate(needles) if text is not None and one in text]


def satisfied(regexes: list[str], text: str | None) -> list[int]:
    return [i for i, one in enumerate(regexes) if text is not None and matches(one, text)]


@given(
    batches=st.lists(st.lists(words, max_size=6), max_size=5),
    batch=st.lists(st.none() | texts, max_size=6),
    cut=st.integers(0, 3),
    type=st.sampled_from(TYPES),
)
@example(batches=[[""]], batch=["", None, "a"], cut=0, type=pa.string())
@example(batches=[["ab"]], batch=["a", "b", "ab"], cut=1, type=pa.string())
def test_needles(
    batches: list[list[str]], batch: list[str | None], cut: int, type: pa.DataType
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SMALL", 2)
        patch.setattr(module, "_GROWTH", 1)
        finder = NeedleFinder()
        known: list[str] = []
        array = pa.array(batch, type)[cut:]
        for needles in [[], *batches]:
            finder.add(needles)
            known = list(dict.fromkeys([*known, *needles]))
            assert len(finder) == len(known)
            expected = [contained(known, text) for text in batch[cut:]]
            assert rows(finder.find(array)) == expected
            for text in batch:
                if text is not None:
                    assert sorted(finder.find_one(text)) == contained(known, text)


def test_needles_are_numbered_once() -> None:
    finder = NeedleFinder(["b", "a", "b"])
    finder.add(["a", "c"])
    finder.add(["c"])
    assert len(finder) == 3
    assert sorted(finder.find_one("abc")) == [0, 1, 2]
    assert sorted(finder.find_one("c")) == [2]


def test_other_arrays_of_texts() -> None:
    finder = NeedleFinder(["a"])
    for array, expected in [
        (pa.array(["a", None, "b", "a"]).dictionary_encode(), [[0], [], [], [0]]),
        (pa.nulls(2), [[], []]),
        (pa.array([], pa.string()), []),
        (pa.array(["", ""]), [[], []]),
        (pa.array([None, None], pa.large_string()), [[], []]),
    ]:
        assert rows(finder.find(array)) == expected
        assert rows(RegexFinder(["a"]).find(array)) == expected
        assert rows(NeedleFinder().find(array)) == [[] for _ in expected]
        assert rows(RegexFinder().find(array)) == [[] for _ in expected]


@pytest.mark.skipif(not hasattr(find, "signatures"), reason="kernels run as plain Python")
def test_the_kernel_is_compiled_once() -> None:
    finder = NeedleFinder(["a"])
    finder.find_one("a")
    for array in (pa.array(["a", None]), pa.array(["a", "b"], pa.large_string())[1:], pa.nulls(1)):
        finder.find(array)
        RegexFinder(["abc"]).find(array)
    assert len(find.signatures) == 1


def test_null_text_with_bytes_behind_it() -> None:
    offsets = pa.array([0, 1, 2], pa.int64()).buffers()[1]
    valid = pa.py_buffer(b"\x02")
    array = pa.Array.from_buffers(pa.large_string(), 2, [valid, offsets, pa.py_buffer(b"aa")])
    assert rows(NeedleFinder(["a", ""]).find(array)) == [[], [0, 1]]
    assert rows(RegexFinder(["a", "aa?", "", "."]).find(array)) == [[], [0, 1, 2, 3]]


def test_lone_surrogates_are_refused() -> None:
    finder = NeedleFinder()
    with pytest.raises(ValueError, match="surrogates"):
        finder.add(["a", "\ud800"])
    assert len(finder) == 0
    with pytest.raises(ValueError, match="surrogates"):
        finder.find_one("\ud800")


def test_many_occurrences_cost_their_text_only() -> None:
    needles = ["a" * length for length in range(1, 400)]
    finder = NeedleFinder(needles)
    assert sorted(finder.find_one("a" * 100_000)) == list(range(399))


def test_few_parts_after_many_single_additions() -> None:
    finder = NeedleFinder()
    built = 0
    before: tuple[Any, ...] = ()
    for number in range(3_000):
        finder.add([f"<{number}>"])
        assert finder.find_one(f"-<{number}>-<0>") in ([number, 0], [0, number], [0])
        new = [part for part in finder._parts if not any(part is one for one in before)]
        built += sum(len(part.needles) for part in new)
        before = finder._parts
    assert len(before) <= 5
    # A single one means a part of up to 256 and a few; not 3,000.
    assert built < 3_000 * 400


@pytest.mark.parametrize("finder", [NeedleFinder(), RegexFinder()], ids=["needles", "regexes"])
def test_threads(finder: NeedleFinder | RegexFinder) -> None:
    """Whatever has been added before a find begins is found, and nothing that is not there."""
    count = 600
    patterns = [f"<{n}>" if n % 2 else f"<{n}>|\0" for n in range(count)]
    if isinstance(finder, NeedleFinder):
        patterns = [f"<{n}>" for n in range(count)]
    done = threading.Event()
    problems: list[str] = []

    def read(seed: int) -> None:
        random = np.random.default_rng(seed)
        while not done.is_set():
            known = len(finder)
            chosen = random.integers(0, count, 20).tolist()
            found = rows(finder.find(pa.array([f"<{n}>" for n in chosen])))
            for number, numbers in zip(chosen, found, strict=True):
                if numbers != [number] and (numbers or number < known):
                    problems.append(f"{number} of {known}: {numbers}")

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        for start in range(0, count, 3):
            finder.add(patterns[start : start + 3])
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not problems


@settings(max_examples=300)
@given(
    batches=st.lists(st.lists(expressions.filter(valid), max_size=4), max_size=3),
    batch=st.lists(st.none() | subjects, max_size=4),
)
@example(batches=[["[]a[b]c"]], batch=["]c", "bc"])
@example(batches=[["(?i)kas"]], batch=["\u212aaſ", "KAS"])
@example(batches=[["a{01}", "a{,2}"]], batch=["a{01}", "a{,2}", "a"])
@example(batches=[["a(?i)b|c"]], batch=["C", "aB", "A"])
def test_regexes(batches: list[list[str]], batch: list[str | None]) -> None:
    finder = RegexFinder()
    known: list[str] = []
    for regexes in batches:
        finder.add(regexes)
        known = list(dict.fromkeys([*known, *regexes]))
        assert len(finder) == len(known)
        assert rows(finder.find(pa.array(batch, pa.string()))) == [
            satisfied(known, text) for text in batch
        ]
        for text in batch:
            if text is not None:
                assert sorted(finder.find_one(text)) == satisfied(known, text)


@settings(max_examples=1_000)
@given(pattern=expressions.filter(valid), text=subjects)
def test_required_literals_are_in_every_match(pattern: str, text: str) -> None:
    lower = text.encode().lower().decode()
    if matches(pattern, text):
        for strings in required_literals(pattern):
            assert any(one in lower for one in strings)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("error", [{"error"}]),
        ("^Foo .*bar", [{"foo "}, {"bar"}]),
        ("one|two|three", [{"one", "two", "three"}]),
        (r"(GET|POST) /\w+", [{"get /", "post /"}]),
        (r"\bfoo\w+bar\b", [{"foo"}, {"bar"}]),
        ("(?i)Kelvin", [{"elvin"}]),
        ("colou?r", [{"color", "colour"}]),
        ("(ab)+c", [{"ab"}, {"c"}]),
        ("foo[0-9]*", [{"foo"}]),
        ("(?i:WARN)ing", [{"warning"}]),
        (r"a\.b", [{"a.b"}]),
        ("(abc|.)", []),
        ("x*", []),
        ("a{01}", []),
        ("(" * 100 + "a" + ")" * 100, []),
        ("a" * 40, [{"a" * 32}, {"a" * 8}]),
    ],
)
def test_required_literals(pattern: str, expected: list[set[str]]) -> None:
    compile_regex(pattern)
    assert [set(one) for one in required_literals(pattern)] == expected


LOOSE = [r"^\d+$", r"[a-c]{3}", r"\w\d", "(?:a?){20}a{20}", r"\b[xyz]\w", ".{0,50}x", r"\pL\pN"]


@pytest.mark.parametrize("memory", [1, *(2**power for power in range(8, 20))])
def test_sets_that_run_out_of_memory_miss_nothing(memory: int) -> None:
    texts = ["", "123", "abc", "a1", "a" * 30, "zx y", "é٣", "x" * 80]
    finder = RegexFinder(LOOSE, set_memory=memory)
    assert rows(finder.find(pa.array(texts))) == [satisfied(LOOSE, text) for text in texts]
    finder.add(["[0-9]$"])
    assert finder.find_one("9 ") == []
    assert finder.find_one("-9") == [len(LOOSE)]


class OutOfMemory:
    """An `re2.Set` without memory for its states, or with too little to get to the end."""

    def __init__(self, result: list[int] | None) -> None:
        self.result = result

    def Match(self, text: bytes) -> list[int] | None:
        return self.result


@pytest.mark.parametrize("result", [None, [], [0]])
def test_a_set_without_its_last_pattern_is_not_believed(result: list[int] | None) -> None:
    """RE2 tries a set's memory when it compiles it, and we found none that fails only later."""
    finder = RegexFinder(LOOSE)
    assert any(one.together is not None for one in finder._sets)
    finder._sets = tuple(one._replace(together=OutOfMemory(result)) for one in finder._sets)
    texts = ["", "123", "abc", "a1", "a" * 30, "zx y", "é٣", "x" * 80]
    assert rows(finder.find(pa.array(texts))) == [satisfied(LOOSE, text) for text in texts]


def test_little_memory_means_no_set() -> None:
    assert {one.together for one in RegexFinder(LOOSE, set_memory=1_000)._sets} == {None}


def test_hostile_expressions() -> None:
    hostile = [
        "(a*)*b",
        "(x+x+)+y",
        "(?:a?){200}a{200}",
        ".{0,500}x",
        "(?:.?){1000}",
        "((a{1,30}){9})",
    ]
    finder = RegexFinder([*hostile, *LOOSE])
    texts = ["a" * 200, "x" * 80, "xxxy", "aaab", "", "a" * 300 + "x"]
    known = [*hostile, *LOOSE]
    assert rows(finder.find(pa.array(texts))) == [satisfied(known, text) for text in texts]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", r"missing \): \("),
        ("a**", r"bad repetition operator: \*\*"),
        (r"(a)\1", r"invalid escape sequence: \\1"),
        ("(?=a)", "invalid perl operator|invalid group"),
        ("a{1001}", "invalid repetition size"),
        (r"(\pL{1,100}){1,10}", "too large"),
        ("((a{100}){100}){100}", "repetition"),
        ("é[", "missing ]"),
        ("a" * 10_001, "at most 10,000 characters, not 10,001"),
        ("\ud800", "surrogates"),
    ],
)
def test_refused_expressions(pattern: str, reason: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ExpressionError, match=reason):
        compile_regex(pattern)
    finder = RegexFinder(["a"])
    with pytest.raises(ExpressionError, match=reason):
        finder.add(["b", pattern])
    assert len(finder) == 1
    assert finder.find_one("ab") == [0]
    assert capfd.readouterr().err == ""


def like(pattern: str, text: str, escape: str) -> bool:
    """Whether a text is LIKE a pattern, by the definition."""
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if first == escape:
        return text[:1] == rest[0] and like(rest[1:], text[1:], escape)
    if first == "%":
        return any(like(rest, text[start:], escape) for start in range(len(text) + 1))
    return bool(text) and first in ("_", text[0]) and like(rest, text[1:], escape)


@given(
    pattern=st.text(st.sampled_from("ab%_\\.*é\n\0"), max_size=6),
    text=st.text(st.sampled_from("aab%_\\.*é\n\0"), max_size=6),
    escape=st.sampled_from(["\\", "a", "%", ""]),
)
def test_like(pattern: str, text: str, escape: str) -> None:
    try:
        regex = like_to_regex(pattern, escape)
    except ExpressionError:
        with pytest.raises(ExpressionError, match="ends in its escape character"):
            split_like(pattern, escape)
        return
    compile_regex(regex)
    expected = like(pattern, text, escape)
    assert matches(regex, text) == expected
    assert RegexFinder([regex]).find_one(text) == [0] * expected
    parts = split_like(pattern, escape)
    if parts.is_exact:
        assert expected == (text == parts.prefix)
    elif not parts.has_underscore:
        assert expected == in_order(parts, text)


def in_order(parts: LikeParts, text: str) -> bool:
    if not text.startswith(parts.prefix):
        return False
    place = len(parts.prefix)
    for one in parts.middle:
        place = text.find(one, place)
        if place < 0:
            return False
        place += len(one)
    return text.endswith(parts.suffix) and place + len(parts.suffix) <= len(text)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", LikeParts("", (), "", False, True)),
        ("abc", LikeParts("abc", (), "", False, True)),
        (r"a\%b\\", LikeParts("a%b\\", (), "", False, True)),
        ("%", LikeParts("", (), "", False, False)),
        ("a%", LikeParts("a", (), "", False, False)),
        ("%a", LikeParts("", (), "a", False, False)),
        ("%a%", LikeParts("", ("a",), "", False, False)),
        ("a%b", LikeParts("a", (), "b", False, False)),
        ("%%a%%", LikeParts("", ("a",), "", False, False)),
        ("a%b_c%d", LikeParts("a", ("b", "c"), "d", True, False)),
        ("a_", LikeParts("a", (), "", True, False)),
    ],
)
def test_parts_of_like(pattern: str, expected: LikeParts) -> None:
    assert split_like(pattern) == expected


def test_refused_like_patterns() -> None:
    for function in (like_to_regex, split_like):
        with pytest.raises(ExpressionError, match="ends in its escape character"):
            function("ab\\")
        with pytest.raises(ExpressionError, match="one character"):
            function("ab", "||")
