"""Which stage takes longer than the others: not by chance, not for a late host, and not without a cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.unit.explain.stage_lines import line
from tracekit.explain.pipeline.uneven_stage import UnevenStage, find_uneven_stage

STEPS = (5, 6, 7, 8)


def uneven(
    longer: Callable[[int, int], int],
    *,
    stages: int = 4,
    microbatches: int = 4,
    compute_ns: dict[int, float] | None = None,
) -> UnevenStage | None:
    """Return the uneven stage of a line whose forwards of a step and a stage take 100 and `longer`."""
    _, measured = line(stages, microbatches, steps=STEPS, longer=longer)
    return find_uneven_stage([measured], dict.fromkeys(range(stages), 0.0) if compute_ns is None else compute_ns)


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_the_slow_stage_is_named_with_what_it_costs(stage: int) -> None:
    """A step takes 100 (4 + 4 - 1), and 100 longer for each microbatch."""
    found = uneven(lambda _, s: 100 * (s == stage))

    assert found is not None
    assert (found.stage, found.ranks, found.factor) == (stage, (stage,), 2.0)
    assert (found.work_ns, found.others_ns, found.fastest) == (200, 100, 0 if stage else 1)
    assert (found.saves_ns_per_step, found.error_ns) == (400, 0)
    assert found.share == pytest.approx(400 / 1100)


def test_no_stage_is_infinitely_slower_than_stages_that_take_no_time() -> None:
    assert uneven(lambda _, stage: -100 * (stage != 2)) is None


def test_layers_go_to_another_rank_though_the_slow_one_has_the_fastest_stage() -> None:
    """GIVEN stages 0 and 2 on rank 0, 1 and 3 on rank 1, of which 0 is the fastest and 2 the slowest."""
    _, measured = line(4, 4, steps=STEPS, longer=lambda _, stage: {0: -20, 2: 100, 3: 10}.get(stage, 0))
    orders = tuple(replace(order, rank=order.rank % 2) for order in measured.action_orders)
    found = find_uneven_stage([replace(measured, ranks=(0, 1), action_orders=orders)], {0: 0.0, 1: 0.0})

    assert found is not None
    assert (found.stage, found.ranks, found.fastest) == (2, (0,), 1)


def test_even_stages_are_not_named() -> None:
    assert uneven(lambda *_: 0) is None


@pytest.mark.parametrize(("more_ns", "is_named"), [(400, True), (250, True), (150, False), (0, False)])
def test_a_stage_must_compute_most_of_what_it_takes_longer(more_ns: int, is_named: bool) -> None:
    """GIVEN a stage that takes 400 longer a step THEN its rank computes longer, or else its host is late."""
    found = uneven(lambda _, stage: 100 * (stage == 2), compute_ns={0: 400, 1: 400, 2: 400 + more_ns, 3: 400})

    assert (found is not None) == is_named


def test_a_stage_that_is_slow_in_half_of_the_steps_is_not_named() -> None:
    assert uneven(lambda step, stage: 100 * (stage == 2 and step % 2)) is None


def test_a_stage_that_is_slow_once_is_not_named() -> None:
    """GIVEN a stage that takes 139 in the mean, and is the slowest in every step, but by 2 in three of four."""
    assert uneven(lambda step, stage: (150 if step == 6 else 2) * (stage == 2)) is None


@pytest.mark.parametrize(("longer", "is_named"), [(12, False), (40, True)])
def test_a_stage_that_is_a_little_slower_must_be_so_in_every_action(longer: int, is_named: bool) -> None:
    """GIVEN a stage whose actions take longer, but for the first one of each step, on a machine that is busy later."""
    _, measured = line(4, 4, steps=STEPS, longer=lambda _, stage: longer * (stage == 2))
    orders = []
    for order in measured.action_orders:
        work_ns = order.work_ns.copy()
        work_ns[np.flatnonzero(order.stage == 2)[0]] = 100
        orders.append(replace(order, work_ns=work_ns))

    found = find_uneven_stage([replace(measured, action_orders=tuple(orders))], dict.fromkeys(range(4), 0.0))

    assert (found is not None) == is_named


@pytest.mark.parametrize(
    ("longer", "stages", "microbatches", "is_named"),
    [
        (4, 4, 16, False),  # too little, though it costs 3 % of a step
        (10, 4, 4, True),  # 40 of 740
        (10, 8, 1, False),  # 10 of 810
        (20, 16, 1, True),  # 20 of 1620, but the stage is clearly slower
    ],
)
def test_a_stage_that_is_a_little_slower_must_cost_something(
    longer: int, stages: int, microbatches: int, is_named: bool
) -> None:
    found = uneven(lambda _, stage: longer * (stage == 2), stages=stages, microbatches=microbatches)

    assert (found is not None) == is_named


def test_the_error_of_the_saving_is_that_of_its_mean_over_steps() -> None:
    """GIVEN forwards of 210 and 200 by turns, 205 in the mean THEN they would take 100 / 205 of that.

    Steps of 1140 and 1100 would take 300 + 4 * 102.4 and 600 + 97.6: they save 430 and 402, in the mean 416 +- 8.
    """
    found = uneven(lambda step, stage: (110 if step % 2 else 100) * (stage == 3))

    assert found is not None
    assert (found.saves_ns_per_step, found.error_ns) == (416, 8)
