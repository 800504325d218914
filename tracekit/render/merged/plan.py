"""What the run knows of each rank that its own recording does not: who waited for it, what met what, and when.

Comes in: a `Run`. Goes out: a `RunPlan`, with a `RankPlan` a rank: compact, and picklable for the worker that writes
the rank's page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tracekit.analysis.pipeline.parts import ACTIONS
from tracekit.analysis.pipeline.steps import pipeline_steps
from tracekit.analysis.stragglers.arrivals import arrivals_of
from tracekit.analysis.stragglers.collective_instances import CollectiveInstances
from tracekit.analysis.stragglers.stragglers import counted_steps
from tracekit.model.columnar import Columnar
from tracekit.model.communication import GroupKey
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import ClockModel, Run, clocks_are_comparable
from tracekit.model.summary import RankSummary
from tracekit.render.merged.lateness import (
    Lateness,
    PeerWaits,
    grouped,
    late_instances,
    lateness_of,
    message_waits_of,
    waits_of,
)
from tracekit.render.trace.slices import ROLES

__all__ = ["PipelineSpans", "RankPlan", "RunPlan", "plan_of"]


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
    it, passes it on and ends it (`ROLES`), in the order in which they start. `waits`, `late`: None where times of ranks
    cannot be compared.
    """

    place: int
    order: int
    summary: RankSummary
    clock: ClockModel
    instance: Int64
    instance_role: npt.NDArray[np.uint8]
    message: Int64
    message_role: npt.NDArray[np.uint8]
    waits: PeerWaits | None
    late: Lateness | None
    pipeline: PipelineSpans

    @property
    def process_name(self) -> str:
        mesh = self.summary.mesh
        where = " ".join(f"{name}{at}" for name, at in zip(mesh.names, mesh.coordinate, strict=True)) if mesh else ""
        return " · ".join(part for part in (f"rank {self.summary.rank}", self.summary.host, where) if part)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunPlan:
    """`ranks` in the run's order; `groups` are the run's, and so are the numbers of `instances`. `comparable`: whether
    times of different ranks are. `shift_ns`: by how much all times are later than the run's clock has them. `first_ns`:
    when the first event of any rank began, or a step if that was earlier, then.
    """

    ranks: tuple[RankPlan, ...]
    groups: tuple[GroupKey, ...]
    instances: CollectiveInstances
    comparable: bool
    shift_ns: int
    first_ns: int


def plan_of(run: Run) -> RunPlan:
    """What the pages of a run's merged trace show over its ranks."""
    shift_ns, clocks = _from_zero(run)
    run = replace(run, clocks=tuple(clocks))
    comparable = clocks_are_comparable(run.ranks, run.clocks)
    arrivals = arrivals_of(run, frozenset(counted_steps(run)))
    instance_roles = _roles(arrivals.instance_of, run, [summary.collectives.start_ns for summary in run.ranks])
    messages = _message_numbers(run)
    message_roles = _roles(messages, run, [summary.messages.ready_ns for summary in run.ranks])
    spans = _pipeline_spans(run)
    late = late_instances(arrivals)
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
            waits=PeerWaits.concatenate(
                [
                    waits_of(run, arrivals, place, instance_roles[place], late[place]),
                    message_waits_of(run, arrivals, place, messages[place], late[place]),
                ]
            )
            if comparable
            else None,
            late=lateness_of(arrivals, late[place]) if comparable else None,
            pipeline=spans.get(summary.rank, _NO_SPANS),
        )
        for place, (summary, clock) in enumerate(zip(run.ranks, clocks, strict=True))
    ]
    return RunPlan(
        ranks=tuple(ranks),
        groups=run.groups,
        instances=arrivals.instances,
        comparable=comparable,
        shift_ns=shift_ns,
        first_ns=_first_ns(run.ranks, clocks),
    )


def _from_zero(run: Run) -> tuple[int, list[ClockModel]]:
    """By how much the run's clocks move together when a trace begins before zero, where Perfetto knows no time; and
    these clocks."""
    below_ns = min(0, _first_ns(run.ranks, run.clocks))
    moved = [
        replace(
            clock,
            offset_ns=clock.offset_ns + below_ns,
            jumps=tuple(replace(step, offset_ns=step.offset_ns + below_ns) for step in clock.jumps),
        )
        for clock in run.clocks
    ]
    return -below_ns, moved


def _first_ns(ranks: Sequence[RankSummary], clocks: Sequence[ClockModel]) -> int:
    """When the first event of any rank began, on the run's clock, or a step if that was earlier."""
    starts_ns: list[int] = []
    for summary, clock in zip(ranks, clocks, strict=True):
        own_ns = [step.start_ns for step in summary.steps]
        if summary.first_event_ns is not None:
            own_ns.append(summary.first_event_ns)
        starts_ns += clock.to_run(np.array(own_ns, dtype=np.int64)).tolist()
    return min(starts_ns, default=0)


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
    on_run = [clock.to_run(own) for own, clock in zip(starts_ns, run.clocks, strict=True)]
    number, start_ns = np.concatenate([empty, *numbers]), np.concatenate([empty, *on_run])
    order = np.lexsort((start_ns, number))
    ordered = number[order]
    differs = ordered[1:] != ordered[:-1]
    role = np.full(len(number), ROLES.index("passes"), dtype=np.uint8)
    role[order[np.append(differs, True)[: len(order)]]] = ROLES.index("ends")
    role[order[np.append(True, differs)[: len(order)]]] = ROLES.index("begins")
    return np.split(role, np.cumsum([len(own) for own in numbers])[:-1])


def _message_numbers(run: Run) -> list[Int64]:
    """By rank, of each of its messages the number in the run, or -1."""
    numbers = [np.full(len(summary.messages), ABSENT, dtype=np.int64) for summary in run.ranks]
    matched = run.messages
    ranks = np.array([summary.rank for summary in run.ranks], dtype=np.int64)
    by_rank = np.argsort(ranks, kind="stable")
    for rank, row in ((matched.source, matched.send), (matched.destination, matched.recv)):
        place = by_rank[np.searchsorted(ranks[by_rank], rank)]
        for own, here in zip(numbers, grouped(np.arange(len(matched)), place, len(numbers)), strict=True):
            own[row[here]] = here
    return numbers


_NO_SPANS = PipelineSpans(**{name: np.empty(0, dtype=np.int64) for name in ("step", "start_ns", "end_ns")})


def _pipeline_spans(run: Run) -> dict[int, PipelineSpans]:
    """By rank, of the steps that all ranks completed; none where ranks are missing or clocks cannot be compared."""
    common = sorted(run.common_steps())
    members = [summary for summary in run.ranks if summary.pipeline is not None and len(summary[ACTIONS])]
    actions = {summary.rank: summary[ACTIONS].rows(np.isin(summary[ACTIONS].step, common)) for summary in members}
    found: dict[int, PipelineSpans] = {}
    for steps in pipeline_steps(run, members, actions):
        if steps.action_orders:
            spans = PipelineSpans.concatenate(
                [
                    PipelineSpans(
                        step=order.steps, start_ns=order.start_ns.min(axis=0), end_ns=order.end_ns.max(axis=0)
                    )
                    for order in steps.action_orders
                ]
            )
            found |= dict.fromkeys(steps.ranks, spans)
    return found
