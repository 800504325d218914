"""What other limits of the bucket size would expose: DDP's `bucket_cap_mb`.

Comes in: a run whose DDP gradients were seen as they came, and whose bucket reductions were matched over ranks. Goes
out: for each limit the buckets that DDP would make and the exposed time a step, with its error; or why not.

Each recorded backward pass is replayed (`bucket_replay`) with the gradients' own times and the buckets of each limit,
whose transfers take what a latency and a bandwidth fitted to the measured ones say (`transfer_fit`). The present
buckets are replayed too: how far that misses what was measured is part of every error.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.align import on_run_clock
from tracekit.analysis.bucket_assignment import Parameters, assigned_buckets, parameters_of
from tracekit.analysis.bucket_replay import BackwardPass, Transfers, replay
from tracekit.analysis.bucket_rows import rows_of_buckets
from tracekit.analysis.collectives import group_times
from tracekit.analysis.transfer_fit import Stretches, TransferFit, fit_transfers, stretches_of
from tracekit.model.bucket_runs import BucketRuns
from tracekit.model.collectives import MatchedGroup
from tracekit.model.communication import KINDS
from tracekit.model.events import Int64
from tracekit.model.gradients import GradientTimes
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

__all__ = ["CAPS_MB", "BucketWhatIf", "CapOutcome", "bucket_whatif"]

_MIB = 1 << 20
CAPS_MB = (0.5, 1, 2, 4, 8, 16, 25, 50, 100, 200, 400, 800)
_MOST_BUCKETS = 512
_GLOO_THREADS = 2  # a process group; NCCL has one stream
_MAD_TO_SIGMA = 1.4826
_MEDIAN_ERROR = 1.2533


@dataclass(frozen=True, kw_only=True)
class CapOutcome:
    """Medians over steps of means over ranks. saving_ns: what a step would be shorter than with the present limit,
    by the same replay."""

    bucket_cap_mb: float
    buckets: int
    exposed_ns: int
    error_ns: int
    saving_ns: int
    present: bool


@dataclass(frozen=True, kw_only=True)
class BucketWhatIf:
    """`caps`: by limit; empty where `reason` says why. measured_ns: what is exposed with the present limit."""

    caps: tuple[CapOutcome, ...] = ()
    measured_ns: int | None = None
    fit: TransferFit | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pass:
    """One backward pass of a group. measured_ns: exposed time, mean over ranks."""

    step: int
    observed: BackwardPass
    measured_ns: float


@dataclass(frozen=True, kw_only=True, eq=False)
class _GroupReplay:
    """What the replays of one group need: modules as one list of parameters, `first`: where each begins in it."""

    ranks: int
    parameters: tuple[Parameters, ...]
    first: tuple[int, ...]
    size_bytes: np.ndarray
    back_ns: np.ndarray
    travels_ratio: float
    dispatch_ns: float
    in_flight: int
    stretches: Stretches
    passes: tuple[_Pass, ...]


def bucket_whatif(run: Run, caps_mb: Sequence[float] = CAPS_MB) -> BucketWhatIf | None:
    """None without DDP buckets; all members of a group have to be there. The present limit comes along."""
    if not any(len(summary.bucket_runs) for summary in run.ranks):
        return None
    cap_bytes = next((module.bucket_cap_bytes for s in run.ranks for module in s.ddp if module.bucket_cap_bytes), None)
    groups, reasons = [], []
    for matched in run.collectives:
        members = run.groups[matched.group].ranks
        own = [s for s in run.ranks if s.rank in set(matched.ranks.tolist())]
        rows = [_rows_in(matched, summary) for summary in own]
        if not any(len(found) for found in rows):
            continue
        if len(own) < 2 or len(own) < (len(members) or run.world_size or 0):
            reasons.append("not all ranks that reduce together are there, so nobody knows when a transfer could begin")
            continue
        found = _group_replay(run, matched, own, rows)
        if isinstance(found, str):
            reasons.append(found)
        else:
            groups.append(found)
    if not groups:
        return BucketWhatIf(reason=reasons[0] if reasons else "the reductions could not be matched over ranks")
    fits = [fit for _, fit in groups]
    return _outcomes([group for group, _ in groups], fits, cap_bytes, caps_mb)


def _rows_in(matched: MatchedGroup, summary: RankSummary) -> Int64:
    """Positions of the rank's bucket reductions that are of this group."""
    place = int(np.flatnonzero(matched.ranks == summary.rank)[0])
    return np.flatnonzero(np.isin(rows_of_buckets(summary), matched.row[place]))


