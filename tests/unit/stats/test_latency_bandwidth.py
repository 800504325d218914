"""Latency and bandwidth: as they were planted, and how sure that is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tracekit.stats.transfer_fit import fit_latency_bandwidth

LATENCY_NS, NS_PER_BYTE = 20_000.0, 0.5


def test_planted_latency_and_bandwidth_come_back() -> None:
    size_bytes, latencies = np.array([1e3, 1e5, 1e6, 2e6]), np.array([1, 2, 1, 3])

    fit = fit_latency_bandwidth(size_bytes, latencies * LATENCY_NS + size_bytes * NS_PER_BYTE, latencies=latencies)

    assert (fit.latency_ns, fit.ns_per_byte) == pytest.approx((LATENCY_NS, NS_PER_BYTE))
    assert fit.misfit == pytest.approx(0, abs=1e-9)


def test_the_latency_is_off_by_about_its_standard_error() -> None:
    """GIVEN times with a noise of 1 us. THEN latencies of many fits scatter by what each of them says."""
    rng = np.random.default_rng(7)
    size_bytes = np.array([1e3, 2e4, 1e5, 2e5])
    fits = [
        fit_latency_bandwidth(
            size_bytes, LATENCY_NS + size_bytes * NS_PER_BYTE + rng.normal(0, 1000, 4), error_ns=1000.0
        )
        for _ in range(2000)
    ]

    assert np.std([fit.latency_ns for fit in fits]) == pytest.approx(fits[0].latency_error_ns, rel=0.05)
    assert np.mean([fit.misfit for fit in fits]) == pytest.approx(1, rel=0.05)


def test_one_size_tells_no_latency() -> None:
    assert fit_latency_bandwidth([4096.0, 4096.0], [100.0, 200.0]).latency_error_ns == math.inf
