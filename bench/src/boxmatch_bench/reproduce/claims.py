"""What a paper says, how it comes out of our rows, and whether the two agree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from boxmatch_bench.reproduce.tables import Grid

AGREES: Final = "agrees"
DIFFERS: Final = "differs"
IMPOSSIBLE: Final = "not measurable here"
UNMEASURED: Final = "not measured"
UNDECIDED: Final = "undecided"


class Finding(NamedTuple):
    """What our rows have, as text, and whether the paper's statement holds for it.

    None where they do not tell: differences within what repetitions differ by.
    """

    shown: str
    agrees: bool | None


class Statement(Protocol):
    """A statement that rows can be asked about."""

    @property
    def paper(self) -> str:
        """The paper's figure or order, as text."""

    @property
    def rule(self) -> str:
        """What counts as agreement."""

    def found(self, grid: Grid) -> Finding | None:
        """What the rows have; None if they lack something."""


@dataclass(frozen=True)
class Claim:
    """A statement with its place in the paper; `why` says why ours may differ, without figures."""

    where: str
    text: str
    statement: Statement
    why: str = ""


class Verdict(NamedTuple):
    """A claim, judged."""

    claim: Claim
    ours: str
    word: str

    @property
    def explained(self) -> str:
        """The verdict with its rule, and the reason where it needs one."""
        rule = self.claim.statement.rule
        if self.word == IMPOSSIBLE:
            return f"{self.word}: {rule}"
        reason = f". {self.claim.why}" if self.claim.why and self.word == DIFFERS else ""
        return f"{self.word} ({rule}){reason}"


def judge(claim: Claim, grid: Grid) -> Verdict:
    """The verdict on one claim.

    Rows of another setting than the published one say nothing, nor does a part of an axis.
    """
    if isinstance(claim.statement, NotMeasurable):
        return Verdict(claim, "", IMPOSSIBLE)
    tells = len(grid) > 0 and grid.comparable and grid.complete
    finding = claim.statement.found(grid) if tells else None
    if finding is None:
        return Verdict(claim, "", UNMEASURED)
    words = {True: AGREES, False: DIFFERS, None: UNDECIDED}
    return Verdict(claim, finding.shown, words[finding.agrees])


# --- what counts as agreement -------------------------------------------------------------------


@dataclass(frozen=True)
class Within:
    """How far from the published number ours may be.

    `percent` of it; a `factor` of it; `points`, for shares in percent; `counting` times the
    standard deviation of a number that was counted. One that holds is enough.
    """

    percent: float | None = None
    factor: float | None = None
    points: float | None = None
    counting: float | None = None

    def holds(self, ours: float, published: float) -> bool:
        """Whether two numbers are near enough."""
        off = abs(ours - published)
        return (
            (self.percent is not None and off <= self.percent / 100 * abs(published))
            or (self.points is not None and off <= self.points)
            or (self.counting is not None and off <= self.counting * published**0.5)
            or (
                self.factor is not None
                and ours * published > 0
                and 1 / self.factor <= ours / published <= self.factor
            )
        )

    def __str__(self) -> str:
        said = []
        if self.percent is not None:
            said.append(f"{self.percent:g} %")
        if self.factor is not None:
            said.append(f"a factor of {self.factor:g}")
        if self.points is not None:
            said.append(f"{self.points:g} points")
        if self.counting is not None:
            said.append(f"{self.counting:g} standard deviations of a count")
        return f"within {' or '.join(said)}"


TENTH: Final = Within(percent=10)
HALF_MORE: Final = Within(factor=1.5)
"""For how many times faster one algorithm is: other code, another machine."""
POINTS: Final = Within(points=5)


@dataclass(frozen=True)
class NotMeasurable:
    """A statement that rows cannot answer; `rule` says why."""

    paper: str
    rule: str

    def found(self, grid: Grid) -> Finding | None:
        return None


def counted(verdicts: Iterable[Verdict]) -> str:
    """How many there are of each kind."""
    words = [verdict.word for verdict in verdicts]
    kinds = (AGREES, DIFFERS, UNDECIDED, IMPOSSIBLE, UNMEASURED)
    plural = {AGREES: "agree", DIFFERS: "differ"}
    said = [f"{words.count(word)} {plural.get(word, word)}" for word in kinds if word in words]
    return ", ".join(said)
