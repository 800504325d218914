"""Whether a run is slower or faster than the baseline, equivalent to it, or cannot be told apart with these steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from tracekit.analysis.comparison.median_change import ENOUGH_STEPS, MedianChange
from tracekit.analysis.comparison.run_noise import CONFIDENCE

__all__ = ["DEFAULT_MARGIN", "Judgement", "StepVerdict", "judge", "steps_to_tell_apart"]

Judgement = Literal["slower", "faster", "equivalent", "inconclusive"]

DEFAULT_MARGIN = 0.03
_MOST_STEPS = 10_000  # nobody records more


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


def judge(change: MedianChange, margin: float = DEFAULT_MARGIN) -> StepVerdict:
    """Return the verdict on a change: equivalent if its interval lies inside the margin, else slower or faster if the
    interval lies on one side of no change at all.
    """
    if change.low is None or change.high is None:
        return StepVerdict(judgement="inconclusive", margin=margin, steps_needed=ENOUGH_STEPS)
    if change.high <= 1 + margin and change.low >= 1 - margin:
        return StepVerdict(judgement="equivalent", margin=margin)
    if change.low > 1:
        return StepVerdict(judgement="slower", margin=margin)
    if change.high < 1:
        return StepVerdict(judgement="faster", margin=margin)
    edges = [0.0]
    if abs(change.ratio - 1) < margin:
        edges.append(math.log1p(margin if change.ratio > 1 else -margin))
    needed = [steps for edge in edges if (steps := steps_to_tell_apart(change, edge)) is not None]
    return StepVerdict(judgement="inconclusive", margin=margin, steps_needed=min(needed, default=None))


def steps_to_tell_apart(change: MedianChange, log_ratio: float) -> int | None:
    """Return about how many steps a run needs until the interval ends before `log_ratio`, the logarithm of a ratio.

    None if no number of steps is enough, because the noise between runs is larger than the distance.
    """
    distance, between = abs(math.log(change.ratio) - log_ratio), math.log1p(change.run_noise.share)
    if distance <= between:
        return None
    if change.step_variance is None:
        return ENOUGH_STEPS
    within = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) ** 2 * change.step_variance
    steps = math.ceil(within / (distance**2 - between**2))
    return max(steps, change.steps + 1, ENOUGH_STEPS) if steps <= _MOST_STEPS else None
