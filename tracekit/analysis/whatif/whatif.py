"""What a job's slowness comes from, and what mending it would save: replays with other durations.

Comes in: a `Job`. Goes out: `WhatIf`. The measures are those of

    Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI 2025.

T is the mean step of the replay with the measured durations, and T_ideal that with every piece of compute at the mean
of its kind and every transfer at the median of its kind, over ranks and steps. S = T / T_ideal. S of a rank, stage or
type: only its operations keep their measured durations. M_W = (T - T with the worst 3 % of the ranks ideal) /
(T - T_ideal), M_S the same with the last stage ideal. `replay_error` = T / measured step - 1 says how far to trust all
of it: what the graph does not know of (gaps between operations) is missing from T.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracekit.analysis.replay.replay import Float64
from tracekit.analysis.replay.workload import Job, Workload
from tracekit.analysis.section import Unavailable
from tracekit.analysis.whatif.run_workload import job_of_run
from tracekit.errors import InputError
from tracekit.model.events import Bool, Int64
from tracekit.model.run import Finding, Run

__all__ = ["BALANCED", "Fix", "WhatIf", "what_if", "what_if_of_run"]

_WORST_PERCENT = 3
_NO_SLOWNESS = 0.001  # T - T_ideal below this share of T: there is nothing to divide among causes
_TRIED_RANKS = 8
_SHOWN_RANKS = 3
_WORTH_SHARE = 0.01
BALANCED = "perfectly balanced stages"
_ERRORS = 2  # a saving is told from none beyond this many of its errors
_AT_ONCE = 16  # replays
_MOST_WORK = 500_000_000  # operations replayed for one question
_REPLAYED_RANKS = 64  # one by one, those first that can have slowed the job most


@dataclass(frozen=True, kw_only=True)
class Fix:
    """Something to change. `error_ns`: from the replay's error, the spread over steps and the clocks' uncertainty.
    `share`: of the measured step.
    """

    what: str
    saves_ns_per_step: int
    error_ns: int
    share: float
    rank: int | None = None


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """Ratios are over the steps' means. `m_w`, `m_s`: None where there is no slowness, or no stage, to speak of.
    `fixes`: the most worthwhile first.
    """

    steps: int
    measured_ns: int
    replayed_ns: int
    ideal_ns: int
    slowdown: float
    replay_error: float
    by_rank: Mapping[int, float]
    by_type: Mapping[str, float]
    by_stage: Mapping[int, float]
    m_w: float | None
    m_s: float | None
    fixes: tuple[Fix, ...]
    notes: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


class _Replays:
    """A job's replays: `measured` and `ideal` durations of each workload, and T of any mixture."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.measured = [w.duration_ns for w in job.workloads]
        level_ns = _ideal_levels(job)
        self.ideal = [w.with_pieces(np.broadcast_to(level_ns[w.kind, None], w.piece_ns.shape)) for w in job.workloads]

    def step_ns(self, durations: list[Float64]) -> Float64:
        """float64 [s], over all steps."""
        return np.concatenate([w.step_ns(d) for w, d in zip(self.job.workloads, durations, strict=True)])

    def mixed_ns(self, measured: Callable[[Workload], Bool]) -> float:
        """T with the measured durations of the chosen operations, bool [n], and the ideal ones of the others."""
        parts = zip(self.job.workloads, self.measured, self.ideal, strict=True)
        return float(self.step_ns([np.where(measured(w)[:, None], m, i) for w, m, i in parts]).mean())

    @cached_property
    def ideal_ns(self) -> float:
        """T_ideal."""
        return float(self.step_ns(self.ideal).mean())

    def most_slowed_ns(self) -> dict[int, float]:
        """By how much each rank alone can make the mean step longer at most: what its operations last beyond the ideal,
        as no path through the graph holds more of it than all."""
        beyond_ns: dict[int, float] = defaultdict(float)
        for w, measured, ideal in zip(self.job.workloads, self.measured, self.ideal, strict=True):
            of_operation = np.maximum(measured - ideal, 0).sum(axis=1)
            known = w.rank >= 0
            ranks, which = np.unique(w.rank[known], return_inverse=True)
            for rank, own_ns in zip(ranks.tolist(), np.bincount(which, of_operation[known]).tolist(), strict=True):
                beyond_ns[rank] += own_ns
        steps = sum(len(w.measured_ns) for w in self.job.workloads)
        return {rank: own_ns / steps for rank, own_ns in beyond_ns.items()}

    def slowdowns(self, label: Callable[[Workload], Int64]) -> dict[int, float]:
        """S of each label that operations, int64 [n], have; -1 is none."""
        found = np.unique(np.concatenate([label(w) for w in self.job.workloads]))
        result: dict[int, float] = {}
        labels = found[found >= 0].tolist()
        for i in range(0, len(labels), _AT_ONCE):
            some = labels[i : i + _AT_ONCE]
            steps_ns = []
            for w, m, ideal in zip(self.job.workloads, self.measured, self.ideal, strict=True):
                own = label(w)[:, None]
                steps_ns.append(w.steps_of_each_ns([np.where(own == chosen, m, ideal) for chosen in some]))
            mean_ns = np.concatenate(steps_ns).mean(axis=0)
            slowdowns = mean_ns / self.ideal_ns if self.ideal_ns else np.ones(len(some))
            result |= dict(zip(some, slowdowns.tolist(), strict=True))
        return result


