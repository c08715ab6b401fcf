"""Event patterns and events for properties, of the same few names and values, so that they meet."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

TEXTS = (
    *("", "a", "b", "A", "ab", "AB", "aB", "ba", "abab", "é", "É", "ß", "SS", "ss", "s", "k"),
    *("\u017f", "\u212a", "ς", "Σ", "σ", "ǅ", "😀", "a😀", "*", "\\", "a*b", "true", "null", "1"),
    *("10.0.0.1", "10.0.0.255", "11.0.0.0", "::1", "0::1", "2001:db8::1", "2001:DB8::1", "::1%1"),
)
NUMBERS = (0, 1, 1.0, -1, 1.5, 0.1, 0.3, 1e-320, 1e300, 2**53, 2**53 + 1, -(2**63), 10**30)
DOUBLES = tuple(number for number in NUMBERS if number not in (2**53 + 1, -(2**63)))

texts = st.sampled_from(TEXTS)
numbers = st.sampled_from(NUMBERS)
doubles = st.sampled_from(DOUBLES)
scalars = st.one_of(texts, numbers, st.sampled_from((None, True, False)))
names = st.sampled_from(("a", "b", "c", "a.b", "b.c", "a.b.c"))
events = st.dictionaries(
    names,
    st.recursive(
        scalars,
        lambda below: st.one_of(
            st.lists(below, max_size=3), st.dictionaries(names, below, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=3,
)


def operators(name: str, operand: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return operand.map(lambda value: {name: value})


def one_or_more(one: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return one | st.lists(one, min_size=1, max_size=3)


filled = texts.filter(bool)
wildcards = st.sampled_from(("", "*", "a*", "*b", "a*b", "*a*a*", r"\**", "*\\\\", "ab", "É*"))
folded = operators("equals-ignore-case", texts)
but = st.one_of(
    *(one_or_more(kind) for kind in (texts, doubles)),
    *(operators(name, one_or_more(filled)) for name in ("prefix", "suffix")),
    operators("equals-ignore-case", one_or_more(texts)),
    operators("wildcard", one_or_more(wildcards)),
)
ranges = st.one_of(
    st.tuples(st.sampled_from(("=", "<", "<=", ">", ">=")), doubles),
    st.tuples(st.sampled_from((">", ">=")), doubles, st.sampled_from(("<", "<=")), doubles).filter(
        lambda found: found[1] < found[3]
    ),
).map(list)
common = st.one_of(
    scalars,
    st.sampled_from(({"exists": True}, {"exists": False}, {"exists": False})),
    *(operators(name, texts) for name in ("prefix", "suffix")),
    folded,
    operators("wildcard", wildcards),
    operators("numeric", ranges),
    operators("cidr", st.sampled_from(("10.0.0.0/24", "10.0.0.0/7", "::/127", "2001:db8::/32"))),
)
elements = st.one_of(
    common,
    operators("anything-but", but),
    operators("exactly", texts),
    *(operators(name, folded) for name in ("prefix", "suffix")),
)


def patterns_of(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Patterns with such elements in the lists at their ends."""
    leaves = st.lists(elements, min_size=1, max_size=3)
    return st.recursive(
        st.dictionaries(names, leaves, min_size=1, max_size=3),
        lambda below: st.dictionaries(names, leaves | below, min_size=1, max_size=3).flatmap(
            lambda found: st.one_of(
                st.just(found),
                st.lists(below, min_size=2, max_size=3).map(
                    lambda options: {**found, "$or": options}
                ),
            )
        ),
        max_leaves=3,
    )


patterns = patterns_of(elements)
