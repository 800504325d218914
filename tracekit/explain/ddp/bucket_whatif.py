"""What other limits of the bucket size, DDP's `bucket_cap_mb`, would expose.

Each recorded backward pass is replayed (`bucket_replay`) with the recorded times of its gradients and the buckets of
each limit. How long their transfers take follows from a latency and a bandwidth fitted to the measured ones
(`transfer_fit`).

Two other settings are replayed with the present buckets: gradients that travel in 16 bits, half the bytes, and
`gradient_as_bucket_view`, with which nothing is copied back.

The present buckets are replayed, too. The ratio of measured to replayed exposed time corrects the results for the other
limits, and the difference is part of every error.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracekit.explain.ddp.backward_passes import GroupPasses, passes_of_groups
from tracekit.explain.ddp.bucket_replay import Transfers, assigned_buckets, replay
from tracekit.explain.ddp.tables import BUCKET_REDUCTIONS, DDP_MODULES
from tracekit.explain.section import Unavailable
from tracekit.findings.thresholds import NOTABLE_SAVING
from tracekit.model.metadata import bucket_cap_mb
from tracekit.model.run import Run
from tracekit.stats.transfer_fit import TransferFit, fit_transfers
from tracekit.stats.uncertainty import median_error

_MIB = 1 << 20
CAPS_MB = (0.5, 1, 2, 4, 8, 16, 25, 50, 100, 200, 400, 800)
_MOST_BUCKETS = 512
_CORRECTIONS = (0.5, 2.0)  # limits of the correction of a replay


@dataclass(frozen=True, kw_only=True)
class CapOutcome:
    """One limit: medians over steps of means over ranks.

    Attributes:
        saving_ns: how much shorter a step is than with the present limit, by the same replay.
        present: whether this is the limit of the run.
    """

    bucket_cap_mb: float
    buckets: int
    uncovered_ns: int
    error_ns: int
    saving_ns: int
    present: bool


@dataclass(frozen=True, kw_only=True)
class SettingOutcome:
    """The present buckets with another setting, medians over steps; as in `CapOutcome`."""

    uncovered_ns: int
    error_ns: int
    saving_ns: int


@dataclass(frozen=True, kw_only=True)
class BucketWhatIf:
    """What a step would expose under each limit.

    Attributes:
        caps: in ascending order of the limit; the present one comes along where it is known.
        measured_ns: what is exposed with the present limit.
        in_16_bits: with half the bytes; None where too little is exposed to be worth it.
        without_copies: with gradients that are views of the buckets; None where the copies take too little.
    """

    caps: tuple[CapOutcome, ...]
    measured_ns: int
    in_16_bits: SettingOutcome | None
    without_copies: SettingOutcome | None


def bucket_whatif(run: Run, caps_mb: Sequence[float] = CAPS_MB) -> BucketWhatIf | Unavailable:
    """Return what the limits `caps_mb` would expose."""
    if not any(len(summary[BUCKET_REDUCTIONS]) for summary in run.ranks):
        return Unavailable(reason="no rank reduced DDP buckets", expected=True)
    groups = passes_of_groups(run)
    if isinstance(groups, Unavailable):
        return groups
    fits = [fit_transfers(group.busy_periods) for group in groups]
    now = [_replayed(group, fit, None) for group, fit in zip(groups, fits, strict=True)]
    return outcomes(groups, fits, now, _present_bytes(run), caps_mb, NOTABLE_SAVING * run.mean_rank_step_ns())


def _present_bytes(run: Run) -> int | None:
    """Return the limit of the modules that reduced; None where they differ or it is not known."""
    caps = {
        s[DDP_MODULES].modules[m].bucket_cap_bytes for s in run.ranks for m in set(s[BUCKET_REDUCTIONS].module.tolist())
    }
    return caps.pop() if len(caps) == 1 else None


def best_limit(caps: Sequence[CapOutcome], step_ns: float) -> CapOutcome:
    """Return the limit with the fewest buckets, of those that expose hardly more of a step than the best one."""
    least_ns = min(cap.uncovered_ns for cap in caps)
    near_ns = max(NOTABLE_SAVING / 3 * step_ns, 0.05 * least_ns)
    near = (cap for cap in caps if cap.uncovered_ns <= least_ns + near_ns)
    return min(near, key=lambda cap: (cap.buckets, cap.uncovered_ns))


# ---- outcomes -------------------------------------------------------------------------------------------------------


def outcomes(
    groups: Sequence[GroupPasses],
    fits: Sequence[TransferFit],
    now: Sequence[Sequence[tuple[float, float]]],
    cap_bytes: int | None,
    caps_mb: Sequence[float],
    least_ns: float,
    late_ns: float = 0.0,
) -> BucketWhatIf:
    """Return what the limits would expose, and other settings if they may save `least_ns` a step.

    now: exposed time and end of each pass of each group, which others are compared with. cap_bytes: the limit of the
    present buckets of the groups. late_ns: how far the transfers of `now` may be from the fits.
    """
    present_mb = None if cap_bytes is None else bucket_cap_mb(cap_bytes)
    measured_ns = statistics.median(_of_steps(groups, [[p.measured_ns for p in group.passes] for group in groups]))
    replayed_ns = statistics.median(_exposed(groups, now))
    missed_ns = replayed_ns - measured_ns
    correction = float(np.clip(measured_ns / replayed_ns, *_CORRECTIONS)) if replayed_ns else 1.0
    one_bucket_mb = max(float(group.size_bytes.sum()) for group in groups) / _MIB
    # All of these have the same effect: one bucket for each data type.
    larger = sorted(cap for cap in caps_mb if cap >= one_bucket_mb)[1:]

    def outcome_of(groups: Sequence[GroupPasses], cap_mb: float | None) -> SettingOutcome:
        outcome = [_replayed(group, fit, cap_mb) for group, fit in zip(groups, fits, strict=True)]
        exposed = [correction * of_step_ns for of_step_ns in _exposed(groups, outcome)]
        uncovered_ns = statistics.median(exposed)
        errors_ns = (
            missed_ns,
            max(fit.error_ratio for fit in fits) * uncovered_ns,
            max(abs(correction * other - uncovered_ns) for other in _with_other_latencies(groups, fits, cap_mb)),
            median_error(exposed),
            late_ns,
        )
        sooner = [
            [was - new for (_, was), (_, new) in zip(*pair, strict=True)] for pair in zip(now, outcome, strict=True)
        ]
        return SettingOutcome(
            uncovered_ns=round(uncovered_ns),
            error_ns=round(math.hypot(*errors_ns)),
            saving_ns=round(statistics.median(_of_steps(groups, sooner))),
        )

    result = []
    for cap in sorted({*(float(cap) for cap in caps_mb if cap not in larger), *([present_mb] if present_mb else [])}):
        chosen = None if cap == present_mb else cap
        count = max(len(_buckets(group, chosen)[0]) for group in groups)
        if count > _MOST_BUCKETS:
            continue
        outcome = outcome_of(groups, chosen)
        result.append(CapOutcome(bucket_cap_mb=cap, buckets=count, present=cap == present_mb, **vars(outcome)))
    halved = [replace(group, travels_ratio=group.travels_ratio / 2) for group in groups]
    copies_ns = max(float(each.observed.back_ns.sum(axis=1).max()) for group in groups for each in group.passes)
    return BucketWhatIf(
        caps=tuple(result),
        measured_ns=round(measured_ns),
        in_16_bits=outcome_of(halved, None) if measured_ns > least_ns else None,
        without_copies=(
            outcome_of([_without_copies(group) for group in groups], None) if copies_ns > least_ns else None
        ),
    )


def _without_copies(group: GroupPasses) -> GroupPasses:
    passes = (
        replace(each, observed=replace(each.observed, back_ns=np.zeros_like(each.observed.back_ns)))
        for each in group.passes
    )
    return replace(group, passes=tuple(passes))


def _with_other_latencies(
    groups: Sequence[GroupPasses], fits: Sequence[TransferFit], cap_mb: float | None
) -> Iterator[float]:
    """Yield the median exposed time with the least and the most latency that the fit allows."""
    for others in zip(*(fit.latency_bounds() for fit in fits), strict=True):
        outcome = [_replayed(group, fit, cap_mb) for group, fit in zip(groups, others, strict=True)]
        yield statistics.median(_exposed(groups, outcome))


def _exposed(groups: Sequence[GroupPasses], outcome: Sequence[Sequence[tuple[float, float]]]) -> list[float]:
    return _of_steps(groups, [[uncovered_ns for uncovered_ns, _ in each] for each in outcome])


def _replayed(group: GroupPasses, fit: TransferFit, cap_mb: float | None) -> list[tuple[float, float]]:
    """Return exposed time (mean over ranks) and end (of the last rank) of each pass. No limit: the present buckets."""
    buckets, modules = _buckets(group, cap_mb)
    bucket_bytes = np.array([group.size_bytes[list(bucket)].sum() for bucket in buckets]) * group.travels_ratio
    until_ns = group.busy_periods.end_ns.astype(float)
    late_ns = fit.late_ns(group.busy_periods)
    result = []
    for each in group.passes:
        taking_part = np.flatnonzero([module in each.modules for module in modules])
        transfers = Transfers(
            latency_ns=fit.latency_ns,
            moved_ns=fit.ns_per_byte * bucket_bytes[taking_part],
            until_ns=until_ns,
            late_ns=late_ns,
            dispatch_ns=group.dispatch_ns,
            in_flight=group.in_flight,
        )
        done = replay(each.observed, [buckets[b] for b in taking_part], transfers)
        result.append((float(done.uncovered_ns.mean()), float(done.end_ns.max())))
    return result


def _buckets(group: GroupPasses, cap_mb: float | None) -> tuple[list[tuple[int, ...]], list[int]]:
    """Return the buckets of all modules, each module's in order, and the module of each bucket."""
    buckets, modules = [], []
    for module, (parameters, first) in enumerate(zip(group.parameters, group.first, strict=False)):
        of_module = parameters.buckets if cap_mb is None else assigned_buckets(parameters, int(cap_mb * _MIB))
        buckets += [tuple(first + index for index in bucket) for bucket in of_module]
        modules += [module] * len(of_module)
    return buckets, modules


def _of_steps(groups: Sequence[GroupPasses], values: Sequence[Sequence[float]]) -> list[float]:
    """Return one value for each step: passes of a group add up, and groups are weighted by their number of ranks."""
    sums: dict[int, float] = {}
    weights: dict[int, float] = {}
    for group, of_group in zip(groups, values, strict=True):
        for each, value in zip(group.passes, of_group, strict=True):
            sums[each.step] = sums.get(each.step, 0.0) + value * group.ranks
        for step in {each.step for each in group.passes}:
            weights[step] = weights.get(step, 0.0) + group.ranks
    return [sums[step] / weights[step] for step in sorted(sums)]