def _group_replay(
    run: Run, matched: MatchedGroup, own: Sequence[RankSummary], rows: Sequence[Int64]
) -> tuple[_GroupReplay, TransferFit] | str:
    """Or why there is none."""
    modules = sorted(
        {int(m) for summary, found in zip(own, rows, strict=True) for m in summary.bucket_runs.module[found]}
    )
    gradients = [s.gradient_times.rows(np.isin(s.gradient_times.module, modules)) for s in own]
    if not all(len(times) for times in gradients):
        return "when single gradients came is not recorded (gradient_as_bucket_view, or no shapes)"
    parameters = [parameters_of(own[0].ddp[m], _elements(gradients[0], m)) for m in modules]
    if any(each is None for each in parameters):
        return "the sizes of the parameters are not recorded"
    known = tuple(each for each in parameters if each is not None)
    times = group_times(run, matched)
    reduces = (matched.kind[times.place] == KINDS.index("all_reduce")) & (matched.size_bytes[times.place] > 0)
    begin_ns = times.arrival_ns.max(axis=0)[reduces]
    in_flight = 1 if own[0].device == "gpu" else _GLOO_THREADS
    sizes = matched.size_bytes[times.place][reduces]
    stretches = stretches_of(begin_ns, begin_ns + times.transfer_ns[reduces], sizes, in_flight)
    if stretches is None:
        return "no step has all reductions on all ranks"
    first = tuple(np.cumsum([0, *(len(each.size_bytes) for each in known)]).tolist())
    size_bytes = np.array([size for each in known for size in each.size_bytes], dtype=np.float64)
    offsets = dict(zip(modules, first, strict=False))
    passes = tuple(_passes(run, own, rows, gradients, offsets, len(size_bytes)))
    if not passes:
        return "no step has all gradients on all ranks"
    runs = [summary.bucket_runs.rows(found) for summary, found in zip(own, rows, strict=True)]
    travelled = sum(int(each.size_bytes.sum()) for each in runs)
    sizes = sum(
        own[0].ddp[m].buckets[i].size_bytes for each in runs for m, i in zip(each.module, each.index, strict=True)
    )
    return (
        _GroupReplay(
            ranks=len(own),
            parameters=known,
            first=first,
            size_bytes=size_bytes,
            back_ns=_copies_ns(gradients, offsets, len(size_bytes)),
            travels_ratio=travelled / max(sizes, 1),
            dispatch_ns=statistics.median(
                ns for each in runs for ns in np.maximum(each.start_ns - each.ready_ns, 0)[each.index == 0].tolist()
            ),
            in_flight=in_flight,
            stretches=stretches,
            passes=passes,
        ),
        fit_transfers(stretches),
    )


def _elements(gradients: GradientTimes, module: int) -> list[int]:
    """Of the module's parameters by place, as the first pass with all of them shows."""
    own = gradients.rows(gradients.module == module)
    places, at = np.unique(own.place, return_index=True)
    return own.elements[at].tolist() if np.array_equal(places, np.arange(len(places))) else []


