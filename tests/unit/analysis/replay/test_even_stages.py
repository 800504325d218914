"""Factors that even out stages: by hand, and unmoved by a few slow samples."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.analysis.replay.even_stages import even_stage_factors
from tracekit.model.events import Float64


def factors(*samples: tuple[int, int, float], kinds: int = 1, stages: int = 2) -> Float64:
    """Each sample is a kind, a stage and how long the work took."""
    kind, stage, work_ns = zip(*samples, strict=True)
    return even_stage_factors(
        np.array(kind, dtype=np.int64),
        np.array(stage, dtype=np.int64),
        np.array(work_ns, dtype=np.float64),
        kinds=kinds,
        stages=stages,
    )


def test_every_stage_gets_the_mean_of_the_stages() -> None:
    """GIVEN stages of 10 and 30 THEN both become 20."""
    assert factors((0, 0, 10), (0, 1, 30)).tolist() == [[2.0, pytest.approx(2 / 3), 1.0]]


def test_one_slow_sample_of_a_stage_is_no_imbalance() -> None:
    """GIVEN one slow rank, or one slow step, of three THEN stage 1 takes its median, as long as stage 0."""
    samples = [(0, 0, 10.0)] * 3 + [(0, 1, 10.0), (0, 1, 10.0), (0, 1, 90.0)]
    assert factors(*samples).tolist() == [[1.0, 1.0, 1.0]]


def test_kinds_are_evened_out_apart_and_among_the_stages_that_have_them() -> None:
    """GIVEN kind 1 on stage 0 alone, and no stage with kind 2 THEN both stay as they are."""
    found = factors((0, 0, 10), (0, 1, 20), (1, 0, 7), kinds=3)
    assert found.tolist() == [[1.5, 0.75, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]


def test_work_without_a_stage_stays_as_it_is() -> None:
    assert factors((0, 0, 10), (0, 1, 30))[0, -1] == 1.0


def test_a_stage_that_takes_no_time_is_left_alone() -> None:
    assert factors((0, 0, 0), (0, 1, 30)).tolist() == [[1.0, 0.5, 1.0]]
