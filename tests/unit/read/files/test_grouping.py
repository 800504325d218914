"""Traces of other tools, files to runs: never two jobs in one run, never one job in two."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from tests.builders import BASE_NS, TraceBuilder
from tracekit.analysis.load import load
from tracekit.read.files import identify, inflate
from tracekit.read.files.discover import Discovery, discover

SECOND = 1e6
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE


def trace(rank: int = 0, world_size: int = 2, *, at_us: float = 0, pid: int | None = None) -> TraceBuilder:
    builder = TraceBuilder(rank, world_size)
    builder.pid = builder.main = pid or builder.pid
    return builder.op("op", at_us, 1)


def with_device(builder: TraceBuilder, name: str) -> TraceBuilder:
    builder.header["deviceProperties"] = [{"id": 0, "name": name}]
    return builder


def runs(found: Discovery) -> list[dict[int, int]]:
    """Windows by rank of each run, the chosen one first."""
    return [{rank: len(w) for rank, w in run.ranks.items()} for run in (found.chosen, *reversed(found.others))]


# ---- two jobs ----------------------------------------------------------------------------------------------------


def test_ranks_of_different_days_are_different_jobs(tmp_path: Path) -> None:
    trace(1, at_us=0).write(tmp_path / "rank1.json")
    trace(0, at_us=3 * DAY).write(tmp_path / "rank0.json")
    assert runs(discover([str(tmp_path)])) == [{0: 1}, {1: 1}]


def test_the_same_process_id_days_later_is_another_job(tmp_path: Path) -> None:
    """GIVEN two jobs in containers, whose ids are always the same WHEN discovered THEN they are two runs."""
    for day in (0, 3):
        for rank in (0, 1):
            trace(rank, at_us=day * DAY + rank).write(tmp_path / f"host_{rank}.{day}.pt.trace.json")
    assert runs(discover([str(tmp_path)])) == [{0: 1, 1: 1}, {0: 1, 1: 1}]


@pytest.mark.parametrize("folders", [("job_a", "job_b"), ("4711", "4712")])
def test_the_same_process_id_in_another_folder_is_another_job(tmp_path: Path, folders: tuple[str, str]) -> None:
    for job, folder in enumerate(folders):
        for rank in (0, 1):
            trace(rank, at_us=job * 5 * MINUTE + rank).write(tmp_path / folder / f"rank{rank}.json")
    found = discover([str(tmp_path)])
    assert runs(found) == [{0: 1, 1: 1}, {0: 1, 1: 1}]
    assert {w.path.parent.name for windows in found.chosen.ranks.values() for w in windows} == {folders[1]}


def test_jobs_that_ran_at_the_same_time_are_told_apart_by_folder(tmp_path: Path) -> None:
    for at_us, job, rank in [(0, "a", 0), (1, "b", 1), (2, "a", 1), (3, "b", 0)]:
        trace(rank, at_us=at_us * SECOND, pid=at_us + 1).write(tmp_path / job / f"rank{rank}.json")
    found = discover([str(tmp_path)])
    for run in (found.chosen, *found.others):
        assert len({w.path.parent for windows in run.ranks.values() for w in windows}) == 1
        assert sorted(run.ranks) == [0, 1]


def test_other_devices_in_another_folder_are_another_job(tmp_path: Path) -> None:
    with_device(trace(0), "V100").write(tmp_path / "a" / "rank0.json")
    with_device(trace(1, at_us=1), "MI300X").write(tmp_path / "b" / "rank1.json")
    assert len(runs(discover([str(tmp_path)]))) == 2


def test_public_traces_are_not_mixed(real_traces: Path) -> None:
    found = discover([str(real_traces)])
    folders = [
        {
            w.path.name if w.path.parent.name == "single_rank" else w.path.parent.name
            for ws in r.ranks.values()
            for w in ws
        }
        for r in (found.chosen, *found.others)
    ]
    assert sorted(map(sorted, folders)) == [
        ["a100_ddp_rank0_of_2.json.gz"],
        ["b200_tp8_custom_allreduce.json.gz"],
        ["dlrm_8xV100"],
        ["gloo_rank34_of_300"],
        ["mi300x_resnet_rank0_of_8.json.gz"],
        ["two_of_128"],
    ]
    assert len(found.others) == 5


# ---- one job -----------------------------------------------------------------------------------------------------


def test_windows_in_folders_of_iterations(tmp_path: Path) -> None:
    for i in (10, 20, 100):
        for rank in (0, 1):
            trace(rank, at_us=i * MINUTE + rank).write(tmp_path / f"iteration_{i}" / f"rank{rank}_trace.json")
    found = discover([str(tmp_path)])
    assert runs(found) == [{0: 3, 1: 3}]
    assert [w.path.parent.name for w in found.chosen.ranks[1]] == ["iteration_10", "iteration_20", "iteration_100"]


@pytest.mark.parametrize("apart_us", [10 * SECOND, 4 * MINUTE])
@pytest.mark.parametrize("folder", ["", "node{}"])
def test_skewed_clocks_and_late_starts_are_one_job(tmp_path: Path, apart_us: float, folder: str) -> None:
    for rank in range(3):
        trace(rank, 3, at_us=(2 - rank) * apart_us).write(tmp_path / folder.format(rank) / f"rank{rank}.json")
    assert runs(discover([str(tmp_path)])) == [{0: 1, 1: 1, 2: 1}]


def test_a_copy_in_another_folder_is_no_other_job(tmp_path: Path) -> None:
    for folder in ("run", "backup"):
        for rank in (0, 1):
            trace(rank, at_us=rank).write(tmp_path / folder / f"rank{rank}.json")
    found = discover([str(tmp_path)])
    assert runs(found) == [{0: 1, 1: 1}]
    assert [note.kind for note in found.notes] == ["duplicate_rank"] * 2


def test_windows_whose_start_is_unknown_are_all_kept(tmp_path: Path) -> None:
    for i in (1, 2):
        builder = trace()
        builder.events[0]["ts"] = None
        builder.write(tmp_path / f"node0_4000.{i}.pt.trace.json")
    assert runs(discover([str(tmp_path)])) == [{0: 2}]


# ---- what stands behind the events -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a{}.json", "a{}.json.gz"])
def test_ranks_behind_the_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """GIVEN files that say their rank and base time at the end WHEN discovered THEN both are known, without notes."""
    monkeypatch.setattr(inflate, "CHUNK_BYTES", 1 << 10)
    for rank in (1, 0):
        builder = trace(rank, at_us=rank)
        for i in range(200):
            builder.op("x", i, 1, frames=[{"name": "f"}], **{"Input Dims": [[1]]})
        builder.write(tmp_path / name.format(1 - rank), tail=True)
    found = discover([str(tmp_path)])
    assert {rank: w[0].path.name for rank, w in found.chosen.ranks.items()} == {0: name.format(1), 1: name.format(0)}
    assert [w[0].rank_from for w in found.chosen.ranks.values()] == ["metadata"] * 2
    assert found.chosen.ranks[0][0].start_ns == trace().wall_ns(0)
    assert found.chosen.world_size == 2
    assert found.notes == ()


def based_a_day_later(builder: TraceBuilder) -> TraceBuilder:
    builder.base_ns += int(DAY) * 1000
    return builder


def as_kineto_ends_it(builder: TraceBuilder) -> bytes:
    """The rank in front of the events, the base time behind them."""
    text = builder.text()
    base = b'"baseTimeNanoseconds": %d' % builder.base_ns
    assert text.count(base) == 1
    without = text.replace(base + b",", b"")
    assert base not in without
    return without.rstrip().removesuffix(b"}") + b', "baseTimeNanoseconds": %d}' % builder.base_ns


@pytest.fixture
def ends_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files of which the end was read."""
    names: list[str] = []

    def last_bytes(path: Path, width: int) -> bytes:
        names.append(path.name)
        return inflate.last_bytes(path, width)

    monkeypatch.setattr(identify, "last_bytes", last_bytes)
    return names


