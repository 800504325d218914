"""Whether a run is slower or faster than the baseline, equivalent to it, or cannot be told apart with these steps.

The value of a run is the pseudomedian of its steps, which users know as their typical length. Two kinds of noise are
added in quadrature. The noise within runs comes from the ratios of all pairs of steps, one of each side, and grows
where steps that follow each other are alike. The noise between runs is by how much two runs of the same job differ
though nothing was changed. The steps of a run do not show that: a run has its machine, its placement and its memory
layout for as long as it lasts. Three or more runs of the baseline do. Few of them tell little of how much runs differ.
So the floor counts as much as four runs more would, whose deviation it is (Smyth, "Linear models and empirical Bayes
methods", 2004, section 3).

The causes of the baseline's mean step against those of the candidate's tell what the change consists of. The verdict is
on the pseudomedian of the steps, and causes divide the mean. What the pseudomedian changed by beyond the mean is the
row `uneven_steps`. A single step that is longer, such as one with a checkpoint, changes the mean alone. So the rows sum
to the change of the step that is judged, exactly, in integers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import numpy as np

from tracekit.model.events import Float64
from tracekit.model.run import Run
from tracekit.model.table import rows_of
from tracekit.report.report import Report
from tracekit.stats.apportion import apportion
from tracekit.stats.uncertainty import error_growth, pseudomedian, shift_between, student_deviations, thinned

Judgement = Literal["slower", "faster", "equivalent", "inconclusive"]

DEFAULT_MARGIN = 0.03
_MOST_STEPS = 10_000  # nobody records more

ENOUGH_STEPS = 8  # with fewer in a run, only changes of `_FEW_STEPS_CHANGE` can be told from noise
_FEW_STEPS_CHANGE = 0.1
_LEAST_STEPS = 2
_STEPS_TO_RANK = 4  # of fewer on both sides, even steps that are all longer may be so by chance

CONFIDENCE = 0.98  # of 100 pairs of runs of the same kind, at most one is called slower, and one faster
QUANTILE = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
"""Half the width of an interval, in standard deviations of a normal distribution."""

DEFAULT_RUN_NOISE = 0.02
_LEAST_RUNS = 3
_RUNS_OF_FLOOR = 4

UNEVEN_STEPS = "uneven_steps"

Basis = Literal["causes", "breakdown"]
"""causes: those of the diagnosis. breakdown: compute, exposed communication, exposed copies and idle time, over ranks,
because the chain that bounds the steps of a run is not known."""

_Key = tuple[str, tuple[int, ...]]
_PARTS = ("compute", "exposed_comm", "exposed_copy", "idle")


@dataclass(frozen=True, kw_only=True)
class StepVerdict:
    """The verdict on a change of the step.

    Attributes:
        margin: changes by less than this share do not matter.
        steps_needed: of an inconclusive verdict, about how many steps in each run would decide if the ratio stays the
            same; None where steps alone cannot decide, because of the noise between runs.
    """

    judgement: Judgement
    margin: float
    steps_needed: int | None = None


def judge(change: ChangeEstimate, margin: float = DEFAULT_MARGIN) -> StepVerdict:
    """Return the verdict on a change.

    It is equivalent if its interval lies inside the margin. It is slower or faster if the ratio lies outside of the
    margin, and the interval on one side of no change.
    """
    if change.low is None or change.high is None:
        return StepVerdict(judgement="inconclusive", margin=margin, steps_needed=ENOUGH_STEPS)
    if change.high <= 1 + margin and change.low >= 1 - margin:
        return StepVerdict(judgement="equivalent", margin=margin)
    if change.ratio > 1 + margin and change.low > 1:
        return StepVerdict(judgement="slower", margin=margin)
    if change.ratio < 1 - margin and change.high < 1:
        return StepVerdict(judgement="faster", margin=margin)
    is_inside = 1 - margin <= change.ratio <= 1 + margin
    edge = math.log1p(margin if change.ratio > 1 else -margin) if is_inside else 0.0
    return StepVerdict(judgement="inconclusive", margin=margin, steps_needed=steps_to_tell_apart(change, edge))


def steps_to_tell_apart(change: ChangeEstimate, log_ratio: float) -> int | None:
    """Return about how many steps a run needs until the interval ends before `log_ratio`, the logarithm of a ratio.

    None if no number of steps is enough, because the noise between runs is larger than the distance.
    """
    distance, between = abs(math.log(change.ratio) - log_ratio), math.log1p(change.run_noise.share)
    if distance <= between:
        return None
    if change.step_variance is None:
        return ENOUGH_STEPS
    within = QUANTILE**2 * change.step_variance
    steps = math.ceil(within / (distance**2 - between**2))
    return max(steps, change.steps + 1, ENOUGH_STEPS) if steps <= _MOST_STEPS else None


@dataclass(frozen=True, kw_only=True)
class ChangeEstimate:
    """The ratio of the values of two runs.

    Attributes:
        baseline: the pseudomedian of the baseline run; of several runs the geometric mean of theirs.
        candidate: the pseudomedian of the other run.
        steps: of the run with the fewest steps.
        run_noise: the noise between runs that the interval contains.
        low: the ratio is at least that, with `CONFIDENCE`; None if a run has too few steps to say.
        high: the ratio is at most that; None likewise.
        step_noise: by which share of a step the noise within runs widens the interval; None likewise.
        step_variance: the variance of the ratio's logarithm due to the noise within runs, times the number of steps if
            all runs had as many; None likewise.
    """

    baseline: float
    candidate: float
    steps: int
    run_noise: RunNoise
    low: float | None = None
    high: float | None = None
    step_noise: float | None = None
    step_variance: float | None = None

    @property
    def ratio(self) -> float:
        return self.candidate / self.baseline


def estimate_change(
    baselines: Sequence[Float64], candidate: Float64, *, run_noise: float = DEFAULT_RUN_NOISE
) -> ChangeEstimate:
    """Return the change from one or several baseline runs to another run.

    baselines: positive values of the steps of each run in order, float64 [n] each, at least one. candidate: likewise.
    run_noise: the share by which runs are taken to differ where fewer than three baselines show it.
    """
    runs = [thinned(values) for values in (*baselines, candidate)]
    values, steps = [pseudomedian(of_run) for of_run in runs], min(map(len, runs))
    base_logs = np.log(values[:-1])
    base_log = float(base_logs.mean())
    without_interval = ChangeEstimate(
        baseline=values[0] if len(baselines) == 1 else math.exp(base_log),
        candidate=values[-1],
        steps=steps,
        run_noise=RunNoise(share=run_noise, runs=len(baselines), is_measured=False),
    )
    if steps < _LEAST_STEPS:
        return without_interval
    logs, counts = [np.log(of_run) for of_run in runs], np.array(list(map(len, runs)))
    growth = error_growth(logs)
    variances = np.array([_variance_within(of_run) * growth**2 for of_run in logs[:-1]])
    noise = noise_between_runs(base_logs, variances, run_noise)
    level = np.concatenate([of_run - log + base_log for of_run, log in zip(logs, base_logs, strict=False)])
    shift = shift_between(level, logs[-1], CONFIDENCE)
    # Baselines count alike though one has fewer steps: that is less certain than their steps taken together.
    alike = float((1 / counts[:-1]).mean()) / len(baselines)
    if steps < _STEPS_TO_RANK:
        below = above = growth * _student_half_width(logs) * math.sqrt(alike + 1 / counts[-1])
    else:
        wider = growth * math.sqrt((alike + 1 / counts[-1]) / (1 / len(level) + 1 / counts[-1]))
        below, above = (shift.middle - shift.low) * wider, (shift.high - shift.middle) * wider
    estimate, between, within = math.log(values[-1]) - base_log, math.log1p(noise.share), (below + above) / 2
    low = min(shift.middle - math.hypot(below, between), estimate)
    high = max(shift.middle + math.hypot(above, between), estimate)
    if steps < ENOUGH_STEPS:
        low = min(low, estimate - math.log1p(_FEW_STEPS_CHANGE))
        high = max(high, estimate - math.log1p(-_FEW_STEPS_CHANGE))
    return replace(
        without_interval,
        run_noise=noise,
        low=math.exp(low),
        high=math.exp(high),
        step_noise=math.expm1(within),
        step_variance=(within / QUANTILE) ** 2 * (1 / len(baselines) + 1) / (alike + 1 / counts[-1]),
    )


def _student_half_width(logs: Sequence[Float64]) -> float:
    """Return half the width of the interval of one step, as if the logarithms of all steps varied alike, normally."""
    degrees = sum(map(len, logs)) - len(logs)
    variance = sum(float(((of_run - of_run.mean()) ** 2).sum()) for of_run in logs) / degrees
    return student_deviations(QUANTILE, degrees) * math.sqrt(variance)


def _variance_within(logs: Float64) -> float:
    """Return the variance of a run's value that is due to its steps, from the differences of all their pairs."""
    shift = shift_between(logs, logs, CONFIDENCE)
    return ((shift.high - shift.low) / 2 / QUANTILE) ** 2 / 2


