"""Which phases, ranks, groups, operators and kernels changed, and which changes stand out: a search, not a verdict.

Each row is a mean time a step, in the baseline and in the candidate. Rows of one dimension need not sum to the step.
The p-value takes the noise within runs and the noise between runs as for the verdict, relative to the row's own time.
Among so many rows chance alone makes some look large. So p-values are adjusted, and what stands out is a hint where to
look.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tracekit.analysis.comparison.step_verdict import ENOUGH_STEPS, QUANTILE, ChangeEstimate, RunNoise
from tracekit.analysis.kernels.kernels import MOST_SHOWN
from tracekit.analysis.report import Report
from tracekit.analysis.stats.uncertainty import error_growth, standard_error
from tracekit.analysis.table import rows_of
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Float64, Int64

__all__ = ["adjusted_p_values", "explored_changes"]

_LEAST_SHARE = 0.001  # of the step, in one of the runs
_FALSE_DISCOVERIES = 0.05

_Key = tuple[str, str]  # dimension and name
_Samples = dict[_Key, Float64]
_Times = Iterator[tuple[_Key, Int64, Float64]]
"""Keys with numbers of steps, int64 [n], and times in them in ns, float64 [n], which add up."""


class _Change(NamedTuple):
    """Mean times a step of one key, and the variance of their difference that is due to noise within runs."""

    key: _Key
    before_ns: float
    after_ns: float
    variance: float


def explored_changes(baselines: Sequence[Report], candidate: Report, change: ChangeEstimate) -> list[dict[str, Any]]:
    """Return rows of tables.EXPLORED_CHANGES, those that stand out first, then the largest change.

    change: of the step, for its noise.
    """
    step_ns = max(report.run.mean_rank_step_ns() for report in (*baselines, candidate))
    every = [*_sampled(baselines, candidate), *_summed(baselines, candidate, change)]
    notable = [each for each in every if max(each.before_ns, each.after_ns) >= _LEAST_SHARE * step_ns]
    p_values = np.array([_p_value(each, change.run_noise) for each in notable])
    adjusted = adjusted_p_values(p_values)
    is_known = change.steps >= ENOUGH_STEPS
    rows: list[dict[str, Any]] = [
        {
            "dimension": each.key[0],
            "name": each.key[1],
            "baseline_ns": round(each.before_ns),
            "candidate_ns": round(each.after_ns),
            "change_ns": round(each.after_ns) - round(each.before_ns),
            "p_value": p if is_known else None,
            "adjusted_p_value": q if is_known else None,
            "stands_out": is_known and q <= _FALSE_DISCOVERIES,
        }
        for each, p, q in zip(notable, p_values.tolist(), adjusted.tolist(), strict=True)
    ]
    return sorted(rows, key=lambda row: (not row["stands_out"], -abs(row["change_ns"])))


def _p_value(change: _Change, noise: RunNoise) -> float:
    """Return how likely noise alone makes the means differ so much, two-sided, by a normal distribution."""
    variance = change.variance + (noise.share / QUANTILE * change.before_ns) ** 2
    difference = abs(change.after_ns - change.before_ns)
    if not variance:
        return 0.0 if difference else 1.0
    return math.erfc(difference / math.sqrt(2 * variance))


def _sampled(baselines: Sequence[Report], candidate: Report) -> Iterator[_Change]:
    """Yield what is known in each step, with the noise that the steps show."""
    of_baselines, of_candidate, nothing = [_samples(report) for report in baselines], _samples(candidate), np.zeros(1)
    for key in sorted({key for samples in (*of_baselines, of_candidate) for key in samples}):
        before, after = [samples.get(key, nothing) for samples in of_baselines], of_candidate.get(key, nothing)
        variances = [_variance_of_mean(sample) for sample in (*before, after)]
        yield _Change(
            key=key,
            before_ns=float(np.mean([sample.mean() for sample in before])),
            after_ns=float(after.mean()),
            variance=sum(variances[:-1]) / len(before) ** 2 + variances[-1],
        )


def _variance_of_mean(sample: Float64) -> float:
    """Return the variance of the mean; 0 for a single value: it is not known."""
    return (standard_error(sample) * error_growth([sample])) ** 2 if len(sample) > 1 else 0.0


def _summed(baselines: Sequence[Report], candidate: Report, change: ChangeEstimate) -> Iterator[_Change]:
    """Yield what only sums are kept of. Relative to its time, its noise is taken to be that of the step."""
    for dimension, table, column in (("kernel", "kernels", "total_ns"), ("operator", "operators", "self_ns")):
        *before, after = [_longest(report, table, column) for report in (*baselines, candidate)]
        for name in sorted({name for times in (*before, after) for name in times.ns}):
            if any(name not in times.ns and not times.are_all for times in (*before, after)):
                continue  # it is not among the longest of each run, and how long it takes there is not known
            before_ns = float(np.mean([times.ns.get(name, 0.0) for times in before]))
            deviation = (change.step_noise or 0.0) / QUANTILE * before_ns
            yield _Change((dimension, name), before_ns, after.ns.get(name, 0.0), deviation**2)


class _Longest(NamedTuple):
    """Mean times a step by name, and whether there are no other names."""

    ns: dict[str, float]
    are_all: bool


def _longest(report: Report, table: str, column: str) -> _Longest:
    rows = [] if report.kernels is None else rows_of(report.kernels, table)
    times_ns: dict[str, float] = defaultdict(float)
    for row in rows:
        times_ns[row["name"]] += row[column]
    return _Longest(dict(times_ns), len(rows) < MOST_SHOWN)


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
    """Yield how long ranks wait in collectives by kind and group, the mean over all ranks."""
    count = max(sum(summary.is_measured for summary in report.run.ranks), 1)
    for summary in report.run.ranks:
        collectives = summary.collectives
        for kind, group in np.unique(np.stack((collectives.kind, collectives.group)), axis=1).T.tolist():
            which = (collectives.kind == kind) & (collectives.group == group)
            label = None if group == ABSENT else summary.groups[group].label
            key = ("group", KINDS[kind] + (f" ({label})" if label else ""))
            yield key, collectives.step[which], collectives.waited_ns[which] / count


_DIMENSIONS: tuple[Callable[[Report], _Times], ...] = (_phases, _ranks, _groups)


def adjusted_p_values(p_values: Float64) -> Float64:
    """Return the adjusted p-values, float64 [m], of p-values, float64 [m].

    Of the differences whose adjusted p-value is at most q, a share of at most q is expected to be chance (Benjamini and
    Hochberg, Journal of the Royal Statistical Society B 57, 1995).
    """
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    scaled = p_values[order] * count / np.arange(1, count + 1)
    adjusted = np.empty(count)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return adjusted
