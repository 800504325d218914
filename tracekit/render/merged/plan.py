"""What the run knows of each rank that its own recording does not: who waited for it, what met what, and when.

Comes in: a `Run`. Goes out: a `RunPlan`, with a `RankPlan` a rank: compact, and picklable for the worker that writes
the rank's page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tracekit.analysis.align import on_run_clock
from tracekit.analysis.arrivals import Arrivals, Instances, arrivals_of
from tracekit.analysis.message_segments import own_arrivals_ns
from tracekit.analysis.pipeline_steps import pipeline_steps
from tracekit.analysis.stragglers import counted_steps
from tracekit.model.columnar import Columnar
from tracekit.model.communication import GroupKey
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import ClockModel, Run
from tracekit.model.summary import RankSummary
from tracekit.render.merged.slices import ROLES

__all__ = ["Lateness", "PeerWaits", "PipelineSpans", "RankPlan", "RunPlan", "plan_of"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PeerWaits(Columnar):
    """n times when a rank was in a collective whose last rank had not come, on the run's clock; int64 [n] each.
    instance: its number in the run. blamed_rank: whom it waited for. leads_to: the instance to which the wait made this
    rank come late, or -1.
    role: uint8 [n], of the rank in the instance.
    """

    start_ns: Int64
    end_ns: Int64
    instance: Int64
    blamed_rank: Int64
    leads_to: Int64
    role: npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, eq=False)
class Lateness(Columnar):
    """n times when a rank was late, from the arrival of the last but one to its own, on the run's clock; int64 [n]
    each. instance: what it came late to. excess_ns, compute_ns, data_ns: how much more than its peers it took since its
    last release, computed, and loaded data.
    """

    start_ns: Int64
    end_ns: Int64
    instance: Int64
    excess_ns: Int64
    compute_ns: Int64
    data_ns: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class PipelineSpans(Columnar):
    """n steps of the pipeline that a rank is in, from the first to the last action over its ranks, on the run's clock;
    int64 [n] each."""

    step: Int64
    start_ns: Int64
    end_ns: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class RankPlan:
    """`place` in the run's ranks; `order` on the page. instance: int64, of each of its collectives, or -1; message:
    int64, the number in the run of each of its messages, or -1; of either the role, uint8: which of its members begins
    it, passes it on and ends it (`ROLES`), in the order in which they start.
    """

    place: int
    order: int
    summary: RankSummary
    clock: ClockModel
    instance: Int64
    instance_role: npt.NDArray[np.uint8]
    message: Int64
    message_role: npt.NDArray[np.uint8]
    waits: PeerWaits
    late: Lateness
    pipeline: PipelineSpans

    @property
    def process_name(self) -> str:
        mesh = self.summary.mesh
        where = " ".join(f"{name}{at}" for name, at in zip(mesh.names, mesh.coordinate, strict=True)) if mesh else ""
        return " · ".join(part for part in (f"rank {self.summary.rank}", self.summary.host, where) if part)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunPlan:
    """`ranks` in the run's order; `groups` are the run's, and so are the numbers of `instances`."""

    ranks: tuple[RankPlan, ...]
    groups: tuple[GroupKey, ...]
    instances: Instances

    @property
    def first_ns(self) -> int:
        """When the first event of any rank began, on the run's clock, or a step if that was earlier."""
        starts_ns = []
        for rank in self.ranks:
            own_ns = [step.start_ns for step in rank.summary.steps]
            if rank.summary.first_event_ns is not None:
                own_ns.append(rank.summary.first_event_ns)
            starts_ns += on_run_clock(np.array(own_ns, dtype=np.int64), rank.clock).tolist()
        return min(starts_ns, default=0)


def plan_of(run: Run) -> RunPlan:
    """What the pages of a run's merged trace show over its ranks."""
    clocks = _from_zero(run)
    run = replace(run, clocks=tuple(clocks))
    arrivals = arrivals_of(run, frozenset(counted_steps(run)))
    instance_roles = _roles(arrivals.instance_of, run, [summary.collectives.start_ns for summary in run.ranks])
    messages = _message_numbers(run)
    message_roles = _roles(messages, run, [own_arrivals_ns(summary) for summary in run.ranks])
    spans = _pipeline_spans(run)
    order = {place: position for position, place in enumerate(_page_order(run.ranks))}
    ranks = [
        RankPlan(
            place=place,
            order=order[place],
            summary=summary,
            clock=clock,
            instance=arrivals.instance_of[place],
            instance_role=instance_roles[place],
            message=messages[place],
            message_role=message_roles[place],
            waits=_waits(run, arrivals, place, instance_roles[place]),
            late=_lateness(arrivals, place),
            pipeline=spans.get(summary.rank, _NO_SPANS),
        )
        for place, (summary, clock) in enumerate(zip(run.ranks, clocks, strict=True))
    ]
    return RunPlan(ranks=tuple(ranks), groups=run.groups, instances=arrivals.instances)


