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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.ddp.bucket_assignment import Parameters, assigned_buckets, default_buckets
from tracekit.analysis.ddp.bucket_replay import Transfers, replay, replay_by_hand
from tracekit.analysis.ddp.bucket_whatif import CAPS_MB
from tracekit.analysis.ddp.manual.recorded_passes import ManualGroup, RecordedPass, recorded_groups
from tracekit.analysis.section import Unavailable
from tracekit.analysis.stats.medians import median_error
from tracekit.analysis.stats.transfer_fit import TransferFit, fit_transfers
from tracekit.model.run import Run

__all__ = ["ManualWhatIf", "manual_whatif"]

_MIB = 1 << 20
_BETTER = 0.015  # of a step: an explicit limit of the bucket size has to save so much more than the default


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
class _GroupReplay:
    """One process group with an assumption on how long its transfers take.

    Attributes:
        late: transfers take as much longer than the fit as those measured at the time.
        by_hand_ns: for each pass, when the last rank has its gradients in the replay with its own reductions.
    """

    group: ManualGroup
    fit: TransferFit
    late: bool
    by_hand_ns: tuple[float, ...]

    def saved_ns(self, place: int, buckets: Sequence[tuple[int, ...]]) -> float:
        """Return how much sooner the last rank has its gradients in a pass with these buckets."""
        each = self.group.passes[place]
        size_bytes = np.array([each.parameter_bytes[list(bucket)].sum() for bucket in buckets])
        bucketed = replay(each.bucketed, buckets, _transfers(self.group, self.fit, size_bytes, late=self.late))
        return self.by_hand_ns[place] - float(bucketed.end_ns.max())


@dataclass(frozen=True, kw_only=True, eq=False)
class _Replays:
    """The groups with each assumption.

    Attributes:
        other_latencies: the least and the most that the fits allow.
        never_late: without what single transfers took longer.
    """

    fitted: list[_GroupReplay]
    other_latencies: tuple[list[_GroupReplay], ...]
    never_late: list[_GroupReplay]


def manual_whatif(run: Run) -> ManualWhatIf | Unavailable:
    """Return what DDP would save, with its default buckets unless others save notably more of a step."""
    groups = recorded_groups(run)
    if not groups:
        return Unavailable(reason="not all gradients, or not all ranks that reduce together, are recorded")
    step_ns = run.mean_rank_step_ns()
    fits = [fit_transfers(group.stretches) for group in groups]
    bounds = zip(*(fit.latency_bounds() for fit in fits), strict=True)
    replays = _Replays(
        fitted=_with_fits(groups, fits),
        other_latencies=tuple(_with_fits(groups, others) for others in bounds),
        never_late=_with_fits(groups, fits, late=False),
    )
    outcomes = [_outcome(replays, cap_mb) for cap_mb in (None, *CAPS_MB)]
    default, best = outcomes[0], max(outcomes, key=lambda outcome: outcome.saving_ns)
    near_ns = best.saving_ns - _BETTER / 3 * step_ns
    best = min((outcome for outcome in outcomes if outcome.saving_ns >= near_ns), key=lambda outcome: outcome.buckets)
    return best if best.saving_ns - default.saving_ns > _BETTER * step_ns else default


def _with_fits(groups: Sequence[ManualGroup], fits: Sequence[TransferFit], *, late: bool = True) -> list[_GroupReplay]:
    return [
        _GroupReplay(
            group=group,
            fit=fit,
            late=late,
            by_hand_ns=tuple(
                float(replay_by_hand(each.by_hand, _transfers(group, fit, each.size_bytes, late=late)).max())
                for each in group.passes
            ),
        )
        for group, fit in zip(groups, fits, strict=True)
    ]


def _transfers(group: ManualGroup, fit: TransferFit, size_bytes: np.ndarray, *, late: bool) -> Transfers:
    """Return what transfers of these sizes, int64 [n], take."""
    return Transfers(
        latency_ns=fit.latency_ns,
        moved_ns=fit.ns_per_byte * size_bytes,
        until_ns=group.stretches.end_ns.astype(float),
        late_ns=fit.late_ns(group.stretches) * late,
        dispatch_ns=group.dispatch_ns,
        in_flight=group.in_flight,
    )


def _outcome(replays: _Replays, cap_mb: float | None) -> ManualWhatIf:
    buckets = [[_buckets(each, cap_mb) for each in one.group.passes] for one in replays.fitted]
    savings = _savings(replays.fitted, buckets)
    saving_ns = statistics.median(savings)
    errors_ns = (
        statistics.median(_misses(replays.fitted)),
        max(one.fit.error_ratio for one in replays.fitted) * abs(saving_ns),
        max(abs(statistics.median(_savings(other, buckets)) - saving_ns) for other in replays.other_latencies),
        abs(statistics.median(_savings(replays.never_late, buckets)) - saving_ns),
        median_error(savings),
    )
    return ManualWhatIf(
        bucket_cap_mb=cap_mb,
        buckets=max(len(of_pass) for of_group in buckets for of_pass in of_group),
        saving_ns=round(saving_ns),
        error_ns=round(math.hypot(*errors_ns)),
    )


def _buckets(observed: RecordedPass, cap_mb: float | None) -> tuple[tuple[int, ...], ...]:
    count = len(observed.parameter_bytes)
    parameters = Parameters(
        names=("",) * count,
        size_bytes=tuple(observed.parameter_bytes.tolist()),
        dtypes=("",) * count,
        buckets=(),
        rebuilt=True,
    )
    return default_buckets(parameters) if cap_mb is None else assigned_buckets(parameters, int(cap_mb * _MIB))


def _savings(replays: Sequence[_GroupReplay], buckets: Sequence[Sequence[tuple[tuple[int, ...], ...]]]) -> list[float]:
    """Return for each step how much sooner the last rank has its gradients, mean over groups.

    buckets: of each pass of each group.
    """
    of_step: dict[int, list[float]] = defaultdict(list)
    for one, of_group in zip(replays, buckets, strict=True):
        saved_ns: dict[int, float] = defaultdict(float)
        for place, of_pass in enumerate(of_group):
            saved_ns[one.group.passes[place].step] += one.saved_ns(place, of_pass)
        for step, saving_ns in saved_ns.items():
            of_step[step].append(saving_ns)
    return [statistics.fmean(of_step[step]) for step in sorted(of_step)]


def _misses(replays: Sequence[_GroupReplay]) -> list[float]:
    """Return by how much each pass ends at another time in the replay of what was run."""
    return [
        abs(by_hand_ns - each.ended_ns)
        for one in replays
        for by_hand_ns, each in zip(one.by_hand_ns, one.group.passes, strict=True)
    ]
