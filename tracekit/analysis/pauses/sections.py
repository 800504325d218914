"""The section on pauses: checkpoints, evaluation and logging."""

from __future__ import annotations

from tracekit.analysis.pauses import columns
from tracekit.analysis.pauses.parts import PAUSE_TIMES
from tracekit.analysis.pauses.pauses import Pauses, pauses
from tracekit.analysis.pauses.per_rank import rank_pauses
from tracekit.analysis.section import Section

__all__ = ["PAUSES_SECTION"]

PAUSES_SECTION: Section[Pauses] = Section(
    name="pauses",
    reads=(PAUSE_TIMES,),
    keeps={PAUSE_TIMES: rank_pauses},
    analyze=lambda given: pauses(given.run),
    tables=(columns.PAUSES_BY_RANK,),
)
