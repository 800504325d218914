"""What DDP's buckets would save a loop that averages its gradients by hand.

Each recorded backward pass is replayed twice: with its own reductions, and with buckets that are reduced while the pass
goes on (`bucket_replay`). What the rank does between its reductions, such as dividing by the number of ranks, DDP does
as it copies a bucket back: it takes as long. How long a bucket's transfer takes follows from a latency and a bandwidth
fitted to the measured reductions (`transfer_fit`).

By how much the first replay misses what was measured is part of the error. So is what single transfers took longer than
usual, as on a busy machine: buckets may or may not escape that.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tracekit.analysis.communication.collectives import group_times
from tracekit.analysis.ddp.bucket_assignment import Parameters, assigned_buckets, default_buckets
from tracekit.analysis.ddp.bucket_replay import BackwardPass, ManualPass, Transfers, replay, replay_by_hand
from tracekit.analysis.ddp.bucket_rows import rows_of_reductions
from tracekit.analysis.ddp.bucket_whatif import CAPS_MB
from tracekit.analysis.ddp.parts import (
    ACCUMULATED_GRADIENTS,
    MANUAL_REDUCTIONS,
    AccumulatedGradients,
    ManualReductions,
)
from tracekit.analysis.section import Unavailable
from tracekit.analysis.stats.medians import median_error
from tracekit.analysis.stats.transfer_fit import Stretches, TransferFit, fit_transfers, stretches_of
from tracekit.model.collectives import MatchedGroup
from tracekit.model.run import ClockModel, Run
from tracekit.model.summary import RankSummary

__all__ = ["ManualWhatIf", "manual_whatif"]

_MIB = 1 << 20
_BETTER = 0.015  # of a step: an explicit limit of the bucket size has to save so much more than the default
_GLOO_THREADS = 2  # of each process group; NCCL has one stream
_WIDTHS = (1, 2, 4, 8)  # bytes of an element

_Table = TypeVar("_Table", AccumulatedGradients, ManualReductions)
_Key = tuple[int, int]  # a step, and the number of a backward pass in it


@dataclass(frozen=True, kw_only=True)
class ManualWhatIf:
    """What DDP would save a step.

    Attributes:
        bucket_cap_mb: the limit of the bucket size; None for the default.
        buckets: how many buckets that makes.
        saving_ns: how much sooner the last rank would have its gradients.
        error_ns: what that may be off.
    """

    bucket_cap_mb: float | None
    buckets: int
    saving_ns: int
    error_ns: int


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pass:
    """A backward pass over all ranks of a group.

    Attributes:
        size_bytes: of the reductions, int64 [n].
        parameter_bytes: int64 [p], in the order of the gradients.
        ended_ns: when the last rank had its gradients, as measured, from the origin.
    """

    step: int
    by_hand: ManualPass
    bucketed: BackwardPass
    size_bytes: np.ndarray
    parameter_bytes: np.ndarray
    ended_ns: float


@dataclass(frozen=True, kw_only=True, eq=False)
class _Group:
    """The passes of one process group, and what its transfers take."""

    passes: tuple[_Pass, ...]
    stretches: Stretches
    fit: TransferFit
    dispatch_ns: float
    in_flight: int

    def transfers(self, size_bytes: np.ndarray, fit: TransferFit, *, late: bool = True) -> Transfers:
        """Return what transfers of these sizes take; with `late` as much longer as those measured at the time."""
        return Transfers(
            latency_ns=fit.latency_ns,
            moved_ns=fit.ns_per_byte * size_bytes,
            until_ns=self.stretches.end_ns.astype(float),
            late_ns=fit.late_ns(self.stretches) * late,
            dispatch_ns=self.dispatch_ns,
            in_flight=self.in_flight,
        )


def manual_whatif(run: Run) -> ManualWhatIf | Unavailable:
    """Return what DDP would save, with its default buckets unless others save notably more of a step."""
    groups = [group for matched in run.collectives if (group := _group(run, matched)) is not None]
    if not groups:
        return Unavailable(reason="not all gradients, or not all ranks that reduce together, are recorded")
    step_ns = run.mean_rank_step_ns()
    outcomes = [_outcome(groups, cap_mb) for cap_mb in (None, *CAPS_MB)]
    default, best = outcomes[0], max(outcomes, key=lambda outcome: outcome.saving_ns)
    near_ns = best.saving_ns - _BETTER / 3 * step_ns
    best = min((outcome for outcome in outcomes if outcome.saving_ns >= near_ns), key=lambda outcome: outcome.buckets)
    return best if best.saving_ns - default.saving_ns > _BETTER * step_ns else default


# ---- what was recorded ----------------------------------------------------------------------------------------------


def _group(run: Run, matched: MatchedGroup) -> _Group | None:
    """Return the passes of a group whose ranks were all recorded; None without any that can be replayed."""
    members = run.groups[matched.group].ranks
    summaries = [summary for summary in run.ranks if summary.rank in set(matched.ranks.tolist())]
    if len(summaries) < 2 or len(summaries) < (len(members) or run.world_size or 0):
        return None
    rows = [rows_of_reductions(summary, summary[MANUAL_REDUCTIONS]) for summary in summaries]
    here = [np.isin(row, matched.row[place]) for place, row in enumerate(rows)]
    reductions = [s[MANUAL_REDUCTIONS].rows(mask) for s, mask in zip(summaries, here, strict=True)]
    if not all(len(of_rank) for of_rank in reductions):
        return None
    times = group_times(run, matched)
    by_hand = np.isin(matched.row[0, times.place], rows[0][here[0]]) & (matched.size_bytes[times.place] > 0)
    begin_ns = times.begin_ns[by_hand]
    in_flight = 1 if summaries[0].device == "gpu" else _GLOO_THREADS
    # By hand they mostly run one at a time. Those that do not are stretches of several.
    stretches = stretches_of(
        begin_ns, begin_ns + times.transfer_ns[by_hand], matched.size_bytes[times.place][by_hand], in_flight
    )
    passes = tuple(_passes(run, summaries, reductions))
    if stretches is None or not passes:
        return None
    return _Group(
        passes=passes,
        stretches=stretches,
        fit=fit_transfers(stretches),
        dispatch_ns=statistics.median(
            ns for each in reductions for ns in np.maximum(each.start_ns - each.launch_ns, 0).tolist()
        ),
        in_flight=in_flight,
    )


def _passes(run: Run, summaries: Sequence[RankSummary], reductions: Sequence[ManualReductions]) -> Iterator[_Pass]:
    """Yield the passes of steps that all ranks completed, if all ranks have the same gradients and reductions."""
    clocks = {clock.rank: clock for clock in run.clocks}
    of_ranks = [clocks[summary.rank] for summary in summaries]
    gradients = [_by_pass(summary[ACCUMULATED_GRADIENTS]) for summary in summaries]
    reduced = [_by_pass(of_rank) for of_rank in reductions]
    common = run.common_steps()
    for key in sorted(set.intersection(*(set(passes) for passes in (*gradients, *reduced)))):
        if key[0] in common:
            observed = _pass(key[0], of_ranks, [g[key] for g in gradients], [r[key] for r in reduced])
            if observed is not None:
                yield observed


def _by_pass(table: _Table) -> Mapping[_Key, _Table]:
    keys = list(zip(table.step.tolist(), table.backward_pass.tolist(), strict=True))
    return {key: table.rows(np.array([other == key for other in keys])) for key in set(keys)}


def _pass(
    step: int,
    clocks: Sequence[ClockModel],
    gradients: Sequence[AccumulatedGradients],
    reductions: Sequence[ManualReductions],
) -> _Pass | None:
    """Return a pass; None if ranks differ, or if what is reduced is not all of the gradients."""
    first, sizes = gradients[0].elements, reductions[0].size_bytes
    if any(not np.array_equal(of_rank.elements, first) for of_rank in gradients):
        return None
    if any(not np.array_equal(of_rank.size_bytes, sizes) for of_rank in reductions):
        return None
    width, rest = divmod(int(sizes.sum()), max(int(first.sum()), 1))
    if rest or width not in _WIDTHS:
        return None
    pairs = list(zip(clocks, gradients, strict=True))
    of_reductions = list(zip(clocks, reductions, strict=True))
    ready_ns = np.stack([clock.to_run(of_rank.free_ns) for clock, of_rank in pairs]).astype(float)
    launch_ns = np.stack([clock.to_run(of_rank.free_launch_ns) for clock, of_rank in of_reductions]).astype(float)
    awaited_ns = np.stack(
        [np.where(r.free_end_ns >= 0, clock.to_run(r.free_end_ns).astype(float), np.inf) for clock, r in of_reductions]
    )
    ended_ns = max(float(clock.to_run(of_rank.end_ns).max()) for clock, of_rank in of_reductions)
    origin_ns = float(ready_ns.min())
    last_ready_ns = ready_ns.max(axis=1)
    last_ns = np.maximum(last_ready_ns, np.where(np.isfinite(awaited_ns), awaited_ns, launch_ns).max(axis=1))
    curves = [np.sort(of_rank) - origin_ns for of_rank in ready_ns]
    return _Pass(
        step=step,
        by_hand=ManualPass(
            origin_ns=origin_ns,
            launch_ns=launch_ns - origin_ns,
            awaited_ns=awaited_ns - origin_ns,
            last_ns=last_ns - origin_ns,
        ),
        bucketed=BackwardPass(
            origin_ns=origin_ns,
            ready_ns=ready_ns - origin_ns,
            curve_ns=curves,
            compute_ns=[curve - curve[0] for curve in curves],
            back_ns=np.outer(last_ns - last_ready_ns, first / first.sum()),
        ),
        size_bytes=sizes,
        parameter_bytes=first * width,
        ended_ns=ended_ns - origin_ns,
    )


# ---- replays --------------------------------------------------------------------------------------------------------


def _outcome(groups: Sequence[_Group], cap_mb: float | None) -> ManualWhatIf:
    buckets = max(len(_buckets(each, cap_mb)) for group in groups for each in group.passes)
    fits = [group.fit for group in groups]
    savings = _savings(groups, fits, cap_mb)
    saving_ns = statistics.median(savings)
    least_and_most = [
        statistics.median(
            _savings(groups, [f.with_latency(f.latency_ns + way * f.latency_error_ns) for f in fits], cap_mb)
        )
        for way in (-1, 1)
    ]
    errors_ns = (
        statistics.median(_misses(groups)),
        max(fit.error_ratio for fit in fits) * abs(saving_ns),
        max(abs(other_ns - saving_ns) for other_ns in least_and_most),
        abs(statistics.median(_savings(groups, fits, cap_mb, late=False)) - saving_ns),
        median_error(savings),
    )
    return ManualWhatIf(
        bucket_cap_mb=cap_mb, buckets=buckets, saving_ns=round(saving_ns), error_ns=round(math.hypot(*errors_ns))
    )


def _buckets(observed: _Pass, cap_mb: float | None) -> tuple[tuple[int, ...], ...]:
    count = len(observed.parameter_bytes)
    parameters = Parameters(
        names=("",) * count,
        size_bytes=tuple(observed.parameter_bytes.tolist()),
        dtypes=("",) * count,
        buckets=(),
        rebuilt=True,
    )
    return default_buckets(parameters) if cap_mb is None else assigned_buckets(parameters, int(cap_mb * _MIB))


def _savings(
    groups: Sequence[_Group], fits: Sequence[TransferFit], cap_mb: float | None, *, late: bool = True
) -> list[float]:
    """Return for each step how much sooner the last rank has its gradients, mean over groups."""
    of_step: dict[int, list[float]] = defaultdict(list)
    for group, fit in zip(groups, fits, strict=True):
        of_group: dict[int, float] = defaultdict(float)
        for each in group.passes:
            buckets = _buckets(each, cap_mb)
            bucket_bytes = np.array([each.parameter_bytes[list(bucket)].sum() for bucket in buckets])
            bucketed = replay(each.bucketed, buckets, group.transfers(bucket_bytes, fit, late=late))
            by_hand_ns = replay_by_hand(each.by_hand, group.transfers(each.size_bytes, fit, late=late))
            of_group[each.step] += float(by_hand_ns.max() - bucketed.end_ns.max())
        for step, saving_ns in of_group.items():
            of_step[step].append(saving_ns)
    return [statistics.fmean(of_step[step]) for step in sorted(of_step)]


def _misses(groups: Sequence[_Group]) -> list[float]:
    """Return by how much each pass ends at another time in the replay of what was run."""
    return [
        abs(float(replay_by_hand(each.by_hand, group.transfers(each.size_bytes, group.fit)).max()) - each.ended_ns)
        for group in groups
        for each in group.passes
    ]
