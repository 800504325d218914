"""How much shorter steps would be without a part: the slowest rank sets the pace, with and without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.exchanges import rank, run_of
from tracekit.explain.step_time.step_lengths import saving_of_ns, savings_ns
from tracekit.model.run import Run


@pytest.fixture
def run() -> Run:
    """Two ranks in three steps of which all completed two, with these steps and idle times:

    rank 0   100 idle 40    80 idle 0    70 idle 70
    rank 1    90 idle  5    60 idle 9    70 cut off
    """
    ranks = []
    for number, parts in enumerate((((100, 40), (80, 0), (70, 70)), ((90, 5), (60, 9), (70, 0)))):
        summary = rank(number, steps=(1, 2, 3))
        steps = tuple(
            replace(step, step_ns=step_ns, idle_ns=idle_ns, complete=(number, step.step) != (1, 3))
            for step, (step_ns, idle_ns) in zip(summary.steps, parts, strict=True)
        )
        ranks.append(replace(summary, steps=steps))
    return run_of(ranks)


def test_a_rank_that_waits_less_limits_the_saving(run: Run) -> None:
    """Step 1 takes 100, and without idle time 85 of rank 1. Step 2 takes 80, and rank 0 is never idle in it."""
    idle_ns = {(summary.rank, step.step): step.idle_ns for summary in run.ranks for step in summary.steps}

    assert savings_ns(run, idle_ns) == [15, 0]
    assert saving_of_ns(run, idle_ns) == 7


def test_a_part_that_is_missing_is_zero(run: Run) -> None:
    assert savings_ns(run, {(0, 1): 10, (0, 2): 5}) == [10, 5]
    assert savings_ns(run, {(0, 1): 30}) == [10, 0]


def test_without_common_steps_there_is_no_saving() -> None:
    assert saving_of_ns(run_of([rank(0, steps=(1,)), rank(1, steps=(2,))]), {}) is None