@dataclass(frozen=True, kw_only=True)
class RunNoise:
    """The noise between runs.

    Attributes:
        share: by which share of a step a run is taken to differ from the baseline, at most, with `CONFIDENCE`.
        runs: how many baseline runs there are.
        is_measured: whether these show it; otherwise it is assumed.
    """

    share: float
    runs: int
    is_measured: bool


def noise_between_runs(log_values: Float64, within_variance: Float64, floor: float) -> RunNoise:
    """Return the noise between the k baseline runs and another run.

    log_values: the logarithm of the typical length of each run's steps, float64 [k]. within_variance: how uncertain
    each of them is as steps differ, float64 [k]. floor: what is assumed, a share of the step.
    """
    runs = len(log_values)
    if runs < _LEAST_RUNS:
        return RunNoise(share=floor, runs=runs, is_measured=False)
    assumed_variance = (math.log1p(floor) / QUANTILE) ** 2 / 2  # of one run, not of two
    variance = max(float(np.var(log_values, ddof=1)) - float(within_variance.mean()), 0.0)
    degrees = _RUNS_OF_FLOOR + runs - 1
    pooled = (_RUNS_OF_FLOOR * assumed_variance + (runs - 1) * variance) / degrees
    half_width = student_deviations(QUANTILE, degrees) * math.sqrt(pooled * (1 + 1 / runs))
    return RunNoise(share=math.expm1(half_width), runs=runs, is_measured=True)


