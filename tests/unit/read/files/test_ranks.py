"""Which rank a file is of that does not name it: by its groups, by names, by nodes, and which files are of none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.unit.read.files.run_traces import DAY, MINUTE, SECOND, kinds
from tracekit.errors import InputError, UsageError
from tracekit.read.files import inflate
from tracekit.read.files.discover import Discovery, discover

WORLD_OF_4 = [[0, 1, 2, 3]]


def on_demand(*groups: list[int], at_us: float = 0, pid: int = 4000, device: bool = True, **args: Any) -> TraceBuilder:
    """A trace without `distributedInfo`, with a collective in each group."""
    builder = TraceBuilder()
    del builder.header["distributedInfo"]
    builder.pid = builder.main = pid
    builder.op("op", at_us, 1)
    if device:
        builder.kernel("k", at_us, 1)
    for group in groups:
        builder.nccl("all_reduce", at_us + 2, 1, group=group, description=str(group), **args)
    return builder


def ranks(found: Discovery) -> dict[str, int]:
    """Return the rank of each file of the chosen run, by the end of its path."""
    return {"/".join(file.path.parts[-2:]): rank for rank, files in found.chosen.ranks.items() for file in files}


def write(folder: Path, names: list[str], *groups: list[int]) -> dict[str, int]:
    """Write a file a name, each by another process, and return the rank that each is of, by the name."""
    for pid, name in enumerate(names, start=4000):
        on_demand(*groups, pid=pid).write(folder / "run" / name)
    found = ranks(discover([str(folder)]))
    return {name: found[name if "/" in name else f"run/{name}"] for name in names}


@pytest.mark.parametrize(
    "names",
    [
        [f"exp-rank[{rank}].json" for rank in range(12)],
        [f"exp_rank={rank}.json" for rank in range(12)],
        [f"worker{rank // 2}_rank{rank}.json" for rank in range(12)],
        [f"local_rank_{rank % 8}_global_rank_{rank}.json" for rank in range(12)],
        [f"tp_rank_{rank % 2}_pp_rank_{rank // 2}_rank_{rank}.json" for rank in range(12)],
        [f"llama-worker-{rank // 2}_{101 + rank}.17.pt.trace.json" for rank in range(24)],
        [f"llama-{'master' if rank < 2 else 'worker'}-0_{99 + rank}.17.pt.trace.json" for rank in range(4)],
        ["job-master-0.json", "job-worker-0.json", "job-worker-1.json"],
        [f"node{rank // 8}/host_{rank}.json" for rank in range(16)],
        [f"rank_{rank}/trace.json" for rank in range(12)],
    ],
)
@pytest.mark.parametrize("names_groups", [True, False])
def test_names_are_numbered_as_people_do(tmp_path: Path, names: list[str], names_groups: bool) -> None:
    expected = {name: rank for rank, name in enumerate(names)}
    assert write(tmp_path, names[::-1], *([[*range(len(names))]] * names_groups)) == expected


@pytest.mark.parametrize(
    "pattern",
    ["node{}/rank{}.json", "host{}_rank{}.json", "gpu{}/local_rank{}.json", "node_rank_{}_local_rank_{}.json"],
)
def test_local_ranks_are_numbered_through_the_nodes(tmp_path: Path, pattern: str) -> None:
    """GIVEN a world of 4 whose nodes count their ranks anew WHEN discovered THEN it is one run, with one note."""
    names = [pattern.format(node, rank) for node in range(2) for rank in range(2)]
    assert write(tmp_path, names, *WORLD_OF_4) == {name: rank for rank, name in enumerate(names)}
    assert kinds(discover([str(tmp_path)])) == ["no-rank"]


def test_nodes_of_other_gpus_are_of_the_same_job(tmp_path: Path) -> None:
    for rank, gpu in enumerate(("A100", "H100", "A100", "H100")):
        trace = on_demand(*WORLD_OF_4, pid=rank)
        trace.header["deviceProperties"] = [{"id": 0, "name": gpu}]
        trace.write(tmp_path / f"node{rank}" / f"rank{rank}.json")
    assert sorted(ranks(discover([str(tmp_path)])).values()) == [0, 1, 2, 3]


def test_windows_of_a_process_are_of_one_rank(tmp_path: Path) -> None:
    """GIVEN a window in which only one rank can be in the groups, and one of the same process in which four can."""
    for window, groups in enumerate(([[2, 3], [0, 2]], WORLD_OF_4)):
        on_demand(*groups, at_us=window * SECOND).write(tmp_path / f"host_4000.{window}.pt.trace.json")
    assert {rank: len(files) for rank, files in discover([str(tmp_path)]).chosen.ranks.items()} == {2: 2}


def test_a_node_without_a_file_keeps_its_place(tmp_path: Path) -> None:
    names = ["node0/rank0.json", "node1/rank0.json", "node1/rank1.json"]
    assert list(write(tmp_path, names, *WORLD_OF_4).values()) == [0, 2, 3]


@pytest.mark.parametrize(
    ("world_size", "apart_us"),
    [(2, 1), (4, MINUTE), (4, DAY)],  # as many ranks as are in one folder; one after the other; of another day
)
def test_runs_of_the_same_ranks_stay_apart(tmp_path: Path, world_size: int, apart_us: float) -> None:
    for number in range(2):
        for rank in range(2):
            trace = on_demand([*range(world_size)], at_us=number * apart_us, pid=4000 + 2 * number + rank)
            trace.write(tmp_path / f"node{number}" / f"rank{rank}.json")
    found = discover([str(tmp_path)])
    assert [sorted(run.ranks) for run in (found.chosen, *found.others)] == [[0, 1], [0, 1]]
    assert found.chosen.world_size == world_size


@pytest.mark.parametrize("folders", [("a", "b"), ("a", "a")])
def test_a_job_has_no_more_processes_than_its_world_has_ranks(tmp_path: Path, folders: tuple[str, str]) -> None:
    """GIVEN two jobs of two processes, one a minute after the other, in two folders or one WHEN discovered THEN two."""
    for pid in range(4):
        on_demand([0, 1], at_us=pid // 2 * MINUTE, pid=pid).write(tmp_path / folders[pid // 2] / f"pt_{pid}.json")
    assert ranks(discover([str(tmp_path)])) == {f"{folders[1]}/pt_2.json": 0, f"{folders[1]}/pt_3.json": 1}


@pytest.mark.parametrize("chunk_bytes", [1, 997, 1 << 20])
def test_groups_that_only_one_rank_is_in_count_more_than_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    """GIVEN a mesh of 2 x 2, of which each file shows the row and the column WHEN discovered THEN ranks are known."""
    monkeypatch.setattr(inflate, "CHUNK_BYTES", chunk_bytes)
    rows, columns = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
    for rank in range(4):
        on_demand(rows[rank // 2], columns[rank % 2], pid=rank).write(tmp_path / f"rank{(rank + 1) % 4}.json")
    found = discover([str(tmp_path)])
    assert {name[-6]: rank for name, rank in ranks(found).items()} == {str((rank + 1) % 4): rank for rank in range(4)}
    assert (found.chosen.world_size, kinds(found)) == (4, [])


def test_ranks_that_groups_allow(tmp_path: Path) -> None:
    """GIVEN two groups of two, and local ranks in the names THEN each file is of its group."""
    for node, pair in enumerate(([2, 3], [0, 1])):
        for local in range(2):
            on_demand(pair, pid=10 * node + local).write(tmp_path / f"node{node}" / f"gpu{local}.json")
    assert list(ranks(discover([str(tmp_path)])).items()) == [
        *(("node1/gpu0.json", 0), ("node1/gpu1.json", 1), ("node0/gpu0.json", 2), ("node0/gpu1.json", 3))
    ]


@pytest.mark.parametrize("says", ["groups", "header"])
def test_processes_beside_the_ranks_are_left_out(tmp_path: Path, says: str) -> None:
    """GIVEN two ranks on GPUs, of four, three launchers and a coordinator WHEN discovered THEN two of four ranks."""
    for rank in range(2):
        trace = on_demand(*WORLD_OF_4, pid=389 + rank)
        if says == "header":
            trace.header["distributedInfo"] = {"rank": rank, "world_size": 4}
        trace.write(tmp_path / f"libkineto.pt_{389 + rank}.json")
    for pid in (6, 90, 100, 1000):
        launcher = on_demand(pid=pid, device=False)
        launcher.event("cudaGetDeviceCount", "cuda_runtime", 3, 1).write(tmp_path / f"libkineto.pt_{pid}.json")
    found = discover([str(tmp_path)])
    assert sorted(found.chosen.ranks) == [0, 1]
    assert found.chosen.world_size == 4
    assert [(note.id, note.file) for note in found.notes][:1] == [("no-rank", "libkineto.pt_6.json")]


def test_processes_of_a_job_without_gpus_are_its_ranks(tmp_path: Path) -> None:
    for pid in (1, 2):
        on_demand(pid=pid, device=False).write(tmp_path / f"host_{pid}.json")
    assert list(ranks(discover([str(tmp_path)])).values()) == [0, 1]


def test_a_merged_file_is_named_as_such(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    for rank in range(2):
        path = on_demand([0, 1], pid=4000 + rank).write(tmp_path / f"rank{rank}.json")
        label = {"name": "process_labels", "ph": "M", "pid": 4000 + rank, "tid": 0, "args": {"labels": "CPU"}}
        events += [label, *json.loads(path.read_text())["traceEvents"]]
    (tmp_path / "all.json").write_text(json.dumps({"traceEvents": events}))
    found = discover([str(tmp_path)])
    assert sorted(found.chosen.ranks) == [0, 1]
    assert [(note.id, note.file) for note in found.notes] == [("ignored-file", "all.json")]
    with pytest.raises(InputError, match="a merged trace, of 2 processes"):
        discover([str(tmp_path / "all.json")])


def test_ranks_from_a_regular_expression(tmp_path: Path) -> None:
    """GIVEN names in no order WHEN an expression gives the ranks THEN they count, but not more than a header."""
    for pid, name in enumerate(["b/x7.json", "a/x1.json", "a/x0.json"], start=1):
        on_demand(*WORLD_OF_4, pid=pid).write(tmp_path / name)
    TraceBuilder(3, 4).op("op", 0, 1).write(tmp_path / "a" / "x2.json")
    found = discover([str(tmp_path)], ranks_from=r"/\w/x([0127])")
    assert ranks(found) == {"a/x0.json": 0, "a/x1.json": 1, "a/x2.json": 3, "b/x7.json": 7}
    assert kinds(found) == []
    for wrong in ("(", "x", "(a)(x)", "(y)", "x(.json)"):
        with pytest.raises(UsageError, match="--ranks-from"):
            discover([str(tmp_path)], ranks_from=wrong)