def what_if_of_run(run: Run) -> WhatIf | Unavailable:
    """Unavailable where the run cannot be replayed: one rank alone, no common steps, too much of it."""
    try:
        return what_if(job_of_run(run))
    except InputError as error:
        return Unavailable(reason=str(error).removeprefix(f"{run.path}: "))


def what_if(job: Job) -> WhatIf:
    """Replay the job as measured, as ideal, and with each change."""
    replays = _Replays(job)
    notes = list(job.notes)
    measured_ns = float(np.concatenate([w.measured_ns for w in job.workloads]).mean())
    steps_ns = replays.step_ns(replays.measured)
    actual_ns, ideal_ns = float(steps_ns.mean()), replays.ideal_ns
    error = actual_ns / measured_ns - 1 if measured_ns else 0.0
    by_stage = replays.slowdowns(lambda w: w.stage)
    by_rank = _by_rank(replays, by_stage, notes)
    slowness_ns = actual_ns - ideal_ns
    if len(steps_ns) == 1:
        notes.append("one step: how much savings differ from step to step is not known")

    def explained(cause: Callable[[Workload], Bool]) -> float | None:
        if slowness_ns <= _NO_SLOWNESS * actual_ns:
            return None
        return (actual_ns - replays.mixed_ns(lambda w: ~cause(w))) / slowness_ns

    worst = sorted(by_rank, key=lambda rank: (-by_rank[rank], rank))[: _worst_of(len(replays.most_slowed_ns()))]
    last = max(by_stage, default=0)
    return WhatIf(
        steps=len(steps_ns),
        measured_ns=round(measured_ns),
        replayed_ns=round(actual_ns),
        ideal_ns=round(ideal_ns),
        slowdown=actual_ns / ideal_ns if ideal_ns else 1.0,
        replay_error=error,
        by_rank=by_rank,
        by_type={job.types[own]: s for own, s in replays.slowdowns(lambda w: w.type).items()},
        by_stage=by_stage,
        m_w=explained(lambda w: np.isin(w.rank, worst)) if worst else None,
        m_s=explained(lambda w: w.stage == last) if last else None,
        fixes=tuple(_fixes(replays, steps_ns, measured_ns, error, by_rank)),
        notes=tuple(notes),
    )


def _ideal_levels(job: Job) -> Float64:
    """float64 [kinds]: how long a piece of each kind lasts ideally."""
    kind = np.concatenate([np.repeat(w.kind, w.piece_ns.shape[1]) for w in job.workloads])
    piece_ns = np.concatenate([w.piece_ns.ravel() for w in job.workloads])
    level_ns = np.zeros(int(kind.max(initial=-1)) + 1)
    for own, values_ns in _grouped(kind, piece_ns):
        level_ns[own] = np.median(values_ns) if own in job.communication_kinds else values_ns.mean()
    return level_ns


def _by_rank(replays: _Replays, by_stage: Mapping[int, float], notes: list[str]) -> dict[int, float]:
    """S of each rank; where ranks form a grid of replicas and stages, the smaller S of its replica and its stage."""
    workloads = replays.job.workloads
    places = np.unique(np.concatenate([np.stack((w.rank, w.replica, w.stage)) for w in workloads], axis=1), axis=1).T
    places = places[places[:, 0] >= 0]
    if (places >= 0).all():
        by_replica = replays.slowdowns(lambda w: w.replica)
        return {rank: min(by_replica[replica], by_stage[stage]) for rank, replica, stage in places.tolist()}
    most_ns = replays.most_slowed_ns()
    slowest_first = sorted(most_ns, key=lambda rank: (-most_ns[rank], rank))
    count = min(len(most_ns), max(_REPLAYED_RANKS, _worst_of(len(most_ns))))
    if count * sum(d.size for d in replays.measured) > _MOST_WORK:
        notes.append(f"S of each of {count} ranks would take too many replays; left out")
        return {}
    replayed, others = slowest_first[:count], slowest_first[count:]
    if others and replays.ideal_ns:
        notes.append(
            f"S of the {count} of {len(most_ns)} ranks whose operations last longest beyond the ideal; that of no "
            f"other is above {1 + most_ns[others[0]] / replays.ideal_ns:.3f}"
        )
    return replays.slowdowns(lambda w: np.where(np.isin(w.rank, replayed), w.rank, -1))