def test_the_base_time_of_one_plain_run_is_not_looked_for(tmp_path: Path, ends_read: list[str]) -> None:
    """GIVEN packed ranks of one world, recorded together WHEN discovered THEN no file is inflated to its end."""
    for rank in range(4):
        (tmp_path / f"{rank}.json.gz").write_bytes(gzip.compress(as_kineto_ends_it(trace(rank, 4, at_us=rank))))
    found = discover([str(tmp_path)])
    assert runs(found) == [dict.fromkeys(range(4), 1)]
    assert found.notes == ()
    assert found.is_provisional
    assert ends_read == []


@pytest.mark.parametrize(
    "jobs",
    [
        [trace(0), trace(1, at_us=3 * DAY)],  # recorded on different days
        [trace(0), trace(0, at_us=MINUTE, pid=9)],  # the same rank twice
        [trace(0), trace(1, 4)],  # of different worlds
    ],
)
def test_the_base_time_is_looked_for_where_it_matters(
    tmp_path: Path, ends_read: list[str], jobs: list[TraceBuilder]
) -> None:
    for number, builder in enumerate(jobs):
        (tmp_path / f"{number}.json.gz").write_bytes(gzip.compress(as_kineto_ends_it(builder)))
    found = discover([str(tmp_path)])
    assert len(runs(found)) == 2
    assert not found.is_provisional
    assert sorted(ends_read) == ["0.json.gz", "1.json.gz"]
    assert found.chosen.start_ns is not None
    assert found.chosen.start_ns >= BASE_NS


