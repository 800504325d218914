"""How much communication hides under compute, by collective kind, group and phase.

Per rank (in a worker): lanes to `CommunicationSum` rows. Over ranks: `overlap(run)` to a table and findings.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tracekit import schema
from tracekit.analysis.communication.communication_sums import (
    StepShare,
    means_over_ranks,
    merge_sums,
    step_share,
    sum_of_sizes,
)
from tracekit.analysis.events.phases import PHASES, PhaseTimeline
from tracekit.analysis.step_time.savings import saving_without_ns
from tracekit.analysis.timeline.lanes import Lanes, complete_steps
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT
from tracekit.model.intervals import Intervals
from tracekit.model.run import Finding, Run
from tracekit.model.summary import CommunicationSum, StepParts

__all__ = ["Overlap", "communication_sums", "merge_communication_sums", "overlap"]

_NOTABLE = 0.05  # of a step
_MESSAGES = ("send", "recv", "send_recv")


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """`communication`: columns of schema.COMMUNICATION, over the complete steps of each rank. `by_kind`: columns of
    schema.COMMUNICATION_BY_KIND, most exposed first.
    """

    communication: schema.Frame = schema.Frame(schema.COMMUNICATION)
    by_kind: schema.Frame = schema.Frame(schema.COMMUNICATION_BY_KIND)
    findings: tuple[Finding, ...]


def communication_sums(lanes: Lanes, phases: PhaseTimeline, steps: Sequence[StepParts]) -> list[CommunicationSum]:
    """Rows by (group, kind, phase), times clipped to the complete steps among `steps`, counts by launch.

    A collective that ran as several spans (a reduce-scatter of a list, on gloo) is one: it counts once, with its size;
    its time is the union of its spans.
    """
    found, complete = lanes.communication_events, complete_steps(lanes, steps)
    phase = phases.at(found.launch_ns)
    rows = []
    for group, kind, phase_index in sorted(
        set(zip(found.group.tolist(), found.kind.tolist(), phase.tolist(), strict=True))
    ):
        mask = (found.group == group) & (found.kind == kind) & (phase == phase_index)
        time = Intervals.union_of(found.start_ns[mask], found.end_ns[mask]) & complete.time
        count = int((mask & complete.counted).sum())
        if not count and not len(time):
            continue
        rows.append(
            CommunicationSum(
                group=found.groups[group] if group != ABSENT else None,
                kind=KINDS[kind],
                phase=PHASES[phase_index] if phase_index >= 0 else None,
                count=count,
                size_bytes=sum_of_sizes(found.size_bytes[mask & complete.counted]),
                total_ns=time.len_ns,
                exposed_ns=(time - lanes.compute).len_ns,
            )
        )
    return rows


def merge_communication_sums(rows: Sequence[CommunicationSum]) -> tuple[CommunicationSum, ...]:
    """Those of several recordings of one rank."""
    amounts = ("count", "size_bytes", "total_ns", "exposed_ns")
    return merge_sums(rows, lambda row: (row.group, row.kind, row.phase), amounts)


def overlap(run: Run) -> Overlap:
    """The table over all ranks, and a finding about the communication that compute does not hide."""
    index = {group: i for i, group in enumerate(run.groups)}
    rows = [
        {
            "rank": summary.rank,
            "group": None if row.group is None else index[row.group],
            "kind": row.kind,
            "phase": row.phase,
            "count": row.count,
            "size_bytes": row.size_bytes,
            "total_ns": row.total_ns,
            "exposed_ns": row.exposed_ns,
        }
        for summary in run.ranks
        for row in summary.communication
    ]
    return Overlap(
        communication=rows,
        by_kind=_by_kind(run),
        findings=tuple(_exposed(run)),
    )


def _by_kind(run: Run) -> list[dict[str, object]]:
    """Rows over ranks: groups of one dimension of the mesh (different members on each rank) count as one."""
    shares: dict[tuple[str, str | None, str | None], list[StepShare]] = {}
    total_ns: dict[tuple[str, str | None, str | None], list[float]] = {}
    for summary in run.ranks:
        steps = sum(step.complete for step in summary.steps)
        own: dict[tuple[str, str | None, str | None], list[CommunicationSum]] = {}
        for row in summary.communication:
            group = None if row.group is None else row.group.parallelism or row.group.description or row.group.name
            own.setdefault((row.kind, row.phase, group), []).append(row)
        for key, rows in own.items():
            shares.setdefault(key, []).append(step_share(summary.rank, steps, rows))
            total_ns.setdefault(key, []).append(sum(row.total_ns for row in rows) / steps)
    most_exposed_first = sorted(shares.items(), key=lambda item: -sum(share.exposed_ns for share in item[1]))
    return [
        {
            "kind": kind,
            "phase": phase,
            "group": group,
            "total_ns": statistics.fmean(total_ns[kind, phase, group]),
            **means_over_ranks(ranks),
        }
        for (kind, phase, group), ranks in most_exposed_first
    ]


def _exposed(run: Run) -> list[Finding]:
    steps = [step for summary in run.ranks for step in summary.steps if step.complete]
    step_ns = sum(step.step_ns for step in steps)
    exposed_ns = sum(step.exposed_comm_ns for step in steps)
    comm_ns = sum(step.comm_ns for step in steps)
    if not step_ns or not comm_ns:
        return []
    share = exposed_ns / step_ns
    hidden = 1 - exposed_ns / comm_ns
    by_kind: dict[tuple[str, str | None], int] = {}
    for summary in run.ranks:
        for row in summary.communication:
            by_kind[row.kind, row.phase] = by_kind.get((row.kind, row.phase), 0) + row.exposed_ns
    (kind, phase), most_ns = max(by_kind.items(), key=lambda item: item[1])
    where = f"{kind}{f' in {phase}' if phase else ''}"
    # What a pipeline's stages wait for is its bubble, which has a finding, and a remedy, of its own.
    between_stages = kind in _MESSAGES and any(summary.pipeline is not None for summary in run.ranks)
    saving_ns = None if between_stages else saving_without_ns(run, "exposed_comm_ns")
    text = (
        f"communication that compute does not hide takes {share:.0%} of the step "
        f"({exposed_ns / len(steps) / 1e6:.1f} ms); {hidden:.0%} of all communication is hidden"
    )
    if share >= _NOTABLE:
        text += f"; the largest part is {where}" + " between the pipeline's stages" * between_stages
    if share >= _NOTABLE and saving_ns is not None:
        text += f"; hiding all communication would shorten the slowest rank's step by {saving_ns / 1e6:.1f} ms"
    return [
        Finding(
            severity="warning" if share >= _NOTABLE else "info",
            text=text,
            saving_ns=saving_ns,
            evidence={"exposed_share": share, "kind": kind, "phase": phase, "exposed_ns": most_ns},
        )
    ]
