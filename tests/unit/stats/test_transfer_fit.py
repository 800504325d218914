"""Latency and bandwidth are recovered from planted transfers, with their error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tracekit.stats.transfer_fit import BusyPeriods, TransferFit, busy_periods_of, fit_transfers

LATENCY_NS, NS_PER_BYTE = 500_000, 2.0


def fitted(sizes: Sequence[int], slow: Sequence[int] = (), in_flight: int = 2) -> TransferFit:
    """Return the fit of transfers one after the other, with pauses; those in `slow` take 10 ms longer."""
    begin_ns = np.arange(len(sizes), dtype=np.int64) * 100_000_000
    durations_ns = np.array([LATENCY_NS + int(NS_PER_BYTE * size) for size in sizes], dtype=np.int64)
    durations_ns[list(slow)] += 10_000_000
    busy_periods = busy_periods_of(begin_ns, begin_ns + durations_ns, np.array(sizes, dtype=np.int64), in_flight)
    assert busy_periods is not None
    return fit_transfers(busy_periods)


def test_two_sizes_determine_latency_and_bandwidth() -> None:
    fit = fitted([1_000_000, 8_000_000] * 5)
    assert fit.latency_ns == pytest.approx(LATENCY_NS, rel=1e-6)
    assert fit.ns_per_byte == pytest.approx(NS_PER_BYTE, rel=1e-6)
    assert fit.latency_error_ns < 0.3 * LATENCY_NS


def test_a_few_slow_transfers_change_nothing() -> None:
    fit = fitted([1_000_000, 8_000_000] * 5, slow=(0, 3))
    assert fit.latency_ns == pytest.approx(LATENCY_NS, rel=1e-6)


def test_one_size_determines_only_its_own_time() -> None:
    fit = fitted([4_000_000] * 10)
    durations_ns = LATENCY_NS + NS_PER_BYTE * 4_000_000
    assert fit.latency_ns + fit.ns_per_byte * 4_000_000 == pytest.approx(durations_ns)
    assert (fit.latency_ns, fit.latency_ns + fit.latency_error_ns) == pytest.approx((0, durations_ns))


def test_another_latency_keeps_the_time_of_a_typical_busy_period() -> None:
    fit = fitted([4_000_000] * 10)
    changed = fit.with_latency(0.0)
    assert changed.ns_per_byte * 4_000_000 == pytest.approx(fit.latency_ns + fit.ns_per_byte * 4_000_000)


def test_concurrent_transfers_share_the_bandwidth_and_one_latency() -> None:
    begin_ns = np.array([0, 100, 50_000_000, 100_000_000], dtype=np.int64)
    sizes = np.array([1_000_000, 3_000_000, 1_000_000, 6_000_000], dtype=np.int64)
    both_ns = LATENCY_NS + int(NS_PER_BYTE * 4_000_000)
    end_ns = np.array([both_ns - 5, both_ns, 50_000_000 + 2_500_000, 100_000_000 + 12_500_000], dtype=np.int64)
    begin_ns, end_ns = (np.concatenate([times + k * 10**9 for k in range(3)]) for times in (begin_ns, end_ns))
    busy_periods = busy_periods_of(begin_ns, end_ns, np.tile(sizes, 3), 2)
    assert busy_periods is not None
    assert (busy_periods.transfers.tolist(), busy_periods.waves.tolist()) == ([2, 1, 1] * 3, [1, 1, 1] * 3)
    assert busy_periods.size_bytes.tolist() == [4_000_000, 1_000_000, 6_000_000] * 3
    assert fit_transfers(busy_periods).ns_per_byte == pytest.approx(NS_PER_BYTE, rel=0.01)


def test_without_transfers_there_is_nothing_to_fit() -> None:
    moment = np.array([5], dtype=np.int64)
    assert busy_periods_of(moment, moment, moment, 1) is None


def test_waves_proportional_to_bytes_determine_no_latency() -> None:
    """GIVEN single buckets, and pairs of buckets without a pause, with twice the bytes in twice the waves."""
    waves = np.array([1, 2] * 5, dtype=np.int64)
    begin_ns = np.arange(10, dtype=np.int64) * 10**9
    busy_periods = BusyPeriods(
        begin_ns=begin_ns,
        end_ns=begin_ns + 100_000_000 * waves + 4 * (waves > 1),
        transfers=waves,
        waves=waves,
        size_bytes=100_000_000 * waves + 4 * (waves > 1),
        copying_ns=np.zeros(10),
        quickest_ns=100_000_000.0,
    )
    fit = fit_transfers(busy_periods)
    assert (fit.latency_ns, fit.ns_per_byte) == pytest.approx((0.0, 1.0), abs=1e-6)
    assert np.isfinite([fit.latency_error_ns, fit.error_ratio]).all()
