"""The section on remote calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.analysis.section import AnalysisInput, Section
from tracekit.analysis.step_time.parts import NAMED_WAITS
from tracekit.analysis.table import Frame
from tracekit.findings.finding import Finding
from tracekit.model.notes import Note
from tracekit.model.summary import RankSummary
from tracekit.rpc import columns
from tracekit.rpc.rank import REMOTE_CALLS, remote_calls_of, waits_of

__all__ = ["RPC_SECTION", "RemoteCalls"]


@dataclass(frozen=True, kw_only=True)
class RemoteCalls:
    """Remote calls of all ranks; empty without RPC.

    Attributes:
        calls: rows of columns.RPC, the calls that a rank issued in its complete steps.
        by_function: rows of columns.RPC_BY_FUNCTION, the most waited for first.
        unjoined: rows of columns.RPC_UNJOINED.
        trainers: rows of columns.RPC_TRAINERS.
        servers: rows of columns.RPC_SERVERS, the busiest first.
        service: rows of columns.RPC_SERVICE.
    """

    calls: Frame = Frame(columns.RPC)
    by_function: Frame = Frame(columns.RPC_BY_FUNCTION)
    unjoined: Frame = Frame(columns.RPC_UNJOINED)
    trainers: Frame = Frame(columns.RPC_TRAINERS)
    servers: Frame = Frame(columns.RPC_SERVERS)
    service: Frame = Frame(columns.RPC_SERVICE)
    findings: tuple[Finding, ...]

    @classmethod
    def empty(cls) -> RemoteCalls:
        """Return the result of a run without RPC."""
        return cls(calls=[], by_function=[], unjoined=[], trainers=[], servers=[], service=[], findings=())


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
        columns.RPC,
        columns.RPC_BY_FUNCTION,
        columns.RPC_UNJOINED,
        columns.RPC_TRAINERS,
        columns.RPC_SERVERS,
        columns.RPC_SERVICE,
    ),
)