def _from_zero(run: Run) -> list[ClockModel]:
    """The run's clocks, moved together when a trace begins before zero, where Perfetto knows no time."""
    starts_ns = [
        int(on_run_clock(np.array([summary.first_event_ns]), clock)[0])
        for summary, clock in zip(run.ranks, run.clocks, strict=True)
        if summary.first_event_ns is not None
    ]
    below_ns = min(0, *starts_ns) if starts_ns else 0
    return [replace(clock, offset_ns=clock.offset_ns + below_ns) for clock in run.clocks]


def _page_order(ranks: Sequence[RankSummary]) -> list[int]:
    """Places by coordinates in the mesh where all have one, else by rank."""
    meshed = all(summary.mesh is not None for summary in ranks)

    def key(place: int) -> tuple[list[int], int]:
        mesh = ranks[place].mesh
        return (list(mesh.coordinate) if meshed and mesh is not None else [], ranks[place].rank)

    return sorted(range(len(ranks)), key=key)


def _roles(numbers: Sequence[Int64], run: Run, starts_ns: Sequence[Int64]) -> list[npt.NDArray[np.uint8]]:
    """By rank, of what has a number over the run (or -1): which member starts first, last, and in between."""
    empty = np.empty(0, dtype=np.int64)
    on_run = [on_run_clock(own, clock) for own, clock in zip(starts_ns, run.clocks, strict=True)]
    number, start_ns = np.concatenate([empty, *numbers]), np.concatenate([empty, *on_run])
    order = np.lexsort((start_ns, number))
    ordered = number[order]
    differs = ordered[1:] != ordered[:-1]
    role = np.full(len(number), ROLES.index("passes"), dtype=np.uint8)
    role[order[np.append(differs, True)[: len(order)]]] = ROLES.index("ends")
    role[order[np.append(True, differs)[: len(order)]]] = ROLES.index("begins")
    return np.split(role, np.cumsum([len(own) for own in numbers])[:-1])


def _message_numbers(run: Run) -> list[Int64]:
    numbers = {summary.rank: np.full(len(summary.messages), ABSENT, dtype=np.int64) for summary in run.ranks}
    matched = run.messages
    for rank, row in ((matched.source, matched.send), (matched.destination, matched.recv)):
        for of_rank, own in numbers.items():
            here = np.flatnonzero(rank == of_rank)
            own[row[here]] = here
    return [numbers[summary.rank] for summary in run.ranks]


def _waits(run: Run, arrivals: Arrivals, place: int, role: npt.NDArray[np.uint8]) -> PeerWaits:
    instances, own = arrivals.instances, arrivals.instance_of[place]
    rows = np.flatnonzero(own != ABSENT)
    last = instances.rank[own[rows]]
    rows = rows[(last != ABSENT) & (last != place)]
    start_ns = on_run_clock(run.ranks[place].collectives.start_ns[rows], run.clocks[place])
    end_ns = instances.arrival_ns[own[rows]]
    waited = end_ns > start_ns
    rows, start_ns, end_ns = rows[waited], start_ns[waited], end_ns[waited]
    # The instances to which this rank came last, by what had released it before.
    late = np.flatnonzero((instances.rank == place) & (instances.late_ns > 0))
    next_late = dict(zip(instances.before[late].tolist(), late.tolist(), strict=True))
    return PeerWaits(
        start_ns=start_ns,
        end_ns=end_ns,
        instance=own[rows],
        blamed_rank=np.array([run.ranks[k].rank for k in instances.rank[own[rows]].tolist()], dtype=np.int64),
        leads_to=np.array([next_late.get(which, ABSENT) for which in own[rows].tolist()], dtype=np.int64),
        role=role[rows],
    )


def _lateness(arrivals: Arrivals, place: int) -> Lateness:
    instances = arrivals.instances
    late = np.flatnonzero((instances.rank == place) & (instances.late_ns > 0))
    return Lateness(
        start_ns=instances.arrival_ns[late] - instances.late_ns[late],
        end_ns=instances.arrival_ns[late],
        instance=late,
        excess_ns=instances.excess_ns[late],
        compute_ns=instances.compute_ns[late],
        data_ns=instances.data_ns[late],
    )


_NO_SPANS = PipelineSpans(**{name: np.empty(0, dtype=np.int64) for name in ("step", "start_ns", "end_ns")})


def _pipeline_spans(run: Run) -> dict[int, PipelineSpans]:
    """By rank, of the steps that all ranks completed; none where ranks are missing or clocks cannot be compared."""
    common = sorted(run.common_steps())
    members = [summary for summary in run.ranks if summary.pipeline is not None and len(summary.actions)]
    actions = {summary.rank: summary.actions.rows(np.isin(summary.actions.step, common)) for summary in members}
    found: dict[int, PipelineSpans] = {}
    for steps in pipeline_steps(run, members, actions):
        if steps.programs:
            spans = PipelineSpans.concatenate(
                [
                    PipelineSpans(
                        step=program.steps, start_ns=program.start_ns.min(axis=0), end_ns=program.end_ns.max(axis=0)
                    )
                    for program in steps.programs
                ]
            )
            found |= dict.fromkeys(steps.ranks, spans)
    return found
