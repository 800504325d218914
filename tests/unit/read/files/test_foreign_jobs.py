"""Jobs of other tools: never two jobs in one run, never one job in two."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.read.files.run_traces import DAY, MINUTE, SECOND, files, runs, trace
from tracekit.read.files.discover import discover

# ---- two jobs ------------------------------------------------------------------------------------------------------


def test_ranks_of_different_days_are_different_jobs(tmp_path: Path) -> None:
    trace(1, at_us=0).write(tmp_path / "rank1.json")
    trace(0, at_us=3 * DAY).write(tmp_path / "rank0.json")
    assert runs(discover([str(tmp_path)])) == [{0: 1}, {1: 1}]


def test_the_same_process_id_days_later_is_another_job(tmp_path: Path) -> None:
    """GIVEN two jobs in containers, with the same process ids WHEN discovered THEN they are two runs."""
    for day in (0, 3):
        for rank in (0, 1):
            trace(rank, at_us=day * DAY + rank).write(tmp_path / f"host_{rank}.{day}.pt.trace.json")
    assert runs(discover([str(tmp_path)])) == [{0: 1, 1: 1}, {0: 1, 1: 1}]


def test_folders_separate_jobs_that_ran_at_the_same_time(tmp_path: Path) -> None:
    for at_us, job, rank in [(0, "a", 0), (1, "b", 1), (2, "a", 1), (3, "b", 0)]:
        trace(rank, at_us=at_us * SECOND, pid=at_us + 1).write(tmp_path / job / f"rank{rank}.json")
    found = discover([str(tmp_path)])
    for run in (found.chosen, *found.others):
        assert len({w.path.parent for windows in run.ranks.values() for w in windows}) == 1
        assert sorted(run.ranks) == [0, 1]


def test_public_traces_are_not_mixed(real_traces: Path) -> None:
    found = discover([str(real_traces)])
    places = [
        {str(w.path if w.path.parent.name == "single_rank" else w.path.parent) for ws in r.ranks.values() for w in ws}
        for r in (found.chosen, *found.others)
    ]
    assert {1} == {len(of_run) for of_run in places}
    assert len(set().union(*places)) == len(places)
    names = {Path(place).name for place in set().union(*places)}
    assert names >= {"a100_ddp_rank0_of_2.json.gz", "dlrm_8xV100", "gloo_rank34_of_300", "two_of_128"}


@pytest.mark.parametrize("left", [[3], [0, 5], [1, 2, 6]])
def test_ranks_of_a_restarted_job_join_the_attempt_that_they_began_with(tmp_path: Path, left: list[int]) -> None:
    """GIVEN what a few ranks left of a first attempt, a minute before all ranks of the second one."""
    for rank in left:
        trace(rank, 8, at_us=rank, pid=100 + rank).write(tmp_path / f"first{rank}.json")
    for rank in range(8):
        trace(rank, 8, at_us=MINUTE + 10 * SECOND * (rank % 2), pid=200 + rank).write(tmp_path / f"second{rank}.json")
    found = discover([str(tmp_path)])
    assert runs(found) == [dict.fromkeys(range(8), 1), dict.fromkeys(left, 1)]
    assert files(found) == {rank: [f"second{rank}.json"] for rank in range(8)}


def test_what_a_later_attempt_left_does_not_replace_the_job(tmp_path: Path) -> None:
    """GIVEN 8 ranks, a file of a new attempt a minute later, and one of the next day THEN only that is a newer job."""
    for rank in range(8):
        trace(rank, 8, pid=100 + rank).write(tmp_path / f"job{rank}.json")
    trace(2, 8, at_us=MINUTE, pid=202).write(tmp_path / "attempt.json")
    assert runs(discover([str(tmp_path)])) == [dict.fromkeys(range(8), 1), {2: 1}]
    trace(2, 8, at_us=DAY, pid=302).write(tmp_path / "tomorrow.json")
    assert files(discover([str(tmp_path)])) == {2: ["tomorrow.json"]}


@pytest.mark.parametrize("skew_us", [0, 1, 1000])
@pytest.mark.parametrize("apart_us", [-500, -1, 0, 1, 500])
@pytest.mark.parametrize("name", ["another.json", "z.json", "rank5_of_8.json"])
def test_a_process_that_began_with_another_of_its_rank_is_no_restart(
    tmp_path: Path, skew_us: int, apart_us: int, name: str
) -> None:
    """GIVEN 8 ranks that began at nearly one time, and then a second process of rank 3, which has two windows."""
    for rank in range(8):
        trace(rank, 8, at_us=skew_us * rank, pid=100 + rank).write(tmp_path / f"rank{rank}.json")
    for window, at_us in enumerate((0, MINUTE)):
        odd = trace(3, 8, at_us=3 * skew_us + apart_us + at_us, pid=99)
        odd.write(tmp_path / (name if window == 0 else f"later_{name}"))
    found = discover([str(tmp_path)])
    assert files(found) == {rank: [f"rank{rank}.json"] for rank in range(8)}
    assert runs(found)[1:] == [{3: 2}]


@pytest.mark.parametrize("days", [-400, -1, 0.4, 1, 400])
@pytest.mark.parametrize("folder", ["", "node{}"])
def test_a_rank_whose_clock_is_days_off_is_no_newer_job(tmp_path: Path, days: float, folder: str) -> None:
    """GIVEN a job that lacks ranks 3 and 7, and these ranks at other times THEN the job is taken."""
    for rank in range(8):
        at_us = {3: days, 7: 1.5 * days}.get(rank, 0) * DAY
        trace(rank, 8, at_us=at_us).write(tmp_path / folder.format(rank) / f"rank{rank}.json")
    assert sorted(discover([str(tmp_path)]).chosen.ranks) == [0, 1, 2, 4, 5, 6]


@pytest.mark.parametrize(("rank", "expected"), [(6, [0, 1, 2, 3]), (9, [9])])
def test_a_rank_beyond_the_world_of_the_older_jobs_is_a_newer_job(
    tmp_path: Path, rank: int, expected: list[int]
) -> None:
    """GIVEN four ranks of a world of four and of one of eight, and later one rank of a world of unknown size."""
    for world_size in (4, 8):
        for other in range(4):
            trace(other, world_size).write(tmp_path / f"of{world_size}" / f"rank{other}.json")
    odd = trace(rank, at_us=DAY)
    del odd.header["distributedInfo"]["world_size"]
    odd.write(tmp_path / "odd" / f"rank{rank}.json")
    assert sorted(discover([str(tmp_path)]).chosen.ranks) == expected


# ---- one job -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("apart_us", [10 * SECOND, 4 * MINUTE])
@pytest.mark.parametrize("folder", ["", "node{}"])
def test_skewed_clocks_and_late_starts_are_one_job(tmp_path: Path, apart_us: float, folder: str) -> None:
    for rank in range(3):
        trace(rank, 3, at_us=(2 - rank) * apart_us).write(tmp_path / folder.format(rank) / f"rank{rank}.json")
    assert runs(discover([str(tmp_path)])) == [{0: 1, 1: 1, 2: 1}]


def test_windows_whose_start_is_unknown_are_all_kept(tmp_path: Path) -> None:
    for i in (1, 2):
        builder = trace()
        builder.events[0]["ts"] = None
        builder.write(tmp_path / f"node0_4000.{i}.pt.trace.json")
    assert runs(discover([str(tmp_path)])) == [{0: 2}]