def cause_changes(
    baselines: Sequence[Report], candidate: Report, baseline_ns: int, candidate_ns: int
) -> tuple[Basis, list[dict[str, object]]]:
    """Return what the causes are from, and rows of tables.CAUSE_CHANGES, the largest change first, then the longest.

    baseline_ns, candidate_ns: the pseudomedians of their steps.
    """
    reports = [*baselines, candidate]
    is_known = all(report.diagnosis is not None and report.diagnosis.steps for report in reports)
    times = [_causes_ns(report) if is_known else _parts_ns(report.run) for report in reports]
    before, after = _mean(times[:-1]), times[-1]
    before[UNEVEN_STEPS, ()] = baseline_ns - before.total()
    after[UNEVEN_STEPS, ()] = candidate_ns - after.total()
    changes = {key: after[key] - before[key] for key in {**before, **after}}
    rows = [
        {
            "cause": cause,
            "ranks": list(ranks),
            "baseline_ns": before[cause, ranks],
            "candidate_ns": after[cause, ranks],
            "change_ns": changes[cause, ranks],
        }
        for cause, ranks in sorted(changes, key=lambda key: (-abs(changes[key]), -after[key], key))
    ]
    return "causes" if is_known else "breakdown", [row for row in rows if row["baseline_ns"] or row["candidate_ns"]]


def _causes_ns(report: Report) -> Counter[_Key]:
    """Return the times of the diagnosis by cause and ranks; phases, groups and stages of one cause count as one."""
    times: Counter[_Key] = Counter()
    for row in rows_of(report.diagnosis, "causes"):
        times[row["cause"], tuple(row["ranks"])] += row["time_ns"]
    return times


def _parts_ns(run: Run) -> Counter[_Key]:
    """Return the parts of the mean step over ranks."""
    common = run.common_steps()
    steps = [step for summary in run.ranks for step in summary.steps if step.step in common]
    sums = np.array([sum(getattr(step, f"{part}_ns") for step in steps) for part in _PARTS])
    means_ns = apportion(round(int(sums.sum()) / len(steps)), sums).tolist()
    return Counter({(part, ()): mean_ns for part, mean_ns in zip(_PARTS, means_ns, strict=True)})


def _mean(runs: Sequence[Mapping[_Key, int]]) -> Counter[_Key]:
    """Return the mean of several runs, whose sum is the mean of their sums."""
    keys = sorted({key for times in runs for key in times})
    sums = np.array([sum(times.get(key, 0) for times in runs) for key in keys])
    return Counter(dict(zip(keys, apportion(round(int(sums.sum()) / len(runs)), sums).tolist(), strict=True)))
