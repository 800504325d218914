"""The picture of one step: who is drawn, what each did when, and who waited for whom. Times are nanoseconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gpu_jobs import simulate
from benchmarks.simulated import Cluster
from benchmarks.studies.gpu_jobs.cases import GROUPS, Case
from tracekit.api import Report, analyze
from tracekit.render.picture import begins_text
from tracekit.report.shown_ranks import ranks_to_show
from tracekit.report.step_picture import PARTS, PictureRow, step_picture
from tracekit.stats.grouped import summed

MS = 1_000_000


def job(ranks: int, slow: int, *, steps: int = 5) -> Report:
    """Ranks that compute for 1 ms, but one for 2 ms, and meet in an all-reduce of 0.1 ms."""
    cluster = Cluster(ranks)
    for _ in cluster.steps(steps):
        for rank in range(ranks):
            cluster.work(rank, compute=MS * (1 + (rank == slow)))
        cluster.collective(range(ranks), transfer=MS // 10)
    return analyze(cluster.run())


def times_ms(row: PictureRow) -> dict[str, float]:
    return {
        part: time_ns / MS
        for part, time_ns in summed((PARTS[part], end_ns - start_ns) for start_ns, end_ns, part in row.segments).items()
    }


def test_the_last_rank_is_on_top_and_the_others_wait_for_it() -> None:
    picture = step_picture(job(4, slow=2), 8)
    assert picture is not None
    assert [row.rank for row in picture.rows] == [2, 0, 1, 3]
    assert times_ms(picture.rows[0]) == pytest.approx({"compute": 2.0, "transfer": 0.1}, abs=0.01)
    assert times_ms(picture.rows[1]) == pytest.approx({"compute": 1.0, "waiting": 1.0, "transfer": 0.1}, abs=0.01)
    assert picture.arrow is not None
    assert (picture.arrow.late_rank, picture.arrow.kind) == (2, "all_reduce")
    assert picture.arrow.wait_ns == MS


def test_a_rank_that_is_late_in_some_steps_is_shown_in_one_of_them() -> None:
    """GIVEN rank 2, which computes for 2 ms in steps 7 to 10, and for 1 ms before, as the others do."""
    cluster = Cluster(4)
    for step in cluster.steps(11):
        for rank in range(4):
            cluster.work(rank, compute=MS * (1 + (rank == 2 and step >= 7)))
        cluster.collective(range(4), transfer=MS // 10)
    report = analyze(cluster.run())
    picture = step_picture(report, 8)

    assert (report.findings[0].id, report.findings[0].rank) == ("late-in-some-steps", 2)
    assert picture is not None
    assert picture.step in report.findings[0].evidence["late_steps"]
    assert picture.arrow is not None
    assert picture.arrow.late_rank == 2


def test_ranks_that_look_the_same_are_one_row() -> None:
    """GIVEN 1,023 ranks that wait for one THEN it and few others are drawn, and all of them are counted."""
    report = job(1024, slow=700, steps=2)
    picture = step_picture(report, 6)
    assert picture is not None
    assert picture.rows[0].rank == 700
    assert len(picture.rows) <= 6
    assert sum(1 + row.alike for row in picture.rows) == 1024


def test_without_one_clock_each_row_begins_with_its_own_step() -> None:
    """GIVEN a rank whose clock is not known THEN nobody is said to wait."""
    report = job(2, slow=1)
    unknown = replace(report.run.clocks[1], method="none", error_ns=None)
    picture = step_picture(replace(report, run=replace(report.run, clocks=(report.run.clocks[0], unknown))), 8)
    assert picture is not None
    assert (picture.is_aligned, picture.arrow) == (False, None)
    assert {row.start_ns for row in picture.rows} == {0}
    assert "waiting" not in times_ms(picture.rows[1])


def test_ranks_that_begin_apart_are_why_a_picture_is_longer_than_a_step() -> None:
    picture = step_picture(job(2, slow=1), 8)
    assert picture is not None
    assert begins_text(picture) == ""
    first, second = picture.rows
    later = replace(second, segments=tuple((start + MS, end + MS, part) for start, end, part in second.segments))
    assert " 1.0 ms " in begins_text(replace(picture, rows=(first, later)))


@pytest.mark.parametrize("group", GROUPS)
def test_whoever_the_first_finding_blames_is_drawn_and_no_time_is_missing(group: str) -> None:
    report = simulate(Case(group, 3).spec()).report()
    picture = step_picture(report, 4)
    if picture is None:  # no step that all ranks completed
        assert report.run.step_lengths_ns == {}
        return
    drawn = [row.rank for row in picture.rows]
    blamed = [rank for finding in report.findings for rank in finding.concerned][:1]
    assert set(blamed) <= set(drawn)
    for row in picture.rows:
        assert all(first[1] == second[0] for first, second in zip(row.segments, row.segments[1:], strict=False))
        assert row.end_ns - row.start_ns == row.step.step_ns
    if picture.arrow is not None:
        assert {picture.arrow.waiting_rank, picture.arrow.late_rank} <= set(drawn)


def test_of_many_ranks_the_blamed_and_who_waits_for_it_are_shown() -> None:
    report = job(20, slow=7)
    waits = report.findings[0].evidence["longest_wait"]
    assert {7, waits["rank"]} <= set(ranks_to_show(report, 5))
