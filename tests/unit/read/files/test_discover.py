"""Which rank, run and window each file is: names, folders, links, jobs and attempts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.unit.read.files.run_traces import files, kinds, trace
from tracekit.errors import InputError
from tracekit.read.files.discover import discover
from tracekit.read.files.identify import rank_in_name


def without_rank(**where: float) -> TraceBuilder:
    """A trace without `distributedInfo`."""
    builder = trace(at_us=where.get("at_us", 0), pid=int(where.get("pid", 4000)))
    del builder.header["distributedInfo"]
    return builder


# ---- file names of tools -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-000003.json.gz", 3),
        ("rank3_trace.json", 3),  # torchtitan
        ("rank_12.json.gz", 12),
        ("profile_3.json", 3),  # Accelerate
        ("worker7_step_12.1694128201553.pt.trace.json.gz", 7),
        ("trace_rank-5.json", 5),
        ("Rank2.json", 2),
        ("gpu_rank_1_of_8.json", 1),
        ("host_4711.1694128201553.pt.trace.json", None),  # tensorboard_trace_handler: a host and a process
        ("crank3.json", None),
        ("frank_4.json", None),
        ("trace.json", None),
        ("rank.json", None),
        ("rank-123456789.json", None),
        ("rank_x3.json", None),
    ],
)
def test_rank_in_a_name(name: str, rank: int | None) -> None:
    assert rank_in_name(Path("rank9") / name) == rank


@pytest.mark.parametrize(
    "pattern", ["rank{}_trace.json", "profile_{}.json", "rank_{}.json.gz", "w/worker{}.pt.trace.json.gz"]
)
def test_ranks_come_from_names_if_the_files_have_none(tmp_path: Path, pattern: str) -> None:
    for rank in (0, 1, 10):
        without_rank(pid=rank + 1).write(tmp_path / "iteration_10" / pattern.format(rank))
    found = discover([str(tmp_path)])
    assert files(found) == {rank: [Path(pattern.format(rank)).name] for rank in (0, 1, 10)}
    assert found.notes == ()
    assert found.others == ()


def test_the_rank_in_a_file_counts_more_than_its_name(tmp_path: Path) -> None:
    """GIVEN misleading names WHEN discovered THEN only `distributedInfo.rank` counts."""
    for rank, name in [(0, "rank7.json"), (1, "rank0_of_8.json"), (2, "host_1.2.pt.trace.json"), (3, "rank1.json")]:
        trace(rank, 4).write(tmp_path / name, "compact")
    found = discover([str(tmp_path)])
    assert files(found) == {0: ["rank7.json"], 1: ["rank0_of_8.json"], 2: ["host_1.2.pt.trace.json"], 3: ["rank1.json"]}
    assert found.chosen.world_size == 4


def test_files_without_ranks_get_different_ranks(tmp_path: Path) -> None:
    """GIVEN processes without ranks WHEN discovered THEN each gets one, in order of name, with one note."""
    for pid, name in [(7, "b_7.1.pt.trace.json"), (5, "a_5.1.pt.trace.json"), (6, "a_6.1.pt.trace.json")]:
        without_rank(pid=pid).write(tmp_path / name)
    found = discover([str(tmp_path)])
    assert files(found) == {0: ["a_5.1.pt.trace.json"], 1: ["a_6.1.pt.trace.json"], 2: ["b_7.1.pt.trace.json"]}
    assert kinds(found) == ["no-rank"]


def test_windows_of_one_process_without_a_rank(tmp_path: Path) -> None:
    """GIVEN two files of tensorboard_trace_handler for one process WHEN discovered THEN they are one rank."""
    for i in (2, 1):
        without_rank(at_us=i * 1_000_000).write(tmp_path / f"node0_4000.{i}.pt.trace.json")
    found = discover([str(tmp_path)])
    assert files(found) == {0: ["node0_4000.1.pt.trace.json", "node0_4000.2.pt.trace.json"]}
    assert found.others == ()


def test_a_rank_without_distributed_info_joins_the_others(tmp_path: Path) -> None:
    trace(0, 3).write(tmp_path / "rank0.json")
    without_rank(pid=4001, at_us=5).write(tmp_path / "rank1.json")
    trace(2, 3).write(tmp_path / "rank2.json", tail=True)
    found = discover([str(tmp_path)])
    assert files(found) == {rank: [f"rank{rank}.json"] for rank in range(3)}
    assert found.chosen.world_size == 3
    assert found.others == ()


# ---- links and globs -----------------------------------------------------------------------------------------------


def test_links_to_the_same_file_count_once(tmp_path: Path) -> None:
    path = trace().write(tmp_path / "a" / "rank0.json")
    (tmp_path / "a" / "rank1.json").symlink_to(path)
    os.link(path, tmp_path / "a" / "rank2.json")
    (tmp_path / "b").symlink_to(tmp_path / "a", target_is_directory=True)
    found = discover([str(tmp_path), str(tmp_path / "a"), str(path), str(tmp_path / "b")])
    assert files(found) == {0: ["rank0.json"]}
    assert [(note.id, note.rank, note.file) for note in found.notes] == [
        ("ignored-file", 1, "rank1.json"),
        ("ignored-file", 2, "rank2.json"),
    ]


def test_globs_files_and_folders_may_be_mixed(tmp_path: Path) -> None:
    for rank in range(4):
        trace(rank, 4).write(tmp_path / f"node{rank // 2}" / f"rank{rank}.json")
    found = discover(
        [str(tmp_path / "node0" / "*1.json"), str(tmp_path / "node1"), str(tmp_path / "node0" / "rank0.json")]
    )
    assert sorted(files(found)) == [0, 1, 2, 3]
    assert sorted(files(discover([str(tmp_path / "**" / "*.json")]))) == [0, 1, 2, 3]


def test_a_name_with_the_characters_of_a_glob_is_a_name(tmp_path: Path) -> None:
    path = trace().write(tmp_path / "run[1]" / "rank0.json")
    assert files(discover([str(path)])) == files(discover([str(path.parent)])) == {0: ["rank0.json"]}


# ---- windows, jobs, duplicates -------------------------------------------------------------------------------------


def test_several_windows_of_a_process_are_one_rank(tmp_path: Path) -> None:
    for rank in (0, 1):
        for i in (3, 1, 2):
            trace(rank, at_us=i * 1e6).write(tmp_path / f"node0_{4000 + rank}.{i}.pt.trace.json")
    found = discover([str(tmp_path)])
    assert files(found) == {rank: [f"node0_{4000 + rank}.{i}.pt.trace.json" for i in (1, 2, 3)] for rank in (0, 1)}
    assert found.others == ()


def test_two_jobs_in_a_folder_are_never_mixed(tmp_path: Path) -> None:
    """GIVEN a second job with the same ranks in other processes WHEN discovered THEN the newest is chosen."""
    for job, minutes in (("old", 0), ("new", 10)):
        for rank in (0, 1):
            trace(rank, at_us=minutes * 6e7 + rank, pid=(100 if job == "old" else 200) + rank).write(
                tmp_path / f"{job}{rank}.json"
            )
    found = discover([str(tmp_path)])
    assert files(found) == {0: ["new0.json"], 1: ["new1.json"]}
    (other,) = found.others
    assert {rank: [w.path.name for w in windows] for rank, windows in other.ranks.items()} == {
        0: ["old0.json"],
        1: ["old1.json"],
    }
    assert other.run_id is not None
    assert files(discover([str(tmp_path)], run=other.run_id)) == {0: ["old0.json"], 1: ["old1.json"]}


def test_a_copy_of_a_file_is_not_another_job(tmp_path: Path) -> None:
    for rank in (0, 1):
        trace(rank, at_us=rank).write(tmp_path / f"rank{rank}.json")
    shutil.copy(tmp_path / "rank0.json", tmp_path / "copy of rank0.json")
    os.utime(tmp_path / "copy of rank0.json", (0, 0))
    found = discover([str(tmp_path)])
    assert files(found) == {0: ["rank0.json"], 1: ["rank1.json"]}
    assert found.others == ()
    assert kinds(found) == ["duplicate-rank"]


def test_other_world_sizes_are_other_jobs(tmp_path: Path) -> None:
    trace(0, 2, at_us=5).write(tmp_path / "a.json")
    trace(1, 2, at_us=5).write(tmp_path / "b.json")
    trace(2, 4, at_us=0).write(tmp_path / "c.json")
    found = discover([str(tmp_path)])
    assert files(found) == {0: ["a.json"], 1: ["b.json"]}
    assert [list(other.ranks) for other in found.others] == [[2]]


def test_a_path_that_cannot_be_looked_at_is_an_input_error() -> None:
    """GIVEN a name that is too long for the file system, as for a folder that may not be entered."""
    with pytest.raises(InputError, match=r"^a{300}: File name too long"):
        discover(["a" * 300])
