"""Steps of a pipeline as one table: the same actions, in the same order on every rank, step after step.

Comes in: a run and the actions of its ranks. Goes out: for each pipeline (there is one a replica) its `Program`s: steps
in which every rank ran the same actions in the same order share one, so that replays take all of them at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.pipeline.parts import Actions
from tracekit.model.events import Int32, Int64
from tracekit.model.run import Run, clocks_are_comparable
from tracekit.model.summary import RankSummary

__all__ = ["PipelineSteps", "Program", "pipeline_steps"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """n actions of one pipeline, rank by rank in their order, in k steps.

    rank: int64 [n], place in the pipeline's ranks. kind (index into `ACTION_KINDS`), stage, microbatch: int32 [n].
    steps: int64 [k]. start_ns, end_ns: int64 [n, k], on the run's clock. work_ns: int64 [n, k], without waiting.
    """

    rank: Int64
    kind: Int32
    stage: Int32
    microbatch: Int32
    steps: Int64
    start_ns: Int64
    end_ns: Int64
    work_ns: Int64

    @property
    def span_ns(self) -> Int64:
        """int64 [k]: from the first to the last action over the ranks."""
        return np.asarray(self.end_ns.max(axis=0) - self.start_ns.min(axis=0))


@dataclass(frozen=True, kw_only=True, eq=False)
class PipelineSteps:
    """One pipeline over the steps that all ranks completed. `ranks`: of those that are there, by their first stage.
    `programs`: None when ranks are missing, or their clocks cannot be compared.
    """

    ranks: tuple[int, ...]
    programs: tuple[Program, ...] | None


def pipeline_steps(
    run: Run, members: Sequence[RankSummary], actions: Mapping[int, Actions]
) -> tuple[PipelineSteps, ...]:
    """Of ranks that are part of pipelines, with the actions of each that count."""
    by_pipeline: dict[tuple[int, ...], list[RankSummary]] = defaultdict(list)
    for summary in members:
        by_pipeline[() if summary.pipeline is None else summary.pipeline.ranks].append(summary)
    clocks = {clock.rank: clock for clock in run.clocks}
    result = []
    for expected, own in by_pipeline.items():
        first_stage = {s.rank: int(actions[s.rank].stage.min(initial=np.iinfo(np.int32).max)) for s in own}
        ranks = tuple(sorted(first_stage, key=lambda rank: (first_stage[rank], rank)))
        whole = set(expected) == set(ranks) and all(len(actions[rank]) for rank in ranks)
        known = whole and clocks_are_comparable(own, [clocks[rank] for rank in ranks])
        programs = None
        if known:
            on_run = {
                rank: (
                    clocks[rank].to_run(actions[rank].start_ns),
                    clocks[rank].to_run(actions[rank].end_ns),
                )
                for rank in ranks
            }
            programs = _programs([actions[rank] for rank in ranks], [on_run[rank] for rank in ranks])
        result.append(PipelineSteps(ranks=ranks, programs=programs))
    return tuple(result)


def _programs(actions: Sequence[Actions], on_run: Sequence[tuple[Int64, Int64]]) -> tuple[Program, ...]:
    every = Actions.concatenate(list(actions))
    rank = np.repeat(np.arange(len(actions)), [len(own) for own in actions])
    start_ns, end_ns = (np.concatenate([times[side] for times in on_run]) for side in (0, 1))
    what = np.stack((rank, every.kind, every.stage, every.microbatch))
    order = np.lexsort((every.start_ns, rank, every.step))
    edges = np.flatnonzero(np.diff(every.step[order], prepend=np.iinfo(np.int64).min))
    alike: dict[bytes, list[Int64]] = defaultdict(list)
    for rows in np.split(order, edges[1:]):
        alike[what[:, rows].tobytes()].append(rows)
    programs = []
    for together in alike.values():
        rows = np.stack(together, axis=1)
        first = rows[:, 0]
        programs.append(
            Program(
                rank=rank[first].astype(np.int64),
                kind=every.kind[first],
                stage=every.stage[first],
                microbatch=every.microbatch[first],
                steps=every.step[rows[0]],
                start_ns=start_ns[rows],
                end_ns=end_ns[rows],
                work_ns=every.work_ns[rows],
            )
        )
    return tuple(programs)
