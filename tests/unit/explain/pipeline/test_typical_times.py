"""How long actions and transfers typically take, and what of it is chance."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.explain.stage_lines import line
from tracekit.explain.pipeline.bubble_causes import CAUSES, attribute_bubbles

STEPS = tuple(range(5, 13))
_IMBALANCE, _LATE = CAUSES.index("imbalance"), CAUSES.index("late_peer")


@pytest.mark.parametrize("seed", range(8))
def test_equal_stages_whose_times_vary_are_even(seed: int) -> None:
    """GIVEN forwards of 100 to 200 by chance: late peers are the cause of what ranks wait for, and not the stages."""
    longer = np.random.default_rng(seed).integers(0, 100, (len(STEPS), 4)).tolist()
    _, measured = line(4, 6, steps=STEPS, longer=lambda step, stage: longer[step - STEPS[0]][stage])

    idle_ns = attribute_bubbles(measured, [0] * 4).idle_ns.sum(axis=0)

    assert idle_ns[_IMBALANCE] == 0
    assert idle_ns[_LATE] > 0


def test_one_long_step_of_a_stage_makes_it_no_uneven_one() -> None:
    """GIVEN times that vary by up to 5, and a step in which one stage takes 60 longer."""
    longer = np.random.default_rng(3).integers(0, 5, (len(STEPS), 4))
    longer[2, 1] += 60
    _, measured = line(4, 6, steps=STEPS, longer=lambda step, stage: int(longer[step - STEPS[0], stage]))

    assert len(set(measured.typical.beyond_chance[0].tolist())) == 1
