"""Remote calls, the servers that they keep busy, and the trainers that make them."""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.analysis.rpc.calls import NO_RECORDING, call_rows, function_rows, sum_calls, unjoined_calls
from tracekit.analysis.rpc.joined import join_calls
from tracekit.analysis.rpc.parts import BACKWARD_BEGINS
from tracekit.analysis.rpc.result import RemoteCalls
from tracekit.analysis.rpc.servers import server_loads, server_rows, service_rows
from tracekit.analysis.rpc.trainers import held_calls, trainer_findings, trainer_rows
from tracekit.analysis.rpc.updates import find_updates
from tracekit.analysis.rpc.waiting import waiting_findings
from tracekit.model.notes import Note
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

__all__ = ["remote_call_notes", "remote_calls"]


def remote_calls(run: Run) -> RemoteCalls:
    """Return the tables over all ranks, and findings on what bounds the steps and on trainers' rates."""
    joined = join_calls(run.ranks)
    sums, loads = sum_calls(run.ranks, joined), server_loads(run, joined)
    by_function, servers = function_rows(run, sums), server_rows(joined, loads)
    backward_ns: dict[int, tuple[int, ...]] = {summary.rank: summary[BACKWARD_BEGINS] for summary in run.ranks}
    updates = find_updates(joined, backward_ns)
    held = held_calls(joined)
    findings = [*trainer_findings(run, joined, updates, held), *waiting_findings(run, sums, by_function, servers)]
    return RemoteCalls(
        calls=call_rows(joined, sums),
        by_function=by_function,
        unjoined=[
            {"rank": rank, "callee": callee, "reason": reason, "count": count}
            for rank, callee, reason, count in unjoined_calls(sums)
        ],
        trainers=trainer_rows(run, joined, updates, held),
        servers=servers,
        service=service_rows(loads),
        updates=[
            {
                "rank": update.rank,
                "step": update.step,
                "callee": update.callee,
                "function": update.function,
                "pull": update.pull,
                "version": update.version,
                "pulled_version": update.pulled_version,
                "staleness": update.staleness,
                "uncertain": update.uncertain,
                "unknown": update.unknown,
            }
            for update in updates
        ],
        findings=tuple(findings),
    )


def remote_call_notes(ranks: Sequence[RankSummary], all_selected: bool) -> list[Note]:
    """Return which calls could not be joined, and why. A callee that was not selected is not missing."""
    notes = []
    for rank, callee, reason, count in unjoined_calls(sum_calls(ranks, join_calls(ranks))):
        text = f"rank {rank}: {count} remote call{'s' * (count != 1)} to {callee} not joined to a service: {reason}"
        severity = "info"
        if reason == NO_RECORDING:
            if not all_selected:
                continue
            text += ", so what they wait for is not known; make the probe there too, before init_rpc"
            severity = "warning"
        notes.append(Note(kind="unlinked", severity=severity, rank=rank, text=text))  # type: ignore[arg-type]
    return notes
