"""What a rank's page shows that only the whole run tells: instances of collectives, messages, waits for other ranks.

A `RankPlan` is compact and picklable, as a worker may write the rank's page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tracekit.explain.pipeline.steps import pipeline_steps
from tracekit.explain.pipeline.tables import ACTIONS
from tracekit.explain.stragglers.arrivals import arrivals_of
from tracekit.explain.stragglers.collective_instances import CollectiveInstances
from tracekit.explain.stragglers.peer_waits import (
    Lateness,
    PeerWaits,
    grouped,
    late_instances,
    lateness_of,
    message_waits_of,
    waits_of,
)
from tracekit.explain.stragglers.stragglers import counted_steps
from tracekit.model.columnar import Columnar
from tracekit.model.communication import GroupKey
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import ClockModel, Run, clocks_are_comparable
from tracekit.model.summary import RankSummary
from tracekit.render.slices import ROLES

if TYPE_CHECKING:
    pass


"""The formats by what is typed after `--format`; the first is the default."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PipelineSpans(Columnar):
    """n steps of a rank's pipeline; int64 [n] each.

    Attributes:
        step: Number of the step.
        start_ns: Start of the first action over all ranks of the pipeline, on the run's clock.
        end_ns: End of the last action over all ranks of the pipeline, on the run's clock.
    """

    step: Int64
    start_ns: Int64
    end_ns: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class RankPlan:
    """What it takes to write the page of one rank.

    Attributes:
        rank_index: Index in the run's ranks.
        order: Position of the page, from 0.
        summary: The rank's summary.
        clock: The rank's clock model.
        instance: Instance of each of the rank's collectives, or -1, int64.
        instance_role: Role of the rank in the arrow through the instance, index into `ROLES`, uint8.
        message: Number in the run of each of the rank's messages, or -1, int64.
        message_role: Role of the rank in the message's arrow, index into `ROLES`, uint8.
        waits: The rank's waits for others; None if times of ranks cannot be compared.
        late: When the rank was late; None if times of ranks cannot be compared.
        pipeline: Steps of the rank's pipeline.
    """

    rank_index: int
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
    def page_name(self) -> str:
        mesh = self.summary.mesh
        where = " ".join(f"{name}{at}" for name, at in zip(mesh.names, mesh.coordinate, strict=True)) if mesh else ""
        return " · ".join(part for part in (f"rank {self.summary.rank}", self.summary.host, where) if part)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunPlan:
    """What it takes to write the page of the run and those of its ranks.

    Attributes:
        ranks: Plans of the ranks, in the run's order.
        groups: The run's process groups.
        instances: The run's instances of collectives.
        comparable: Whether times of different ranks can be compared.
        shift_ns: By how much all times in the trace are later than on the run's clock.
        first_ns: Time in the trace of the first event or step of any rank.
    """

    ranks: tuple[RankPlan, ...]
    groups: tuple[GroupKey, ...]
    instances: CollectiveInstances
    comparable: bool
    shift_ns: int
    first_ns: int


