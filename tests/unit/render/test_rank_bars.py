"""One bar a rank: its parts, and which ranks are shown of many."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.analysis.simulated import Cluster
from tracekit.analysis.report import Report, analyze
from tracekit.findings.finding import Finding
from tracekit.render.rank_bars import RankBar, bars, draw_bar, ranks_to_show


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


def test_a_bar_fills_its_line_with_its_shares() -> None:
    line = draw_bar(RankBar(rank=3, step_ns=100.0, shares=(0.5, 0.25, 0.0, 0.25)), 7, 80).plain
    assert len(line) <= 80
    assert line.count("█") == pytest.approx(2 * line.count("▒"), abs=1)
    assert line.count("▒") == pytest.approx(line.count("·"), abs=1)
    assert line.split()[-3:] == ["50%", "25%", "25%"]


def test_of_few_ranks_all_are_shown() -> None:
    assert ranks_to_show(job(3), 8) == [0, 1, 2]


def test_of_many_ranks_the_blamed_and_the_critical_are_among_those_shown() -> None:
    report = replace(job(20), findings=(Finding(id="straggler", severity="warning", text="slow", rank=7),))
    shown = ranks_to_show(report, 5)
    assert len(shown) == 5
    assert {7, 19} <= set(shown)
