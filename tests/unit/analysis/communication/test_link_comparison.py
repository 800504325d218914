"""Latency and bandwidth of idle links, from measured times."""

from __future__ import annotations

import pytest

from tracekit.analysis.communication.link_comparison import link_time
from tracekit.model.links import LinkRow


def row(size_bytes: int, time_ns: int) -> LinkRow:
    return LinkRow(
        kind="all_reduce",
        group=0,
        size_bytes=size_bytes,
        repeats=1,
        time_ns=time_ns,
        min_ns=time_ns,
        algbw_bps=size_bytes / time_ns * 1e9,
        busbw_bps=size_bytes / time_ns * 1e9,
    )


def test_planted_latency_and_bandwidth_come_back() -> None:
    rows = [row(size, 20_000 + size // 2) for size in (4096, 65_536, 1 << 20, 16 << 20)]  # 20 us, 2 GB/s

    line = link_time(rows)

    assert line is not None
    assert line.latency_ns == pytest.approx(20_000)
    assert line.bandwidth_bps == pytest.approx(2e9)
    assert line.error < 1e-9
    assert line.time_ns(8 << 20) == pytest.approx(20_000 + (4 << 20))


def test_a_negative_latency_is_zero() -> None:
    line = link_time([row(1000, 900), row(2000, 2100)])

    assert line is not None
    assert line.latency_ns == 0
    assert 0.9e9 < line.bandwidth_bps < 1.2e9


def test_no_line_without_two_sizes_or_growth() -> None:
    assert link_time([]) is None
    assert link_time([row(4096, 100), row(4096, 200)]) is None
    assert link_time([row(4096, 20_000), row(65_536, 10_000)]) is None
