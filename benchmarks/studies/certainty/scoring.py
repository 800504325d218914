"""Whether a verdict names what is planted, with the cause and a certainty."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.studies.certainty.cases import Case
from benchmarks.studies.certainty.programs import run_of
from tracekit.explain.stragglers.stragglers import stragglers


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