def _worst_of(ranks: int) -> int:
    """How many the worst are, rounded up."""
    return -(-_WORST_PERCENT * ranks // 100)


def _fixes(
    replays: _Replays, steps_ns: Float64, measured_ns: float, error: float, by_rank: Mapping[int, float]
) -> Iterator[Fix]:
    """What surely saves something, the most worthwhile first."""
    fixes = []

    def consider(what: str, pieces: Callable[[Workload], Float64], rank: int | None = None) -> bool:
        saved_ns = steps_ns - replays.step_ns([w.with_pieces(pieces(w)) for w in replays.job.workloads])
        mean_ns = float(saved_ns.mean())
        spread_ns = float(saved_ns.std(ddof=1)) / len(saved_ns) ** 0.5 if len(saved_ns) > 1 else 0.0
        error_ns = float(np.sqrt((mean_ns * error) ** 2 + spread_ns**2 + replays.job.clock_error_ns**2))
        worth = mean_ns > _ERRORS * error_ns and mean_ns > _WORTH_SHARE * measured_ns
        if worth:
            fixes.append(
                Fix(
                    what=what,
                    saves_ns_per_step=round(mean_ns),
                    error_ns=round(error_ns),
                    share=mean_ns / measured_ns,
                    rank=rank,
                )
            )
        return worth

    shown = 0
    for rank in sorted(by_rank, key=lambda rank: (-by_rank[rank], rank))[:_TRIED_RANKS]:
        median_ns = _peers_medians(replays.job, rank)
        shown += consider(f"rank {rank} at its peers' median", lambda w, m=median_ns: _at_peers(w, m), rank)  # type: ignore[misc]
        if shown == _SHOWN_RANKS:
            break
    job = replays.job
    if any(job.transfers(w).any() for w in job.workloads):
        consider("no exposed communication", lambda w: np.where(job.transfers(w)[:, None], 0.0, w.piece_ns))
    if len({stage for w in job.workloads for stage in np.unique(w.piece_stage).tolist() if stage >= 0}) > 1:
        balance = _stage_balance(job)
        consider(BALANCED, lambda w: w.piece_ns * balance[w.kind, w.piece_stage][:, None])
    return iter(sorted(fixes, key=lambda fix: -fix.saves_ns_per_step))


def _at_peers(workload: Workload, of_rank: tuple[int, Float64]) -> Float64:
    rank, median_ns = of_rank
    level_ns = median_ns[np.minimum(workload.peers, len(median_ns) - 1)]
    changed = (workload.piece_rank == rank) & np.isfinite(level_ns)
    return np.where(changed[:, None], level_ns[:, None], workload.piece_ns)


def _peers_medians(job: Job, rank: int) -> tuple[int, Float64]:
    """The rank and, float64 [labels], the median piece of each label on the other ranks; NaN where this rank has no
    such piece of compute, or no other has.
    """
    computes = [~job.transfers(w) for w in job.workloads]
    label = np.concatenate(
        [np.repeat(w.peers[c], w.piece_ns.shape[1]) for w, c in zip(job.workloads, computes, strict=True)]
    )
    whose = np.concatenate(
        [np.repeat(w.piece_rank[c], w.piece_ns.shape[1]) for w, c in zip(job.workloads, computes, strict=True)]
    )
    piece_ns = np.concatenate([w.piece_ns[c].ravel() for w, c in zip(job.workloads, computes, strict=True)])
    median_ns = np.full(int(max(w.peers.max(initial=0) for w in job.workloads)) + 1, np.nan)
    relevant = np.isin(label, label[whose == rank]) & (whose != rank)
    for own, values_ns in _grouped(label[relevant], piece_ns[relevant]):
        median_ns[own] = np.median(values_ns)
    return rank, median_ns


def _stage_balance(job: Job) -> Float64:
    """float64 [kinds, stages + 1]: by what a piece of compute changes so that every stage takes as long for its kind. A
    stage takes what the median of its pieces does: one slow rank of it is no imbalance. 1 where there is none.
    """
    kinds = max(int(w.kind.max(initial=0)) for w in job.workloads) + 1
    stages = max(int(w.piece_stage.max(initial=0)) for w in job.workloads) + 1
    label, piece_ns = [], []
    for w in job.workloads:
        computes = ~job.transfers(w) & (w.piece_stage >= 0)
        label.append(np.repeat(w.kind[computes] * stages + w.piece_stage[computes], w.piece_ns.shape[1]))
        piece_ns.append(w.piece_ns[computes].ravel())
    typical_ns = np.full(kinds * stages, np.nan)
    for own, values_ns in _grouped(np.concatenate(label), np.concatenate(piece_ns)):
        typical_ns[own] = np.median(values_ns)
    by_stage_ns = typical_ns.reshape(kinds, stages)
    known = np.isfinite(by_stage_ns)
    total_ns = np.where(known, by_stage_ns, 0.0).sum(axis=1)
    even_ns = np.divide(total_ns, known.sum(axis=1), out=np.zeros(kinds), where=known.any(axis=1))
    balance = np.ones((kinds, stages + 1))
    np.divide(even_ns[:, None], by_stage_ns, out=balance[:, :stages], where=known & (by_stage_ns > 0))
    return balance


def _grouped(label: Int64, values: Float64) -> Iterator[tuple[int, Float64]]:
    """The values of each label."""
    if not len(label):
        return
    order = np.argsort(label, kind="stable")
    label, values = label[order], values[order]
    first = np.flatnonzero(np.diff(label, prepend=-1))
    for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(label)], strict=True):
        yield int(label[begin]), values[begin:end]
