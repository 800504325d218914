"""Offset and drift of a clock are recovered from planted samples."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.job.clocks.fit import fit_clock
from tracekit.model.events import Int64

BEGIN_NS = 1_790_857_026_000_000_000
SECOND_NS = 1_000_000_000


def samples(count: int, seconds: float, seed: int) -> tuple[Int64, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return BEGIN_NS + np.sort(rng.integers(0, int(seconds * SECOND_NS), count)), rng


def seen(true_ns: Int64, rng: np.random.Generator, *, offset_ns: int, drift: float, spread_ns: float) -> Int64:
    drifted = np.rint((true_ns - BEGIN_NS) * drift).astype(np.int64)
    return true_ns + offset_ns + drifted + rng.normal(0, spread_ns, len(true_ns)).astype(np.int64)


@pytest.mark.parametrize("seed", range(8))
def test_drift_is_recovered_despite_outliers(seed: int) -> None:
    """GIVEN 10 s with 200 ppm, and 5 % late samples THEN drift to 2 ppm, and the offset to the spread."""
    true_ns, rng = samples(200 + 100 * seed, 10, seed)
    drift, offset_ns = (-200e-6, 200e-6)[seed % 2], -3 * SECOND_NS
    rank_ns = seen(true_ns, rng, offset_ns=offset_ns, drift=drift, spread_ns=5000)
    late = rng.random(len(rank_ns)) < 0.05
    rank_ns[late] += rng.integers(0, 50_000_000, int(late.sum()))

    fit = fit_clock(rank_ns, true_ns)

    assert fit.drift is not None
    assert fit.drift * 1e6 == pytest.approx(drift * 1e6, abs=2)
    truth_ns = offset_ns + drift * (fit.at_ns - offset_ns - BEGIN_NS)
    assert fit.offset_ns == pytest.approx(truth_ns, abs=5000 * 2)


def test_samples_close_together_determine_no_drift() -> None:
    true_ns, rng = samples(8, 0.02, 1)
    fit = fit_clock(seen(true_ns, rng, offset_ns=77, drift=0, spread_ns=2000), true_ns)
    assert fit.drift is None
    assert fit.offset_ns == pytest.approx(77, abs=3000)


def test_a_clock_at_rest_has_no_drift() -> None:
    true_ns, rng = samples(500, 10, 2)
    assert fit_clock(seen(true_ns, rng, offset_ns=0, drift=0, spread_ns=5000), true_ns).drift == 0.0


def test_one_moment() -> None:
    fit = fit_clock(np.array([BEGIN_NS + 5]), np.array([BEGIN_NS]))
    assert (fit.offset_ns, fit.drift, fit.spread_ns) == (5, None, 0)


def test_nanoseconds_survive_offsets_of_years() -> None:
    true_ns, _ = samples(40, 1, 3)
    fit = fit_clock(true_ns - 1_790_000_000_123_456_789, true_ns)
    assert fit.offset_ns == -1_790_000_000_123_456_789
    assert fit.spread_ns == 0


def test_the_order_of_samples_is_free() -> None:
    true_ns, rng = samples(300, 10, 4)
    rank_ns = seen(true_ns, rng, offset_ns=12, drift=50e-6, spread_ns=1000)
    order = rng.permutation(len(rank_ns))
    assert fit_clock(rank_ns[order], true_ns[order]) == fit_clock(rank_ns, true_ns)


def test_a_drift_is_fitted_to_few_samples_if_it_is_far_above_their_noise() -> None:
    """GIVEN 100 ppm over 10 s, which is 1 ms, and 6 samples within 2 us."""
    true_ns, rng = samples(6, 10, 1)
    fit = fit_clock(seen(true_ns, rng, offset_ns=5, drift=100e-6, spread_ns=2000), true_ns)
    assert fit.drift is not None
    assert fit.drift * 1e6 == pytest.approx(100, abs=2)


def test_a_slope_that_no_clock_has_is_no_drift() -> None:
    true_ns, rng = samples(100, 0.05, 3)
    fit = fit_clock(seen(true_ns, rng, offset_ns=0, drift=2000e-6, spread_ns=500), true_ns)
    assert fit.drift is None


def test_a_rank_of_a_busy_host_that_is_late_at_first_has_no_other_rate() -> None:
    """GIVEN by how much a rank of a recorded job left later than its peers, in 147 ms, on two busy processors."""
    late_us = [1290, 2467, 2453, 1833, 1862, 580, 991, 1118, 783, 742, 1052, 1823, 1268, 2770, 1847]
    late_us += [-100, 720, -5, -66, 528, 953, 5443, 48, 23, 52, 29, 62, 16]
    other_ns = np.linspace(0, 147_000_000, len(late_us)).astype(np.int64)
    assert fit_clock(other_ns + 1000 * np.array(late_us), other_ns).drift is None
