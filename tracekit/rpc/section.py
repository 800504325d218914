"""The section on remote calls. No other analysis imports this package."""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.analysis.section import AnalysisInput, Section
from tracekit.analysis.step_time.parts import NAMED_WAITS, NamedWait
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.model.metadata import RpcUse
from tracekit.model.notes import Note
from tracekit.model.summary import RankSummary
from tracekit.rpc import columns
from tracekit.rpc.parts import BACKWARD_BEGINS, REMOTE_CALLS
from tracekit.rpc.per_rank import backward_begins, rpc_waits
from tracekit.rpc.result import RemoteCalls

__all__ = ["RPC_SECTION"]


def _remote_calls(recorded: RecordedSteps) -> RpcUse | None:
    metadata = recorded.trace.header.metadata
    return None if metadata is None else metadata.rpc


def _waits(recorded: RecordedSteps) -> tuple[NamedWait, ...]:
    return rpc_waits(recorded.once(_remote_calls), recorded.steps)


def _backward_begins(recorded: RecordedSteps) -> tuple[int, ...]:
    return backward_begins(recorded.once(_remote_calls), recorded.phases)


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
    reads=(REMOTE_CALLS, BACKWARD_BEGINS, NAMED_WAITS),
    keeps={REMOTE_CALLS: _remote_calls, BACKWARD_BEGINS: _backward_begins, NAMED_WAITS: _waits},
    analyze=_analyze,
    notes=_notes,
    tables=(
        columns.RPC,
        columns.RPC_BY_FUNCTION,
        columns.RPC_UNJOINED,
        columns.RPC_TRAINERS,
        columns.RPC_SERVERS,
        columns.RPC_SERVICE,
        columns.RPC_UPDATES,
    ),
)
