"""The section on the attempts of a job."""

from __future__ import annotations

from tracekit.analysis.attempts import tables
from tracekit.analysis.attempts.attempts import Attempts, attempts
from tracekit.analysis.section import Section

__all__ = ["ATTEMPTS_SECTION"]

ATTEMPTS_SECTION: Section[Attempts] = Section(
    name="attempts", analyze=lambda given: attempts(given.run), tables=(tables.ATTEMPTS,)
)