def _copies_ns(gradients: Sequence[GradientTimes], offsets: dict[int, int], parameters: int) -> np.ndarray:
    """float64 [p]: the median time to copy each gradient, taken for that of the way back, too."""
    place = np.concatenate([_places(times, offsets) for times in gradients])
    copy_ns = np.concatenate([times.copy_ns for times in gradients])
    result = np.zeros(parameters)
    order = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(parameters + 1))
    for p in range(parameters):
        if bounds[p] < bounds[p + 1]:
            result[p] = np.median(copy_ns[order[bounds[p] : bounds[p + 1]]])
    return result


def _places(times: GradientTimes, offsets: dict[int, int]) -> Int64:
    lookup = np.zeros(max(offsets) + 1, dtype=np.int64)
    for module, first in offsets.items():
        lookup[module] = first
    return lookup[times.module] + times.place


def _passes(
    run: Run,
    own: Sequence[RankSummary],
    rows: Sequence[Int64],
    gradients: Sequence[GradientTimes],
    offsets: dict[int, int],
    parameters: int,
) -> Iterator[_Pass]:
    """Those of the steps that all ranks completed, in which all ranks have as many gradients."""
    clocks = {clock.rank: clock for clock in run.clocks}
    common = run.common_steps()
    runs = [summary.bucket_runs.rows(found) for summary, found in zip(own, rows, strict=True)]
    keys = set.intersection(*({*zip(t.step.tolist(), t.turn.tolist(), strict=True)} for t in gradients))
    for step, turn in sorted(key for key in keys if key[0] in common):
        ready_ns = np.full((len(own), parameters), -np.inf)
        curves, sums, measured = [], [], []
        for r, (summary, times, reduced) in enumerate(zip(own, gradients, runs, strict=True)):
            here = times.rows((times.step == step) & (times.turn == turn))
            here = here.rows(np.argsort(here.ready_ns, kind="stable"))
            at_ns = on_run_clock(here.ready_ns, clocks[summary.rank]).astype(float)
            ready_ns[r, _places(here, offsets)] = at_ns
            curves.append(at_ns)
            sums.append(np.maximum.accumulate(here.compute_ns).astype(float))
            measured.append(_exposed_ns(reduced, step, turn))
        if (np.isfinite(ready_ns).sum(axis=1) == np.isfinite(ready_ns[0]).sum()).all():
            origin_ns = min(float(curve[0]) for curve in curves)
            yield _Pass(
                step=step,
                observed=BackwardPass(
                    origin_ns=origin_ns,
                    ready_ns=ready_ns - origin_ns,
                    curve_ns=[c - origin_ns for c in curves],
                    compute_ns=sums,
                ),
                measured_ns=statistics.fmean(measured),
            )


def _exposed_ns(runs: BucketRuns, step: int, turn: int) -> int:
    return int(runs.added_ns[(runs.step == step) & (runs.turn == turn)].sum())


# ---- outcomes -------------------------------------------------------------------------------------------------------


def _outcomes(
    groups: Sequence[_GroupReplay], fits: Sequence[TransferFit], cap_bytes: int | None, caps_mb: Sequence[float]
) -> BucketWhatIf:
    present_mb = None if cap_bytes is None else cap_bytes / _MIB
    now = [_replayed(group, fit, None) for group, fit in zip(groups, fits, strict=True)]
    measured_ns = statistics.median(_of_steps(groups, [[p.measured_ns for p in group.passes] for group in groups]))
    missed_ns = statistics.median(_exposed(groups, now)) - measured_ns
    one_bucket_mb = max(float(group.size_bytes.sum()) for group in groups) / _MIB
    larger = sorted(cap for cap in caps_mb if cap >= one_bucket_mb)[1:]  # all alike: a bucket a data type
    result = []
    for cap in sorted({*(float(cap) for cap in caps_mb if cap not in larger), *([present_mb] if present_mb else [])}):
        chosen = None if cap == present_mb else cap
        count = max(len(_buckets(group, chosen)) for group in groups)
        if count > _MOST_BUCKETS:
            continue
        outcome = [_replayed(group, fit, chosen) for group, fit in zip(groups, fits, strict=True)]
        exposed = _exposed(groups, outcome)
        exposed_ns = statistics.median(exposed)
        errors_ns = (
            missed_ns,
            max(fit.error_ratio for fit in fits) * exposed_ns,
            max(abs(other_ns - exposed_ns) for other_ns in _with_other_latencies(groups, fits, chosen)),
            _median_error(exposed),
        )
        sooner = [
            [was - new for (_, was), (_, new) in zip(*pair, strict=True)] for pair in zip(now, outcome, strict=True)
        ]
        result.append(
            CapOutcome(
                bucket_cap_mb=cap,
                buckets=count,
                exposed_ns=round(exposed_ns),
                error_ns=round(math.hypot(*errors_ns)),
                saving_ns=round(statistics.median(_of_steps(groups, sooner))),
                present=cap == present_mb,
            )
        )
    return BucketWhatIf(caps=tuple(result), measured_ns=round(measured_ns), fit=fits[0])


