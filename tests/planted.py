"""Generated GPU runs with a planted straggler. A seed chooses the rank, the delay and the jitter.

Eight ranks on two hosts are tensor parallel in pairs and data parallel over all. A step has eight layers forward and
backward, each with an all-reduce of the pair, and then a reduction of the gradients.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.simulated_gpus import GpuCluster

__all__ = ["Planted", "plant"]

Cause = Literal["none", "compute", "host", "link"]
RANKS, LAYERS = 8, 8
FORWARD_US, BACKWARD_US, PAIR_US, GRADIENTS_US = 400.0, 800.0, 100.0, 600.0
STEP_US = LAYERS * (FORWARD_US + BACKWARD_US + 2 * PAIR_US) + GRADIENTS_US


@dataclass(frozen=True)
class Planted:
    """What was planted in a run: `rank` is slower by `delay_us` a step. For a slow link it is one rank of the pair."""

    cause: Cause
    rank: int
    delay_us: float
    jitter: float
    folder: Path

    @property
    def delay_share(self) -> float:
        """Return the delay divided by the duration of a step without it."""
        return self.delay_us / STEP_US


def plant(
    folder: Path, cause: Cause, seed: int, *, steps: int = 8, labels: Sequence[int] = (), measured: bool = False
) -> Planted:
    """Write a run with a planted delay of 5 to 30 % of the step. Every duration varies by up to 5 %.

    `labels` are rank numbers to write the eight ranks with; `Planted.rank` is an index into them. With `measured` the
    traces hold clock samples that say that the clocks agree.
    """
    rng = random.Random(seed)
    rank, jitter = rng.randrange(RANKS), rng.uniform(0.0, 0.05)
    delay_us = rng.uniform(0.05, 0.30) * STEP_US
    cluster = GpuCluster(RANKS, seed=seed, labels=labels)
    pairs = [(first, first + 1) for first in range(0, RANKS, 2)]

    def jittered(usual_us: float) -> float:
        return usual_us * rng.uniform(1 - jitter, 1 + jitter)

    for _ in cluster.steps(steps):
        for layer_us in [FORWARD_US] * LAYERS + [BACKWARD_US] * LAYERS:
            longer_us = delay_us / (2 * LAYERS)
            for pair in pairs:
                for member in pair:
                    if cause == "host" and member == rank:
                        cluster.hold_up(rank, longer_us)
                    slow = cause == "compute" and member == rank
                    cluster.compute(member, jittered(layer_us) + longer_us * slow)
                cluster.collective(pair, jittered(PAIR_US) + longer_us * (cause == "link" and rank in pair))
        cluster.collective(range(RANKS), jittered(GRADIENTS_US), elements=1 << 24)
    return Planted(cause, rank, delay_us, jitter, cluster.write(folder, measured=measured))
