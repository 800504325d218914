"""Whether a run is slower than one or several baseline runs of the same job, and what the change consists of.

The verdict is on the steps. Which phases, ranks, groups, operators and kernels changed, and which changes stand out, is
a search and no verdict.

Each row is a mean time a step, in the baseline and in the candidate. Rows of one dimension need not sum to the step.
The p-value takes the noise within runs and the noise between runs as for the verdict, relative to the row's own time.
Among so many rows chance alone makes some look large. So p-values are adjusted, and what stands out is a hint where to
look.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.comparison import tables
from tracekit.comparison.comparability import find_differences, why_incomparable
from tracekit.comparison.step_verdict import (
    DEFAULT_MARGIN,
    DEFAULT_RUN_NOISE,
    ENOUGH_STEPS,
    QUANTILE,
    Basis,
    ChangeEstimate,
    RunNoise,
    StepVerdict,
    cause_changes,
    estimate_change,
    judge,
)
from tracekit.errors import InputError, UsageError
from tracekit.explain.kernels.by_name import MOST_SHOWN
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Float64, Int64
from tracekit.model.run import Run, short_repr
from tracekit.model.table import Frame, rows_of, tables_of
from tracekit.model.texts import percent
from tracekit.read.cache.store import CacheChoice
from tracekit.report.report import Report, analyze
from tracekit.stats.uncertainty import error_growth, standard_error

if TYPE_CHECKING:
    import pandas as pd


Source = str | os.PathLike[str] | Run | Report
"""The path of a run's folder or file, a loaded run, or its report."""

_SHOWN_BASELINES = 3
SECTIONS_READ = ("breakdown", "configuration", "memory", "critical_path", "diagnosis", "kernels")

_LEAST_SHARE = 0.001  # of the step, in one of the runs
_FALSE_DISCOVERIES = 0.05

_Key = tuple[str, str]  # dimension and name
_Samples = dict[_Key, Float64]
_Times = Iterator[tuple[_Key, Int64, Float64]]
"""Keys with numbers of steps, int64 [n], and times in them in ns, float64 [n], which add up."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison:
    """A comparison of runs.

    Attributes:
        baselines: the runs of the baseline.
        candidate: the run that is compared with them.
        change: the change of the typical length of a step.
        verdict: what that means.
        basis: what `causes` are from.
        causes: rows of tables.CAUSE_CHANGES; they sum to the change of the typical length.
        explored: rows of tables.EXPLORED_CHANGES.
        differences: rows of tables.RUN_DIFFERENCES.
    """

    baselines: tuple[Run, ...]
    candidate: Run
    change: ChangeEstimate
    verdict: StepVerdict
    basis: Basis
    causes: Frame = Frame(tables.CAUSE_CHANGES)
    explored: Frame = Frame(tables.EXPLORED_CHANGES)
    differences: Frame = Frame(tables.RUN_DIFFERENCES)

    @property
    def baseline_ns(self) -> int:
        """Return the typical length of a step of the baseline."""
        return round(self.change.baseline)

    @property
    def candidate_ns(self) -> int:
        """Return the typical length of a step of the candidate."""
        return round(self.change.candidate)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Return `causes`, `explored` and `differences` by the names of their tables. `attrs` describes the columns."""
        return {table.name: table.frame for table in tables_of(self)}

    def __repr__(self) -> str:
        names = ", ".join(short_repr(run.path) for run in self.baselines[:_SHOWN_BASELINES])
        more = len(self.baselines) - _SHOWN_BASELINES
        against = f"{names} and {more} more" if more > 0 else names
        judgement = f"{self.verdict.judgement}, {percent(self.change.ratio - 1, 1, '+')}"
        return f"<tracekit.Comparison of {short_repr(self.candidate.path)} with {against}: {judgement}>"


def compare(
    baselines: Source | Sequence[Source],
    candidate: Source,
    *,
    margin: float = DEFAULT_MARGIN,
    run_noise: float = DEFAULT_RUN_NOISE,
    cache: CacheChoice = False,
) -> Comparison:
    """Compare a run with one or several baseline runs of the same job.

    Each is a path, a loaded run, or a report, which should have the sections `SECTIONS_READ`. margin: changes of the
    step by less than this share do not matter. run_noise: the share by which two runs of one job are taken to differ
    where fewer than three baseline runs show it. `cache` is passed to `load`.

    Raises InputError with the reason if the runs cannot be compared, UsageError for shares that are not between 0 and 1
    or without a baseline, and whatever `load` raises.
    """
    for name, share in (("margin", margin), ("run_noise", run_noise)):
        if not 0 < share < 1:
            raise UsageError(f"{name}={share} is not a share between 0 and 1", hint="0.03 is 3 %")
    sources = [baselines] if isinstance(baselines, str | os.PathLike | Run | Report) else list(baselines)
    if not sources:
        raise UsageError("there is no baseline", hint="give the run to compare with, or a list of runs")
    *before, after = [_report(source, cache) for source in (*sources, candidate)]
    runs = tuple(report.run for report in before)
    for run in runs:
        if reason := why_incomparable(run, after.run):
            raise InputError(
                f"these runs cannot be compared: {reason}", hint="record the same job, on as many ranks, and compare it"
            )
    change = estimate_change([steps_ns(run) for run in runs], steps_ns(after.run), run_noise=run_noise)
    basis, causes = cause_changes(before, after, round(change.baseline), round(change.candidate))
    return Comparison(
        baselines=runs,
        candidate=after.run,
        change=change,
        verdict=judge(change, margin),
        basis=basis,
        causes=causes,
        explored=explored_changes(before, after, change),
        differences=find_differences(runs, after.run),
    )


def _report(source: Source, cache: CacheChoice) -> Report:
    return source if isinstance(source, Report) else analyze(source, only=SECTIONS_READ, cache=cache)


def steps_ns(run: Run) -> Float64:
    """Return the lengths of the job's steps in order, at least 1, float64 [n]."""
    return np.array([max(step_ns, 1) for step_ns in run.step_lengths_ns.values()], dtype=np.float64)


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
            index = np.minimum(np.searchsorted(numbers, step), len(numbers) - 1)
            counts = numbers[index] == step
            samples[key] += np.bincount(index[counts], weights=time_ns[counts], minlength=len(numbers))
    return dict(samples)


def _phases(report: Report) -> _Times:
    """Yield the time of each phase on the chain that bounds the step."""
    path = report.critical_path
    rows: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for interval in () if path is None else path.intervals:
        for (_, phase), time_ns in interval.times_ns.items():
            rows[phase].append((interval.step, time_ns))
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
