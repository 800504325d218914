"""By which factor the median of a run's steps differs from that of the baseline, and how well that is known.

Two kinds of noise are added in quadrature. The noise within a run comes from its steps, by a block bootstrap of the
ratio of medians, because steps that follow each other are alike. The noise between runs comes from `run_noise`.
Quantiles of few resampled steps are too narrow; they are widened as Hesterberg advises ("What Teachers Should Know
About the Bootstrap", The American Statistician 69, 2015).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from tracekit.analysis.comparison.run_noise import CONFIDENCE, DEFAULT_RUN_NOISE, RunNoise, noise_between_runs
from tracekit.analysis.stats.block_bootstrap import bootstrap_medians, widening
from tracekit.analysis.stats.student import student_quantile
from tracekit.model.events import Float64

__all__ = ["ENOUGH_STEPS", "MedianChange", "median_change"]

ENOUGH_STEPS = 8  # with fewer in a run, only changes of `_FEW_STEPS_CHANGE` can be told from noise
_FEW_STEPS_CHANGE = 0.1
_LEAST_STEPS = 3  # fewer do not show how steps differ
_REPLICATES = 4000
_TAIL = (1 - CONFIDENCE) / 2


@dataclass(frozen=True, kw_only=True)
class MedianChange:
    """The ratio of two medians.

    Attributes:
        baseline: the median of the baseline run; of several runs the geometric mean of their medians.
        candidate: the median of the other run.
        steps: of the run with the fewest steps.
        run_noise: the noise between runs that the interval contains.
        low: the ratio is at least that, with `CONFIDENCE`; None if a run has too few steps to say.
        high: the ratio is at most that; None likewise.
        step_variance: what the noise within runs adds to the variance of the ratio's logarithm, times the number of
            steps of a run; None likewise.
    """

    baseline: float
    candidate: float
    steps: int
    run_noise: RunNoise
    low: float | None = None
    high: float | None = None
    step_variance: float | None = None

    @property
    def ratio(self) -> float:
        return self.candidate / self.baseline

    @property
    def step_noise(self) -> float | None:
        """Return by which share of a step the noise within runs widens the interval; None if that is not known."""
        if self.low is None or self.high is None:
            return None
        half_width, between = math.log(self.high / self.low) / 2, math.log1p(self.run_noise.share)
        return math.expm1(math.sqrt(max(half_width**2 - between**2, 0.0)))


def median_change(
    baselines: Sequence[Float64], candidate: Float64, *, run_noise: float = DEFAULT_RUN_NOISE
) -> MedianChange:
    """Return the change from one or several baseline runs to another run.

    baselines: positive values of the steps of each run in order, float64 [n] each, at least one. candidate: likewise.
    run_noise: the share by which runs are taken to differ where fewer than three baselines show it.
    """
    runs = [*baselines, candidate]
    medians = np.array([np.median(steps) for steps in runs])
    logs, steps = np.log(medians), min(map(len, runs))
    base_log = float(logs[:-1].mean())
    found = MedianChange(
        baseline=float(medians[0]) if len(baselines) == 1 else math.exp(base_log),
        candidate=float(medians[-1]),
        steps=steps,
        run_noise=RunNoise(share=run_noise, runs=len(baselines), is_measured=False),
    )
    if steps < _LEAST_STEPS:
        return found
    rng = np.random.default_rng(0)  # equal input gives equal output
    resampled = np.array([_resampled_logs(steps, rng) for steps in runs])
    variances, counts = resampled.var(axis=1), np.array([len(steps) for steps in runs])
    noise = noise_between_runs(logs[:-1], variances[:-1], run_noise)
    weights = np.array([*[1 / len(baselines)] * len(baselines), 1.0])
    below, above = _distances(resampled[-1] - resampled[:-1].mean(axis=0), variances * weights**2, counts)
    middle = float(resampled[-1].mean() - resampled[:-1].mean())
    estimate, between = float(logs[-1]) - base_log, math.log1p(noise.share)
    low = min(middle - math.hypot(below, between), estimate)
    high = max(middle + math.hypot(above, between), estimate)
    if steps < ENOUGH_STEPS:
        low = min(low, estimate - math.log1p(_FEW_STEPS_CHANGE))
        high = max(high, estimate - math.log1p(-_FEW_STEPS_CHANGE))
    step_variance = float((variances * weights**2 * counts).sum())
    return replace(found, low=math.exp(low), high=math.exp(high), step_variance=step_variance, run_noise=noise)


def _resampled_logs(steps: Float64, rng: np.random.Generator) -> Float64:
    """Return logarithms of medians of resampled steps, float64 [_REPLICATES], spread as medians of such steps are."""
    logs = np.log(bootstrap_medians(steps, _REPLICATES, rng))
    middle = logs.mean()
    return np.asarray(middle + (logs - middle) * widening(len(steps)))


def _distances(differences: Float64, variances: Float64, counts: Float64) -> tuple[float, float]:
    """Return how far the ends of the interval are below and above the mean of the resampled differences.

    differences: float64 [_REPLICATES]. variances: what each run adds to their variance, float64 [k]. counts: of steps,
    float64 [k].
    """
    scale = 1.0
    if variances.any():  # steps that are all alike have no variance
        degrees = float(variances.sum() ** 2 / (variances**2 / (counts - 1)).sum())  # Welch and Satterthwaite
        scale = student_quantile(1 - _TAIL, max(degrees, 2.0)) / NormalDist().inv_cdf(1 - _TAIL)
    low, high = np.quantile(differences, [_TAIL, 1 - _TAIL])
    middle = differences.mean()
    return float(middle - low) * scale, float(high - middle) * scale