def _with_other_latencies(
    groups: Sequence[_GroupReplay], fits: Sequence[TransferFit], cap_mb: float | None
) -> Iterator[float]:
    """Median exposed time with the least and the most latency that the fit allows."""
    for way in (-1, 1):
        others = [fit.with_latency(fit.latency_ns + way * fit.latency_error_ns) for fit in fits]
        outcome = [_replayed(group, fit, cap_mb) for group, fit in zip(groups, others, strict=True)]
        yield statistics.median(_exposed(groups, outcome))


def _exposed(groups: Sequence[_GroupReplay], outcome: Sequence[Sequence[tuple[float, float]]]) -> list[float]:
    return _of_steps(groups, [[exposed_ns for exposed_ns, _ in each] for each in outcome])


def _replayed(group: _GroupReplay, fit: TransferFit, cap_mb: float | None) -> list[tuple[float, float]]:
    """Exposed time (mean over ranks) and end (the last rank's) of each pass, with the present buckets for None."""
    buckets = _buckets(group, cap_mb)
    sizes = np.array([group.size_bytes[list(b)].sum() for b in buckets]) * group.travels_ratio
    transfers = Transfers(
        latency_ns=fit.latency_ns,
        moved_ns=fit.ns_per_byte * sizes,
        until_ns=group.stretches.end_ns.astype(float),
        late_ns=fit.late_ns(group.stretches),
        dispatch_ns=group.dispatch_ns,
        back_ns=np.array([group.back_ns[list(b)].sum() for b in buckets]),
        in_flight=group.in_flight,
    )
    replays = [replay(each.observed, buckets, transfers) for each in group.passes]
    return [(float(done.exposed_ns.mean()), float(done.end_ns.max())) for done in replays]


def _buckets(group: _GroupReplay, cap_mb: float | None) -> list[tuple[int, ...]]:
    """Of all modules, each module's in order."""
    return [
        tuple(first + place for place in bucket)
        for parameters, first in zip(group.parameters, group.first, strict=False)
        for bucket in (parameters.buckets if cap_mb is None else assigned_buckets(parameters, int(cap_mb * _MIB)))
    ]


def _of_steps(groups: Sequence[_GroupReplay], values: Sequence[Sequence[float]]) -> list[float]:
    """By step: the passes of a group add up, groups count by their ranks."""
    sums: dict[int, float] = {}
    weights: dict[int, float] = {}
    for group, own in zip(groups, values, strict=True):
        for each, value in zip(group.passes, own, strict=True):
            sums[each.step] = sums.get(each.step, 0.0) + value * group.ranks
        for step in {each.step for each in group.passes}:
            weights[step] = weights.get(step, 0.0) + group.ranks
    return [sums[step] / weights[step] for step in sorted(sums)]


def _median_error(values: Sequence[float]) -> float:
    deviation = float(np.median(np.abs(np.array(values) - np.median(values))))
    return _MEDIAN_ERROR * _MAD_TO_SIGMA * deviation / math.sqrt(len(values))
