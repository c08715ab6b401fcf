"""Regions of events as unions of terms, and how AND and OR combine them.

A term asks each of its attributes for a key in a set of intervals: `x IN (1, 5) AND y <> 2` is
one term though it is four boxes. Working on terms keeps the expansion small until the very end.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import prod

from boxmatch.errors import FilterTooLargeError
from boxmatch.model.filters.compiled import EVERYTHING, IntervalSet, contains, intersection, union
from boxmatch.model.filters.cover import DenseBox

Term = tuple[tuple[int, IntervalSet], ...]
"""`(attribute position, keys)`, ascending; an attribute that may be anything is left out."""

ALWAYS: Term = ()

_FEW = 64  # terms up to which comparing all pairs costs next to nothing
_MANY = 512  # terms from which on those with a single attribute are worth a pass of their own


class Budget:
    """How much one filter may expand to, so that a hopeless one fails before it costs seconds."""

    def __init__(self, max_boxes: int) -> None:
        self.max_boxes = max_boxes
        # Terms on the way may still merge or turn out to be contained in others.
        self.max_terms = 4 * max_boxes + _FEW
        self._work = 250 * max_boxes + 50_000

    def spend(self, steps: int) -> None:
        """Count work: one step is about what looking at one predicate takes."""
        self._work -= steps
        if self._work < 0:
            raise FilterTooLargeError(
                f"the filter combines too many alternatives to become {self.max_boxes} boxes"
            )

    def check_terms(self, count: int) -> None:
        if count > self.max_terms:
            self.fail(count)

    def fail(self, count: int) -> None:
        raise FilterTooLargeError(
            f"the filter expands to {count} boxes or more; at most {self.max_boxes} are allowed "
            "(max_boxes)"
        )


def disjunction(regions: Iterable[list[Term]], budget: Budget) -> list[Term]:
    """Events in any of the regions."""
    terms = simplify([term for region in regions for term in region], budget)
    budget.check_terms(len(terms))
    return terms


def conjunction(regions: list[list[Term]], budget: Budget) -> list[Term]:
    """Events in all of the regions."""
    single = _meet([term for region in regions if len(region) == 1 for term in region])
    if single is None or not all(regions):
        return []
    terms = [single]
    for region in sorted((region for region in regions if len(region) > 1), key=len):
        met: list[Term] = []
        sizes = sum(map(_size, region))
        for term in terms:
            budget.spend(sizes + len(region) * _size(term) // 4)
            met.extend(_within(term, region))
            if len(met) > 4 * budget.max_terms:
                met = simplify(met, budget)
                budget.check_terms(len(met))
        terms = simplify(met, budget)
        budget.check_terms(len(terms))
    return terms


def _size(term: Term) -> int:
    return 1 + sum([len(keys) for _, keys in term])


def _within(term: Term, region: list[Term]) -> list[Term]:
    """What a region has of a term."""
    own = dict(term)
    parts: list[Term] = []
    for other in region:
        both = own.copy()
        for attribute, keys in other:
            if attribute in own:
                keys = intersection([own[attribute], keys])
                if not keys:
                    break
            both[attribute] = keys
        else:
            if both == own:
                return [term]  # all of it: no other part says more
            parts.append(tuple(sorted(both.items())))
    return parts


def expand(terms: list[Term], attributes: list[int], budget: Budget) -> list[DenseBox]:
    """All boxes of the terms, over the given attributes."""
    count = sum(prod(len(keys) for _, keys in term) for term in terms)
    budget.check_terms(count)
    boxes: list[DenseBox] = []
    for term in terms:
        keys = dict(term)
        boxes.extend(product(*(keys.get(attribute, EVERYTHING) for attribute in attributes)))
    return boxes


def _meet(terms: list[Term]) -> Term | None:
    """The intersection of terms; None if it is empty."""
    sets: dict[int, list[IntervalSet]] = {}
    for term in terms:
        for attribute, keys in term:
            sets.setdefault(attribute, []).append(keys)
    met: list[tuple[int, IntervalSet]] = []
    for attribute in sorted(sets):
        shared = intersection(sets[attribute])
        if not shared:
            return None
        met.append((attribute, shared))
    return tuple(met)


def simplify(terms: list[Term], budget: Budget | None = None) -> list[Term]:
    """The same region with terms merged where they differ in one attribute, or contained."""
    if len(terms) < 2:
        return terms
    terms = list(dict.fromkeys(terms))
    if len(terms) > _MANY:
        terms = _merge_singles(terms)
    attributes = sorted({attribute for term in terms for attribute, _ in term})
    while len(terms) > 1:
        count = len(terms)
        size = sum(map(len, terms))
        for attribute in attributes:
            if budget is not None:
                budget.spend(len(terms) // 2 + size // 16)
            terms = _merge_along(terms, attribute)
        if len(terms) <= _FEW:
            terms = _drop_contained(terms)
        if len(terms) == count:
            break
    return terms


def _merge_singles(terms: list[Term]) -> list[Term]:
    """Join the terms that ask for one attribute only, each attribute's."""
    singles: dict[int, list[IntervalSet]] = {}
    rest: list[Term] = []
    for term in terms:
        if len(term) == 1:
            singles.setdefault(term[0][0], []).append(term[0][1])
        else:
            rest.append(term)
    joined = {attribute: union(sets) for attribute, sets in singles.items()}
    if EVERYTHING in joined.values():
        return [ALWAYS]
    return [*(((attribute, keys),) for attribute, keys in joined.items()), *rest]


def _merge_along(terms: list[Term], attribute: int) -> list[Term]:
    """Join terms that are equal but for this attribute."""
    rows: dict[Term, list[IntervalSet]] = {}
    for term in terms:
        rest, own = term, EVERYTHING
        for place, (position, keys) in enumerate(term):
            if position == attribute:
                rest, own = term[:place] + term[place + 1 :], keys
                break
        rows.setdefault(rest, []).append(own)
    if len(rows) == len(terms):
        return terms
    merged: list[Term] = []
    for rest, sets in rows.items():
        keys = sets[0] if len(sets) == 1 else union(sets)
        if keys == EVERYTHING:
            merged.append(rest)
        else:
            merged.append(tuple(sorted((*rest, (attribute, keys)))))
    return merged


def _drop_contained(terms: list[Term]) -> list[Term]:
    kept: list[Term] = []
    # A container never has more predicates. Containers of equal length are left to the boxes.
    for term in sorted(terms, key=len):
        inner = dict(term)
        if not any(
            all(
                attribute in inner and contains(keys, inner[attribute]) for attribute, keys in outer
            )
            for outer in kept
        ):
            kept.append(term)
    return kept
