"""Steps in which every rank of a pipeline ran the same actions in the same order, as one table for replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.explain.pipeline.tables import Actions
from tracekit.model.events import ABSENT, Bool, Int32, Int64
from tracekit.model.run import Run, clocks_are_comparable
from tracekit.model.summary import RankSummary
from tracekit.stats.grouped import grouped


@dataclass(frozen=True, kw_only=True, eq=False)
class ActionOrder:
    """The order in which the ranks of one pipeline ran n actions, in k steps.

    Attributes:
        rank: int64 [n], ascending, place in the pipeline's ranks; the actions of a rank are in its order.
        kind: int32 [n], index into `ACTION_KINDS`.
        stage: int32 [n].
        microbatch: int32 [n].
        steps: int64 [k], numbers of the steps.
        start_ns: int64 [n, k], on the run's clock.
        end_ns: int64 [n, k], on the run's clock.
        work_ns: int64 [n, k], how long the action took, without waiting.
        idle_ns: int64 [n, k], as in `Actions`.
        other_ns: int64 [n, k], as in `Actions`.
        data_ns: int64 [n, k], as in `Actions`.
        begin_ns: int64 [ranks, k], when each rank began the step, on the run's clock.
    """

    rank: Int64
    kind: Int32
    stage: Int32
    microbatch: Int32
    steps: Int64
    start_ns: Int64
    end_ns: Int64
    work_ns: Int64
    idle_ns: Int64
    other_ns: Int64
    data_ns: Int64
    begin_ns: Int64

    @property
    def first(self) -> Bool:
        """Return a mask [n] of the actions that are the first ones of their ranks."""
        return np.asarray(np.diff(self.rank, prepend=ABSENT) != 0)

    @property
    def first_ns(self) -> Int64:
        """When the first action over the ranks began, int64 [k]."""
        return np.asarray(self.start_ns.min(axis=0))

    @property
    def last_ns(self) -> Int64:
        """When the last action over the ranks ended, int64 [k]."""
        return np.asarray(self.end_ns.max(axis=0))

    @property
    def span_ns(self) -> Int64:
        """The time from the first to the last action over the ranks, int64 [k]."""
        return self.last_ns - self.first_ns


@dataclass(frozen=True, kw_only=True, eq=False)
class PipelineSteps:
    """One pipeline (there is one a replica) over the steps that all ranks completed.

    Attributes:
        ranks: the ranks that are present, by their first stage.
        action_orders: the orders that the ranks ran; None when ranks are missing or their clocks cannot be compared.
    """

    ranks: tuple[int, ...]
    action_orders: tuple[ActionOrder, ...] | None


def pipeline_steps(
    run: Run, members: Sequence[RankSummary], actions: Mapping[int, Actions]
) -> tuple[PipelineSteps, ...]:
    """Return the pipelines of a run. members: ranks that are part of one. actions: of each rank those to consider."""
    by_pipeline = grouped((() if each.pipeline is None else each.pipeline.ranks, each) for each in members)
    clocks = {clock.rank: clock for clock in run.clocks}
    by_rank = {summary.rank: summary for summary in members}
    result = []
    for expected, present in by_pipeline.items():
        first_stage = {s.rank: int(actions[s.rank].stage.min(initial=np.iinfo(np.int32).max)) for s in present}
        ranks = tuple(sorted(first_stage, key=lambda rank: (first_stage[rank], rank)))
        whole = set(expected) == set(ranks) and all(len(actions[rank]) for rank in ranks)
        known = whole and clocks_are_comparable(present, [clocks[rank] for rank in ranks])
        action_orders = None
        if known:
            on_run = [
                (clocks[rank].to_run(actions[rank].start_ns), clocks[rank].to_run(actions[rank].end_ns))
                for rank in ranks
            ]
            begins = [
                {step.step: clocks[rank].moment_to_run(step.start_ns) for step in by_rank[rank].steps} for rank in ranks
            ]
            action_orders = _action_orders([actions[rank] for rank in ranks], on_run, begins)
        result.append(PipelineSteps(ranks=ranks, action_orders=action_orders))
    return tuple(result)


def _action_orders(
    actions: Sequence[Actions], on_run: Sequence[tuple[Int64, Int64]], begins: Sequence[Mapping[int, int]]
) -> tuple[ActionOrder, ...]:
    """Return the orders.

    actions: of each rank. on_run: their starts and ends on the run's clock. begins: when each rank began each step.
    """
    every = Actions.concatenate(list(actions))
    rank = np.repeat(np.arange(len(actions)), [len(of_rank) for of_rank in actions])
    start_ns, end_ns = (np.concatenate([times[side] for times in on_run]) for side in (0, 1))
    identity = np.stack((rank, every.kind, every.stage, every.microbatch))
    order = np.lexsort((every.start_ns, rank, every.step))
    edges = np.flatnonzero(np.diff(every.step[order], prepend=np.iinfo(np.int64).min))
    alike = grouped((identity[:, rows].tobytes(), rows) for rows in np.split(order, edges[1:]))
    action_orders = []
    for together in alike.values():
        rows = np.stack(together, axis=1)
        first = rows[:, 0]
        action_orders.append(
            ActionOrder(
                rank=rank[first].astype(np.int64),
                kind=every.kind[first],
                stage=every.stage[first],
                microbatch=every.microbatch[first],
                steps=every.step[rows[0]],
                start_ns=start_ns[rows],
                end_ns=end_ns[rows],
                work_ns=every.work_ns[rows],
                idle_ns=every.idle_ns[rows],
                other_ns=every.other_ns[rows],
                data_ns=every.data_ns[rows],
                begin_ns=np.array([[of_rank[step] for step in every.step[rows[0]].tolist()] for of_rank in begins]),
            )
        )
    return tuple(action_orders)
