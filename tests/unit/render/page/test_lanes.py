"""What a few ranks did in the typical and in the worst step."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.simulated import Cluster
from tests.unit.render.page.jobs import SLOW_RANK, job, made_up_lanes
from tracekit.api import analyze
from tracekit.model.run import Run
from tracekit.render.page.chart_contract import LaneView
from tracekit.render.page.lanes import MOST_RANKS, lane_views
from tracekit.report.step_lanes import StepLanes, StepTime


def views_of(run: Run, *, bins: int = 10) -> list[LaneView]:
    return lane_views(
        analyze(run, only=("breakdown", "stragglers", "critical_path")), made_up_lanes, bins=bins, operations=4
    )


def test_the_step_of_median_length_and_the_longest_one() -> None:
    """GIVEN five steps of which each is longer than the one before THEN they are the third and the last."""
    assert [(view["kind"], view["step"]) for view in views_of(job(8, steps=5))] == [("typical", 2), ("worst", 4)]


def test_of_many_ranks_those_that_matter_are_shown() -> None:
    """GIVEN 64 ranks THEN 16 of them are shown: the one to blame, another that is the median, and the lowest."""
    shown = {rank["rank"]: rank["reason"] for rank in views_of(job(64))[0]["ranks"]}

    assert len(shown) == MOST_RANKS
    assert shown[SLOW_RANK] == "blamed"
    assert "median" in shown.values()
    assert shown[0] == "lowest"


def test_times_are_since_the_start_of_the_view_on_one_clock() -> None:
    """GIVEN a rank whose clock is 1 s ahead THEN its window begins at the same time as those of the others."""
    cluster = Cluster(2, offsets=[0, 10**9])
    for _ in cluster.steps(3):
        for rank in (0, 1):
            cluster.work(rank, compute=1_000)
        cluster.collective((0, 1), transfer=100)
    (view, *_) = views_of(cluster.run())

    assert [(rank["start_ns"], rank["end_ns"]) for rank in view["ranks"]] == [(0, 1_100), (0, 1_100)]
    assert view["length_ns"] == 1_100


def test_waits_name_the_rank_that_was_waited_for() -> None:
    """GIVEN a rank that comes 500 us late to its neighbour THEN the neighbour waits so long for it."""
    (view, *_) = views_of(job(8))
    waits = {rank["rank"]: rank["waits"] for rank in view["ranks"]}

    (start_ns, end_ns, blamed), *_ = waits[4]
    assert start_ns is not None
    assert end_ns is not None
    assert (end_ns - start_ns, blamed) == (500_010, SLOW_RANK)


def test_a_bin_that_is_covered_at_all_shows_it() -> None:
    """GIVEN bins of which half, a thousandth and nothing is covered THEN they show 50, 1 and 0 per cent, and only their
    lane is there.
    """

    def read(run: Run, times: Sequence[StepTime], most: int) -> list[StepLanes]:
        lanes = made_up_lanes(run, times, most)
        for each in lanes:
            each.covered[0, 1] = 0.001
        return lanes

    report = analyze(job(2), only=("breakdown", "stragglers"))
    (view, *_) = lane_views(report, read, bins=3, operations=2)

    assert view["ranks"][0]["covered"] == [[50, 1, 0]]
    assert view["lanes"] == ["compute"]
    spans = view["ranks"][0]["spans"]
    assert [view["names"][name] for name in spans["name"]] == ["operation 0", "operation 1"]
    assert (spans["start_ns"], spans["end_ns"], spans["lane"]) == ([0, 1_000], [900, 1_900], [0, 0])
    assert [view["names"][name] for _, _, name in view["ranks"][0]["phases"]] == ["forward", "backward"]
