"""Whether a verdict names what is planted, with the cause and a certainty."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.studies.certainty.cases import Case
from benchmarks.studies.certainty.programs import run_of
from tracekit.analysis.stragglers.stragglers import stragglers

__all__ = ["Score", "rate", "score", "wilson"]

_Z = 1.959964  # of 95 %


@dataclass(frozen=True, kw_only=True)
class Score:
    """What the verdict on a case is.

    Attributes:
        named: the ranks that it names.
        is_link: whether it names a link.
    """

    case: Case
    named: tuple[int, ...]
    is_link: bool
    cause: str | None
    certainty: str | None
    text: str

    @property
    def right(self) -> bool:
        return self.certainty is not None and self.named == self.case.slow and not self.is_link

    @property
    def right_cause(self) -> bool:
        return self.right and self.cause == self.case.cause

    @property
    def wrong(self) -> bool:
        """Return whether somebody is named who is not slow."""
        return self.certainty is not None and not set(self.named) <= set(self.case.slow)


def score(case: Case) -> Score:
    verdict = stragglers(run_of(case)).verdict
    return Score(
        case=case,
        named=verdict.concerned,
        is_link=verdict.link is not None,
        cause=verdict.cause,
        certainty=verdict.certainty,
        text=verdict.text,
    )


def wilson(count: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a rate: Wilson, Journal of the American Statistical Association 22 (1927)."""
    if not total:
        return 0.0, 1.0
    share, spread = count / total, _Z * _Z / total
    middle = (share + spread / 2) / (1 + spread)
    half = _Z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def rate(scores: Iterable[bool]) -> str:
    """Return how many are true, of how many, with the 95 % interval."""
    each = list(scores)
    low, high = wilson(sum(each), len(each))
    share = sum(each) / max(len(each), 1)
    return f"{sum(each)} of {len(each)} ({share:.1%}; {low:.1%} to {high:.1%})"
