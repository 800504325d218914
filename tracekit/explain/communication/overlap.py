"""How much communication compute hides, by collective kind, group and phase."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.explain.communication import tables
from tracekit.explain.communication.communication_sums import means_over_ranks, shares_by_key
from tracekit.explain.communication.tables import COMMUNICATION_SUMS
from tracekit.explain.step_time.breakdown import blocking_evidence
from tracekit.findings.communication import exposed_communication
from tracekit.findings.finding import Finding
from tracekit.findings.thresholds import NOTABLE_SHARE
from tracekit.model.run import Run
from tracekit.model.table import Frame
from tracekit.stats.grouped import summed


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Communication of all ranks.

    Attributes:
        communication: rows of tables.COMMUNICATION, sums over the complete steps of each rank.
        by_kind: rows of tables.COMMUNICATION_BY_KIND, the most exposed first.
        findings: none; the diagnosis tells transfers from waiting.
    """

    communication: Frame = Frame(tables.COMMUNICATION)
    by_kind: Frame = Frame(tables.COMMUNICATION_BY_KIND)
    findings: tuple[Finding, ...] = ()


def overlap(run: Run) -> Overlap:
    """Return the tables."""
    rows = [
        tables.COMMUNICATION.row(row, rank=summary.rank, group=run.index_of_group[row.group])
        for summary in run.ranks
        for row in summary[COMMUNICATION_SUMS]
    ]
    return Overlap(communication=rows, by_kind=_by_kind(run))


def _by_kind(run: Run) -> list[dict[str, object]]:
    """Return rows over ranks.

    Groups of one dimension of the mesh count as one, though their members differ by rank.
    """
    amounts = ("count", "size_bytes", "total_ns", "exposed_ns")
    shares = shares_by_key(
        run, COMMUNICATION_SUMS, lambda row: (row.kind, row.phase, row.group and row.group.label), amounts
    )
    most_exposed_first = sorted(shares.items(), key=lambda item: -sum(share["exposed_ns"] for share in item[1]))
    return [
        {"kind": kind, "phase": phase, "group": group, **means_over_ranks(of_ranks)}
        for (kind, phase, group), of_ranks in most_exposed_first
    ]


def exposed_findings(run: Run) -> list[Finding]:
    """Find communication that compute does not hide, where it is not known how much of it is waiting for other ranks.

    The diagnosis reports on the transfers and the waiting of runs whose ranks can be compared.
    """
    steps = [step for summary in run.ranks for step in summary.steps if step.complete]
    step_ns = sum(step.step_ns for step in steps)
    exposed_ns = sum(step.exposed_comm_ns for step in steps)
    if not step_ns:
        return []
    share = exposed_ns / step_ns
    rows = (row for summary in run.ranks for row in summary[COMMUNICATION_SUMS])
    by_kind = summed(((row.kind, row.phase), row.exposed_ns) for row in rows)
    if not by_kind:
        return []
    (kind, phase), most_ns = max(by_kind.items(), key=lambda item: item[1])
    return [
        exposed_communication(
            cause="communication",
            time_ns=exposed_ns // len(steps),
            evidence={
                "exposed_share": share,
                "kind": kind,
                "phase": phase,
                "exposed_ns": most_ns,
                "all_ranks": all(summary.is_measured for summary in run.ranks)
                and not run.missing_ranks
                and len(run.ranks) >= (run.world_size or 2),
                **blocking_evidence(run),
            },
            remedy="communication",
            conditions=[NOTABLE_SHARE.reached_by(share)],
        )
    ]