def test_files_that_count_alike_from_other_base_times_are_told_apart(tmp_path: Path) -> None:
    """GIVEN ranks of two days at the same count WHEN loaded THEN what their ends say is believed: they are two runs."""
    for builder in (trace(0), based_a_day_later(trace(1))):
        (tmp_path / f"{builder.rank}.json.gz").write_bytes(gzip.compress(as_kineto_ends_it(builder)))
    assert runs(discover([str(tmp_path)])) == [{0: 1, 1: 1}]
    run = load(tmp_path)
    assert [summary.rank for summary in run.ranks] == [1]
    assert run.missing_ranks == (0,)
    assert [other.ranks for other in run.other_runs] == [1]
    assert load(tmp_path, cache=tmp_path / "cache").missing_ranks == (0,)


def test_the_end_of_a_large_packed_file_is_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflate, "MAX_TAIL_SEARCH_BYTES", 10)
    trace(1).write(tmp_path / "rank1.json.gz", tail=True)
    (window,) = discover([str(tmp_path)]).chosen.ranks[1]
    assert window.rank_from == "name"
    assert window.world_size is None


def test_the_first_event_with_a_start_tells_it(tmp_path: Path) -> None:
    """Names of processes come first, without a start; device events have the device for a process."""
    builder = trace()
    named = {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": builder.ts(5), "dur": 1}
    builder.events = [named, kernel, *builder.events]
    builder.write(tmp_path / "rank0.json")
    (window,) = discover([str(tmp_path)]).chosen.ranks[0]
    assert window.start_ns == builder.wall_ns(0)
    assert window.process == "node0:4000"


# ---- names and notes ---------------------------------------------------------------------------------------------


def test_runs_without_a_clock_are_named_so(tmp_path: Path) -> None:
    for pid in (1, 2):
        builder = trace(0, 8, pid=pid)
        builder.base_ns = 0
        builder.write(tmp_path / f"{pid}.json")
    found = discover([str(tmp_path)])
    assert sorted([found.chosen.run_id or "", *(r.run_id or "" for r in found.others)]) == [
        "unknown-start-world8",
        "unknown-start-world8-2",
    ]


def test_notes_of_an_old_run_stay_with_it(tmp_path: Path) -> None:
    for run_id, at_us in (("old", 0), ("new", 9e6)):
        TraceBuilder().step(4, at_us, 10).op("op", at_us, 5).capture(run_id=run_id).write_capture(tmp_path)
    folder = tmp_path / "old" / "attempt-0"
    left = TraceBuilder(1).step(4, 0, 10).op("op", 0, 5).capture(run_id="old")
    left.write(folder / "step-000000004" / ".rank-000001.node0.7.tmp")
    (folder / "step-000000008").mkdir()
    (folder / "step-000000008" / ".rank-000001.node0.7.tmp").touch()
    (tmp_path / "stray.json").touch()

    found = discover([str(tmp_path)])
    assert found.chosen.run_id == "new"
    assert [note.file for note in found.notes] == ["stray.json"]
    assert sorted(note.kind for note in found.others[0].notes) == ["empty", "unfinished_tmp"]

    old = discover([str(tmp_path)], run="old")
    assert sorted(note.kind for note in old.notes) == ["empty", "empty", "unfinished_tmp"]


def test_folders_that_cannot_be_read_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace().write(tmp_path / "rank0.json")
    (tmp_path / "locked").mkdir()
    plain = os.scandir

    def guarded(path: str) -> object:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path)

    monkeypatch.setattr(os, "scandir", guarded)
    (note,) = discover([str(tmp_path)]).notes
    assert (note.kind, note.file) == ("permission", "locked")
    assert note.text == "locked: the folder cannot be read (Permission denied); left out"
