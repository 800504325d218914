"""By how much two runs of the same job differ though nothing was changed.

The steps of a run do not show that: a run has its machine, its placement and its memory layout for as long as it lasts.
Three or more runs of the baseline do. Few of them tell little of how much runs differ. So the floor counts as much as
four runs more would, whose deviation it is (Smyth, "Linear models and empirical Bayes methods", 2004, section 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from tracekit.analysis.stats.uncertainty import student_deviations
from tracekit.model.events import Float64

__all__ = ["CONFIDENCE", "DEFAULT_RUN_NOISE", "QUANTILE", "RunNoise", "noise_between_runs"]

CONFIDENCE = 0.98  # of 100 pairs of runs of the same kind, at most one is called slower, and one faster
QUANTILE = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
"""Half the width of an interval, in standard deviations of a normal distribution."""

DEFAULT_RUN_NOISE = 0.02
_LEAST_RUNS = 3
_RUNS_OF_FLOOR = 4


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
