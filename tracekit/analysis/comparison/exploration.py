"""Which phases, ranks, groups, operators and kernels changed: a search, not a verdict.

Each row is a mean time a step, in the baseline and in the candidate. Rows of one dimension need not sum to the step.
The p-value takes the noise within runs and the noise between runs as for the verdict, relative to the row's own time.
Among so many rows chance makes some stand out. So p-values are adjusted, and what stands out is a hint where to look.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist

import numpy as np

from tracekit.analysis.comparison.median_change import ENOUGH_STEPS
from tracekit.analysis.comparison.run_noise import CONFIDENCE, RunNoise
from tracekit.analysis.report import Report
from tracekit.analysis.stats.block_bootstrap import variance_of_mean
from tracekit.analysis.stats.false_discovery import adjusted_p_values
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Float64, Int64

__all__ = ["explored_changes"]

_LEAST_SHARE = 0.001  # of the step, in one of the runs
_FALSE_DISCOVERIES = 0.05

_Key = tuple[str, str]  # dimension and name
_Samples = dict[_Key, Float64]


def explored_changes(baselines: Sequence[Report], candidate: Report, noise: RunNoise) -> list[dict[str, object]]:
    """Return rows of columns.EXPLORED_CHANGES, those that stand out first, then the largest change."""
    of_baselines, of_candidate = [_samples(report) for report in baselines], _samples(candidate)
    steps_of = [len(report.run.common_steps()) for report in (*baselines, candidate)]
    step_ns = max(candidate.run.mean_rank_step_ns(), *(report.run.mean_rank_step_ns() for report in baselines))
    rows: list[dict[str, object]] = []
    p_values: list[float] = []
    for key in sorted({key for samples in (*of_baselines, of_candidate) for key in samples}):
        nothing = np.zeros(1)
        before, after = [samples.get(key, nothing) for samples in of_baselines], of_candidate.get(key, nothing)
        before_ns, after_ns = float(np.mean([sample.mean() for sample in before])), float(after.mean())
        if max(before_ns, after_ns) < _LEAST_SHARE * step_ns:
            continue
        rows.append(
            {
                "dimension": key[0],
                "name": key[1],
                "baseline_ns": round(before_ns),
                "candidate_ns": round(after_ns),
                "change_ns": round(after_ns) - round(before_ns),
            }
        )
        p_values.append(_p_value(before, after, noise))
    if min(steps_of) < ENOUGH_STEPS:
        unknown = {"p_value": None, "adjusted_p_value": None, "stands_out": False}
        rows = [row | unknown for row in rows]
    else:
        adjusted = adjusted_p_values(np.array(p_values)).tolist()
        rows = [
            row | {"p_value": p, "adjusted_p_value": q, "stands_out": q <= _FALSE_DISCOVERIES}
            for row, p, q in zip(rows, p_values, adjusted, strict=True)
        ]
    return sorted(rows, key=lambda row: (not row["stands_out"], -abs(_number(row["change_ns"]))))


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _p_value(before: Sequence[Float64], after: Float64, noise: RunNoise) -> float:
    """Return how likely noise alone makes the means differ so much, two-sided, by a normal distribution."""
    means = [float(sample.mean()) for sample in before]
    change = float(after.mean()) - float(np.mean(means))
    variances = [variance_of_mean(sample) if len(sample) > 1 else 0.0 for sample in (*before, after)]
    between = noise.share / NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * max(float(np.mean(means)), 0.0)
    variance = sum(variances[:-1]) / len(before) ** 2 + variances[-1] + between**2
    if not variance:
        return 1.0 if not change else 0.0
    return math.erfc(abs(change) / math.sqrt(2 * variance))


def _samples(report: Report) -> _Samples:
    """Return the time of each key in each step that all ranks completed, float64 [steps], in order of steps."""
    numbers = np.array(sorted(report.run.common_steps()), dtype=np.int64)
    samples: dict[_Key, Float64] = defaultdict(lambda: np.zeros(len(numbers)))
    for dimension in _DIMENSIONS:
        for key, step, time_ns in dimension(report):
            place = np.minimum(np.searchsorted(numbers, step), len(numbers) - 1)
            counts = numbers[place] == step
            samples[key] += np.bincount(place[counts], weights=time_ns[counts], minlength=len(numbers))
    return dict(samples)


_Times = Iterator[tuple[_Key, Int64, Float64]]
"""Keys with numbers of steps, int64 [n], and times in them in ns, float64 [n], which add up."""


def _phases(report: Report) -> _Times:
    """Yield the time of each phase on the chain that bounds the step."""
    path = report.critical_path
    rows: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for stretch in () if path is None else path.stretches:
        for (_, phase), time_ns in stretch.times_ns.items():
            rows[phase].append((stretch.step, time_ns))
    for phase, of_phase in rows.items():
        step, times_ns = np.array(of_phase, dtype=np.int64).T
        yield ("phase", phase), step, times_ns.astype(np.float64)


def _ranks(report: Report) -> _Times:
    """Yield each rank's time without communication that nothing hides, which contains its waiting for others."""
    for summary in report.run.ranks:
        rows = [(step.step, step.step_ns - step.exposed_comm_ns) for step in summary.steps if step.complete]
        step, own_ns = np.array(rows, dtype=np.int64).reshape(-1, 2).T
        yield ("rank", str(summary.rank)), step, own_ns.astype(np.float64)


def _groups(report: Report) -> _Times:
    """Yield exposed time in collectives by kind and group, the mean over all ranks, with waiting."""
    count = max(sum(summary.is_measured for summary in report.run.ranks), 1)
    for summary in report.run.ranks:
        collectives = summary.collectives
        for kind, group in np.unique(np.stack((collectives.kind, collectives.group)), axis=1).T.tolist():
            which = (collectives.kind == kind) & (collectives.group == group)
            label = None if group == ABSENT else summary.groups[group].label
            key = ("group", KINDS[kind] + (f" ({label})" if label else ""))
            yield key, collectives.step[which], collectives.exposed_ns[which] / count


_DIMENSIONS: tuple[Callable[[Report], _Times], ...] = (_phases, _ranks, _groups)
