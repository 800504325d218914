"""Whether a run is slower or faster than the baseline, equivalent to it, or cannot be told apart with these steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tracekit.analysis.comparison.change_estimate import ENOUGH_STEPS, ChangeEstimate
from tracekit.analysis.comparison.run_noise import QUANTILE

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
