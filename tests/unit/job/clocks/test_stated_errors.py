"""The stated error of clocks holds at every moment and at both ends of a recording, over many random clocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.unit.job.clocks.planted import BEGIN_NS, Clock, PlantedRanks
from tracekit.job.clocks.align import align
from tracekit.model.events import Int64

JOBS = 100


def random_job(seed: int, *, few: bool) -> tuple[PlantedRanks, Int64]:
    """Return ranks with random clocks, and the samples at which these are known.

    2 to 8 clocks are up to 10 s off, and most drift by up to 45 ppm. There are 8 to 200 collectives (1 to 7 if `few`)
    in 0.1 to 5 s. Ends spread by 0.5 to 4 us; every rank has a bias of up to half of that; 3 % are up to 0.5 ms late.
    """
    rng = np.random.default_rng(seed)
    ranks, count = int(rng.integers(2, 9)), int(rng.integers(1, 8) if few else rng.integers(8, 201))
    length_ns = int(10 ** rng.uniform(8, 9.7))
    end_ns = BEGIN_NS + np.sort(rng.integers(length_ns // 20, length_ns - length_ns // 20, count))
    clocks = [
        Clock(
            offset_ns=int(rng.integers(-(10**10), 10**10)),
            drift_ppm=float(rng.uniform(-45, 45)) * (rng.random() < 0.7),
        )
        for _ in range(ranks)
    ]
    planted = PlantedRanks(clocks, BEGIN_NS, BEGIN_NS + length_ns)
    spread_ns = rng.uniform(500, 4000)
    late_ns = rng.normal(0, spread_ns, (ranks, count)) + rng.uniform(-spread_ns / 2, spread_ns / 2, (ranks, 1))
    late_ns += (rng.random((ranks, count)) < 0.03) * rng.uniform(0, 500_000, (ranks, count))
    planted.collectives(
        range(ranks),
        end_ns=end_ns,
        late_ns=late_ns.astype(np.int64),
        took_ns=rng.integers(20_000, 200_000, (ranks, count)),
    )
    return planted, np.concatenate((end_ns, [BEGIN_NS, BEGIN_NS + length_ns]))


def outcomes(*, few: bool) -> Iterator[tuple[int, int, int]]:
    """Yield of each rank but the reference how far it is off at most, its stated error and that of the reference."""
    for seed in range(JOBS):
        planted, times_ns = random_job(seed, few=few)
        models, _ = align(planted.summaries(), planted.matched_groups())
        for model in models[1:]:
            assert model.method == "collectives"
            off_ns = int(np.abs(planted.off_ns(models, model.rank, times_ns)).max())
            yield off_ns, model.error_ns or 0, models[0].error_ns or 0


@pytest.mark.parametrize(
    ("few", "held", "held_alone"),
    [(False, 0.99, 0.97), (True, 0.98, 0.9)],
)
def test_offsets_are_within_the_stated_errors(few: bool, held: float, held_alone: float) -> None:
    """A difference between two ranks is within the sum of their errors, and mostly within that of the one alone."""
    off_ns, error_ns, of_reference_ns = np.array(list(outcomes(few=few))).T
    assert np.mean(off_ns <= error_ns + of_reference_ns) >= held
    assert np.mean(off_ns <= error_ns) >= held_alone
    if not few:
        assert np.median(error_ns) < 6000
        assert np.median(off_ns) < 2000
