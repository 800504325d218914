"""Times of ranks on the run's clock, and whether they can be compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.exchanges import rank
from tracekit.model.run import ClockModel, clocks_are_comparable

SECOND_NS = 1_000_000_000


def test_times_of_a_clock_that_is_ahead_and_drifts() -> None:
    """GIVEN 500 ns ahead at 1 s, and 100 ppm fast THEN 500 ns less at 1 s, and 100 us more of that a second later."""
    clock = ClockModel(rank=1, method="probe", offset_ns=500, at_ns=SECOND_NS, drift_ppm=100.0)

    actual = clock.to_run(np.array([SECOND_NS, 2 * SECOND_NS, 0]))

    assert actual.tolist() == [SECOND_NS - 500, 2 * SECOND_NS - 500 - 100_000, -500 + 100_000]


def test_clocks_that_are_known_and_that_of_a_rank_alone_are_comparable() -> None:
    far = [rank(0, host="node0"), rank(1, host="node1")]
    unknown = [ClockModel(rank=number, method="none") for number in range(2)]
    measured = [ClockModel(rank=number, method="probe") for number in range(2)]

    assert not clocks_are_comparable(far, unknown)
    assert clocks_are_comparable(far[:1], unknown[:1])
    assert clocks_are_comparable(far, measured)
    assert not clocks_are_comparable(far, [measured[0], unknown[1]])

    without_times = replace(far[1], unmeasured="no kernels")
    assert clocks_are_comparable([far[0], without_times], [measured[0], unknown[1]])
