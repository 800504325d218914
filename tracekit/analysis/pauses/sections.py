"""The section on pauses: checkpoints, evaluation and logging."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis.pauses import tables
from tracekit.analysis.pauses.per_rank import rank_pauses
from tracekit.analysis.pauses.tables import PAUSE_TIMES
from tracekit.analysis.section import AnalysisInput, Section

if TYPE_CHECKING:
    from tracekit.analysis.pauses.pauses import Pauses

__all__ = ["PAUSES_SECTION"]


def _analyze(given: AnalysisInput) -> Pauses:
    # Imported here: a worker, which reads single ranks, needs nothing of what runs over all of them.
    from tracekit.analysis.pauses.pauses import pauses

    return pauses(given.run)


PAUSES_SECTION: Section[Pauses] = Section(
    name="pauses",
    reads=(PAUSE_TIMES,),
    keeps={PAUSE_TIMES: rank_pauses},
    analyze=_analyze,
    tables=(tables.PAUSES_BY_RANK,),
)
