"""Process groups as records."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tracekit.capture.job.groups import GroupTable, backend_name, compact_ranks, gloo_threads
from tracekit.model.metadata import RankSlice


def test_ranks_are_written_in_the_shortest_form() -> None:
    assert compact_ranks(range(8), 8) == "world"
    assert compact_ranks([1, 5, 9, 13], 16) == RankSlice(slice=(1, 14, 4))
    assert compact_ranks([0, 1, 2, 4], 16) == [0, 1, 2, 4]
    assert compact_ranks([3, 7], 8) == [3, 7]


def table(*names_and_descriptions: tuple[str, str]) -> tuple[GroupTable, list[object]]:
    groups, handles = GroupTable(), []
    for name, desc in names_and_descriptions:
        handles.append(object())
        groups._add(handles[-1], name, desc, "gloo", "world")
    return groups, handles


def test_torchs_world_is_listed_by_rank_if_the_job_is_larger() -> None:
    groups, _ = table(("0", "default_pg"))
    groups.world_size = 2

    groups.extend_to_job(2)
    assert groups.groups[0].ranks == "world"
    groups.extend_to_job(3)
    assert groups.groups[0].ranks == [0, 1]


def test_the_name_of_a_mesh_dimension_sets_the_parallelism_of_its_group() -> None:
    groups, handles = table(("0", "default_pg"), ("1", "mesh_tp"), ("2", "mesh_dp_shard"), ("3", "mesh_banana"))

    groups.set_parallelism(handles[0], "dp")
    groups.set_parallelism(handles[1], "dp")

    assert [group.parallelism for group in groups.groups] == ["dp", "tp", "dp", None]


def test_groups_of_the_same_description_and_ranks_are_numbered() -> None:
    groups, handles = table(("0", "default_pg"), ("1", "mesh_tp"), ("2", "mesh_tp"), ("3", "mesh_tp"))

    assert [group.desc for group in groups.groups] == ["default_pg", "mesh_tp", "mesh_tp#2", "mesh_tp#3"]
    assert [group.parallelism for group in groups.groups] == [None, "tp", "tp", "tp"]
    assert groups.id_of(handles[2]) == 2
    assert groups.id_of(SimpleNamespace(group_name="3")) == 3  # another wrapper of the same group


@pytest.mark.parametrize(
    ("config", "named", "backend"),
    [
        ("cuda:nccl", "nccl", "nccl"),
        ("cpu:gloo,cuda:gloo,hpu:gloo,xpu:gloo", "gloo", "gloo"),
        ("cpu:gloo,cuda:nccl", "undefined", "cpu:gloo,cuda:nccl"),  # the program left the choice to torch
        ("", "mpi", "mpi"),
    ],
)
def test_the_backend_of_a_group_is_what_torch_runs_and_not_what_the_program_left_open(
    config: str, named: str, backend: str
) -> None:
    assert backend_name(config, named) == backend


def write_task(tasks: Path, thread: int, name: str, start_ticks: int) -> None:
    """Write what Linux shows of a thread (proc(5)): field 22 of `stat` is its start time."""
    (tasks / str(thread)).mkdir(parents=True)
    (tasks / str(thread) / "comm").write_text(f"{name}\n")
    fields = ["S", *["0"] * 18, str(start_ticks), *["0"] * 30]
    (tasks / str(thread) / "stat").write_text(f"{thread} ({name}) {' '.join(fields)}\n")


def test_threads_of_gloo_are_in_order_of_creation_where_ids_start_again(tmp_path: Path) -> None:
    """GIVEN ids of 32766 and 32767, and then of 301 and 302, as the kernel gives after its largest one."""
    for start_ticks, thread in enumerate((32766, 32767, 301, 302), start=100):
        write_task(tmp_path, thread, "pt_gloo_runloop", start_ticks)
    write_task(tmp_path, 32765, "python) 3", 99)
    (tmp_path / "303").mkdir()  # it has just ended
    assert gloo_threads(tmp_path) == [32766, 32767, 301, 302]


def test_without_proc_no_threads_are_known(tmp_path: Path) -> None:
    assert gloo_threads(tmp_path / "none") == []
