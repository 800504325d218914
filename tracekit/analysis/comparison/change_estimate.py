"""By which factor a run's steps differ from those of the baseline, and how well that is known.

The value of a run is the pseudomedian of its steps, which users know as their typical length. Two kinds of noise are
added in quadrature. The noise within runs comes from the ratios of all pairs of steps, one of each side, and grows
where steps that follow each other are alike. The noise between runs comes from `run_noise`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracekit.analysis.comparison.run_noise import CONFIDENCE, DEFAULT_RUN_NOISE, QUANTILE, RunNoise, noise_between_runs
from tracekit.analysis.stats.uncertainty import error_growth, pseudomedian, shift_between, thinned
from tracekit.model.events import Float64

__all__ = ["ENOUGH_STEPS", "ChangeEstimate", "estimate_change"]

ENOUGH_STEPS = 8  # with fewer in a run, only changes of `_FEW_STEPS_CHANGE` can be told from noise
_FEW_STEPS_CHANGE = 0.1
_LEAST_STEPS = 4  # of fewer on both sides, even steps that are all longer may be so by chance


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


def _variance_within(logs: Float64) -> float:
    """Return the variance of a run's value that is due to its steps, from the differences of all their pairs."""
    shift = shift_between(logs, logs, CONFIDENCE)
    return ((shift.high - shift.low) / 2 / QUANTILE) ** 2 / 2
