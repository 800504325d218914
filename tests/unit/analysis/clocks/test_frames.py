"""Ranks whose clocks agree are one frame: what joins two frames are the moments of all their ranks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.analysis.clocks.planted import BEGIN_NS, Clock, PlantedRanks
from tracekit.analysis.clocks.align import align

MS = 1_000_000
STEP_NS = 10 * MS
JUMP_NS = 1_500_000


def job(
    *, steps: int, before: int, inside: int = 12, world: bool = True, per_machine: int = 4, machines_known: bool = False
) -> tuple[PlantedRanks, np.ndarray]:
    """Return two machines, and when their collectives with each other end.

    The clock of the second machine is ahead, drifts, and jumps by 1.5 ms after `before` of the steps. In each step the
    ranks of a machine have `inside` collectives. At the end of each, there is one of each rank with its counterpart on
    the other machine, and one of all ranks. Ends spread by 1 us.
    """
    rng = np.random.default_rng(1)
    jumps_ns = (BEGIN_NS + round((before + 0.5) * STEP_NS), JUMP_NS)
    clocks = [Clock(), Clock(offset_ns=700_000, drift_ppm=30, jumps=(jumps_ns,))]
    ranks = 2 * per_machine
    planted = PlantedRanks(
        [clocks[rank // per_machine] for rank in range(ranks)],
        BEGIN_NS,
        BEGIN_NS + steps * STEP_NS,
        hosts=[f"node{rank // per_machine if machines_known else rank}" for rank in range(ranks)],
    )

    def meet(members: range, end_ns: np.ndarray) -> None:
        late_ns = rng.normal(0, 1000, (len(members), len(end_ns))).astype(np.int64)
        planted.collectives(members, end_ns=end_ns, late_ns=late_ns)

    step_ends_ns = BEGIN_NS + np.arange(1, steps + 1) * STEP_NS
    if inside:
        inner_ns = BEGIN_NS + np.arange(steps * inside) * (STEP_NS // inside) + MS // 2
        for machine in range(2):
            meet(range(machine * per_machine, (machine + 1) * per_machine), inner_ns)
    for rank in range(per_machine):
        meet(range(rank, ranks, per_machine), step_ends_ns - 200_000 - 10_000 * rank)
    if world:
        meet(range(ranks), step_ends_ns - 100_000)
    return planted, step_ends_ns


@pytest.mark.parametrize("machines_known", [False, True])
@pytest.mark.parametrize(("steps", "before"), [(6, 3), (5, 1), (4, 2)])
@pytest.mark.parametrize(("inside", "world"), [(12, True), (12, False), (0, True)])
def test_a_jump_shows_in_the_few_moments_of_all_ranks_together(
    steps: int, before: int, inside: int, world: bool, machines_known: bool
) -> None:
    """GIVEN 1 to 3 steps before a jump, each with two moments of a rank with the other machine THEN it is known to
    20 us, as the ranks of a machine show ten such moments a step together.
    """
    if not world and (steps, before) == (5, 1):
        before = 2  # four moments are four collectives that end almost at once
    planted, times_ns = job(steps=steps, before=before, inside=inside, world=world, machines_known=machines_known)
    models, _ = align(planted.summaries(), planted.matched_groups())
    for model in models:
        off_ns = np.abs(planted.off_ns(models, model.rank, times_ns)).max()
        assert model.error_ns is not None
        assert off_ns <= model.error_ns + (models[0].error_ns or 0)
        assert model.error_ns <= 20_000


def test_the_ranks_of_a_frame_jump_at_one_moment() -> None:
    """GIVEN that a jump lies anywhere in a step THEN what the ranks of a machine do there stays comparable."""
    planted, _ = job(steps=6, before=3)
    models, _ = align(planted.summaries(), planted.matched_groups())
    in_gap_ns = np.linspace(BEGIN_NS + 3 * STEP_NS, BEGIN_NS + 4 * STEP_NS, 21).astype(np.int64)
    for machine in (range(4), range(4, 8)):
        on_run_ns = [models[rank].to_run(planted.clocks[rank].shows(in_gap_ns)) for rank in machine]
        assert np.ptp(on_run_ns, axis=0).max() <= 10_000


def test_frames_are_joined_through_one_another() -> None:
    """GIVEN machines 0 to 2, and collectives of 0 with 1 and of 1 with 2 alone THEN the clock of 2 is known."""
    clocks = [Clock(), Clock(offset_ns=5 * MS), Clock(offset_ns=-3 * MS, jumps=((BEGIN_NS + 105 * MS, -JUMP_NS),))]
    planted = PlantedRanks([clocks[rank // 2] for rank in range(6)], BEGIN_NS, BEGIN_NS + 200 * MS)
    rng = np.random.default_rng(2)
    times_ns = BEGIN_NS + np.arange(1, 20) * 10 * MS
    for members in ((0, 1), (2, 3), (4, 5), (0, 2), (1, 3), (2, 4), (3, 5)):
        late_ns = rng.normal(0, 1000, (2, len(times_ns))).astype(np.int64)
        planted.collectives(members, end_ns=times_ns + 1000 * members[0], late_ns=late_ns)
    models, _ = align(planted.summaries(), planted.matched_groups())
    for model in models:
        assert np.abs(planted.off_ns(models, model.rank, times_ns)).max() <= (model.error_ns or 0) + 2000
        assert (model.error_ns or 0) <= 20_000