def plan_of(run: Run) -> RunPlan:
    """Return the plan of a run's merged trace."""
    shift_ns, clocks = _from_zero(run)
    run = replace(run, clocks=tuple(clocks))
    comparable = clocks_are_comparable(run.ranks, run.clocks)
    arrivals = arrivals_of(run, frozenset(counted_steps(run)))
    instance_roles = _roles(arrivals.instance_of, run, [summary.collectives.start_ns for summary in run.ranks])
    messages = _message_numbers(run)
    message_roles = _roles(messages, run, [summary.messages.ready_ns for summary in run.ranks])
    spans = _pipeline_spans(run)
    late = late_instances(arrivals)
    order = {rank_index: position for position, rank_index in enumerate(_page_order(run.ranks))}
    ranks = [
        RankPlan(
            rank_index=rank_index,
            order=order[rank_index],
            summary=summary,
            clock=clock,
            instance=arrivals.instance_of[rank_index],
            instance_role=instance_roles[rank_index],
            message=messages[rank_index],
            message_role=message_roles[rank_index],
            waits=PeerWaits.concatenate(
                [
                    waits_of(run, arrivals, rank_index, instance_roles[rank_index], late[rank_index]),
                    message_waits_of(run, arrivals, rank_index, messages[rank_index], late[rank_index]),
                ]
            )
            if comparable
            else None,
            late=lateness_of(arrivals, late[rank_index]) if comparable else None,
            pipeline=spans.get(summary.rank, _NO_SPANS),
        )
        for rank_index, (summary, clock) in enumerate(zip(run.ranks, clocks, strict=True))
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
    """Return how far all clocks are shifted, and the shifted clocks. Perfetto shows nothing before time zero, so a run
    that begins there is shifted as a whole."""
    below_ns = min(0, _first_ns(run.ranks, run.clocks))
    moved = [replace(clock, offset_ns=clock.offset_ns + below_ns) for clock in run.clocks]
    return -below_ns, moved


def _first_ns(ranks: Sequence[RankSummary], clocks: Sequence[ClockModel]) -> int:
    """Return when the first event or step of any rank began, on the run's clock."""
    starts_ns: list[int] = []
    for summary, clock in zip(ranks, clocks, strict=True):
        of_rank_ns = [step.start_ns for step in summary.steps]
        if summary.first_event_ns is not None:
            of_rank_ns.append(summary.first_event_ns)
        starts_ns += clock.to_run(np.array(of_rank_ns, dtype=np.int64)).tolist()
    return min(starts_ns, default=0)


def _page_order(ranks: Sequence[RankSummary]) -> list[int]:
    """Return the indices of ranks in page order: by coordinates if all ranks have a mesh, else by rank."""
    meshed = all(summary.mesh is not None for summary in ranks)

    def key(rank_index: int) -> tuple[list[int], int]:
        mesh = ranks[rank_index].mesh
        return (list(mesh.coordinate) if meshed and mesh is not None else [], ranks[rank_index].rank)

    return sorted(range(len(ranks)), key=key)


def _roles(numbers: Sequence[Int64], run: Run, starts_ns: Sequence[Int64]) -> list[npt.NDArray[np.uint8]]:
    """Return for each rank the roles of its rows, indexes into `ROLES`.

    numbers: number in the run of each row of each rank, or -1. Rows of one number are members of one arrow, from the
    row that starts first to the row that starts last.
    """
    empty = np.empty(0, dtype=np.int64)
    on_run = [clock.to_run(of_rank_ns) for of_rank_ns, clock in zip(starts_ns, run.clocks, strict=True)]
    number, start_ns = np.concatenate([empty, *numbers]), np.concatenate([empty, *on_run])
    order = np.lexsort((start_ns, number))
    ordered = number[order]
    differs = ordered[1:] != ordered[:-1]
    role = np.full(len(number), ROLES.index("passes"), dtype=np.uint8)
    role[order[np.append(differs, True)[: len(order)]]] = ROLES.index("ends")
    role[order[np.append(True, differs)[: len(order)]]] = ROLES.index("begins")
    return np.split(role, np.cumsum([len(of_rank) for of_rank in numbers])[:-1])


def _message_numbers(run: Run) -> list[Int64]:
    """Return for each rank the number in the run of each of its messages, or -1."""
    numbers = [np.full(len(summary.messages), ABSENT, dtype=np.int64) for summary in run.ranks]
    matched = run.messages
    ranks = np.array([summary.rank for summary in run.ranks], dtype=np.int64)
    by_rank = np.argsort(ranks, kind="stable")
    for rank, row in ((matched.source, matched.send), (matched.destination, matched.recv)):
        rank_index = by_rank[np.searchsorted(ranks[by_rank], rank)]
        by_rank_index = grouped(np.arange(len(matched)), rank_index, len(numbers))
        for of_rank, messages in zip(numbers, by_rank_index, strict=True):
            of_rank[row[messages]] = messages
    return numbers


_NO_SPANS = PipelineSpans(**{name: np.empty(0, dtype=np.int64) for name in ("step", "start_ns", "end_ns")})


def _pipeline_spans(run: Run) -> dict[int, PipelineSpans]:
    """Return by rank the spans of the steps that all ranks completed. Pipelines of which ranks are missing, or whose
    clocks cannot be compared, have none."""
    common = sorted(run.common_steps())
    members = [summary for summary in run.ranks if summary.pipeline is not None and len(summary[ACTIONS])]
    actions = {summary.rank: summary[ACTIONS].rows(np.isin(summary[ACTIONS].step, common)) for summary in members}
    spans_of: dict[int, PipelineSpans] = {}
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
            spans_of |= dict.fromkeys(steps.ranks, spans)
    return spans_of
