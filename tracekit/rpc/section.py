"""The section on remote calls."""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.analysis.section import AnalysisInput, Section
from tracekit.analysis.step_time.tables import NAMED_WAITS
from tracekit.model.notes import Note
from tracekit.model.summary import RankSummary
from tracekit.rpc import tables
from tracekit.rpc.rank import REMOTE_CALLS, remote_calls_of, waits_of
from tracekit.rpc.tables import RemoteCalls

__all__ = ["RPC_SECTION"]


def _analyze(given: AnalysisInput) -> RemoteCalls:
    if not _any_calls(given.run.ranks):
        return RemoteCalls.empty()
    # Imported here: neither a worker, which reads single ranks, nor a run without remote calls needs it.
    from tracekit.rpc.remote_calls import remote_calls

    return remote_calls(given.run)


def _any_calls(ranks: Sequence[RankSummary]) -> bool:
    return any(summary[REMOTE_CALLS] is not None for summary in ranks)


def _notes(ranks: Sequence[RankSummary], all_selected: bool) -> list[Note]:
    if not _any_calls(ranks):
        return []
    from tracekit.rpc.remote_calls import remote_call_notes

    return remote_call_notes(ranks, all_selected)


RPC_SECTION: Section[RemoteCalls] = Section(
    name="rpc",
    reads=(REMOTE_CALLS, NAMED_WAITS),
    keeps={REMOTE_CALLS: remote_calls_of},
    analyze=_analyze,
    notes=_notes,
    notes_read=(REMOTE_CALLS,),
    waits=waits_of,
    tables=(
        tables.RPC,
        tables.RPC_BY_FUNCTION,
        tables.RPC_UNJOINED,
        tables.RPC_TRAINERS,
        tables.RPC_SERVERS,
        tables.RPC_SERVICE,
    ),
)
