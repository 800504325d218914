"""One bar a rank: its parts, and which ranks are shown of many."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.simulated import Cluster
from tracekit.api import Report, analyze
from tracekit.findings.finding import Finding
from tracekit.render.rank_bars import bars, ranks_to_show


def job(ranks: int) -> Report:
    cluster = Cluster(ranks)
    for _ in cluster.steps(2):
        for rank in range(ranks):
            cluster.work(rank, compute=600 + (100 if rank == ranks - 1 else 0), host=100)
        cluster.collective(range(ranks), transfer=200)
    return analyze(cluster.run(), only=("breakdown", "critical_path"))


def test_the_shares_are_those_of_the_mean_step() -> None:
    """GIVEN 600 ns of compute, 100 of idle time, 100 of waiting and 200 of transfer."""
    first, last = bars(job(2).run, [0, 1])
    assert first.shares == pytest.approx((0.6, 0.3, 0.0, 0.1))
    assert last.shares == pytest.approx((0.7, 0.2, 0.0, 0.1))


def test_of_many_ranks_the_blamed_and_the_critical_are_among_those_shown() -> None:
    report = replace(job(20), findings=(Finding(id="straggler", severity="warning", text="slow", rank=7),))
    shown = ranks_to_show(report, 5)
    assert len(shown) == 5
    assert {7, 19} <= set(shown)
