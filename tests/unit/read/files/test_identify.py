"""What files say about themselves behind their events, and when their ends are read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.builders import BASE_NS, TraceBuilder
from tests.unit.read.files.run_traces import DAY, MINUTE, runs, trace
from tracekit.loading.load import load
from tracekit.read.files import identify, inflate
from tracekit.read.files.discover import discover


@pytest.mark.parametrize("name", ["a{}.json", "a{}.json.gz"])
def test_ranks_behind_the_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """GIVEN rank and base time at the end of files WHEN discovered THEN both are known, without notes."""
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


def text_with_base_time_at_end(builder: TraceBuilder) -> bytes:
    """The text as Kineto writes it: the rank in front of the events, the base time behind them."""
    text = builder.text()
    base = b'"baseTimeNanoseconds": %d' % builder.base_ns
    assert text.count(base) == 1
    without = text.replace(base + b",", b"")
    assert base not in without
    return without.rstrip().removesuffix(b"}") + b', "baseTimeNanoseconds": %d}' % builder.base_ns


@pytest.fixture
def ends_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of files whose ends were read."""
    names: list[str] = []

    def last_bytes(path: Path, width: int) -> bytes:
        names.append(path.name)
        return inflate.last_bytes(path, width)

    monkeypatch.setattr(identify, "last_bytes", last_bytes)
    return names


def test_the_base_times_of_one_plain_run_are_not_read(tmp_path: Path, ends_read: list[str]) -> None:
    """GIVEN packed ranks of one world, recorded together WHEN discovered THEN no file is inflated to its end."""
    for rank in range(4):
        (tmp_path / f"{rank}.json.gz").write_bytes(
            gzip.compress(text_with_base_time_at_end(trace(rank, 4, at_us=rank)))
        )
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
def test_base_times_are_read_where_they_matter(tmp_path: Path, ends_read: list[str], jobs: list[TraceBuilder]) -> None:
    for number, builder in enumerate(jobs):
        (tmp_path / f"{number}.json.gz").write_bytes(gzip.compress(text_with_base_time_at_end(builder)))
    found = discover([str(tmp_path)])
    assert len(runs(found)) == 2
    assert not found.is_provisional
    assert sorted(ends_read) == ["0.json.gz", "1.json.gz"]
    assert found.chosen.start_ns is not None
    assert found.chosen.start_ns >= BASE_NS


def test_files_with_other_base_times_are_two_runs_once_decoded(tmp_path: Path) -> None:
    """GIVEN ranks of two days with equal relative times WHEN loaded THEN their base times make them two runs."""
    for builder in (trace(0), based_a_day_later(trace(1))):
        (tmp_path / f"{builder.rank}.json.gz").write_bytes(gzip.compress(text_with_base_time_at_end(builder)))
    assert runs(discover([str(tmp_path)])) == [{0: 1, 1: 1}]
    run = load(tmp_path)
    assert [summary.rank for summary in run.ranks] == [1]
    assert run.missing_ranks == (0,)
    assert [other.ranks for other in run.other_runs] == [1]
    assert load(tmp_path, cache=tmp_path / "cache").missing_ranks == (0,)


def test_the_end_of_a_large_packed_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflate, "MAX_TAIL_SEARCH_BYTES", 10)
    trace(1).write(tmp_path / "rank1.json.gz", tail=True)
    (window,) = discover([str(tmp_path)]).chosen.ranks[1]
    assert window.rank_from == "name"
    assert window.world_size is None


def test_the_start_is_that_of_the_first_host_event(tmp_path: Path) -> None:
    """GIVEN metadata without a start and a device event first THEN the first host event gives start and process."""
    builder = trace()
    named = {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": builder.ts(5), "dur": 1}
    builder.events = [named, kernel, *builder.events]
    builder.write(tmp_path / "rank0.json")
    (window,) = discover([str(tmp_path)]).chosen.ranks[0]
    assert window.start_ns == builder.wall_ns(0)
    assert window.process == "node0:4000"


@pytest.mark.parametrize("names", [0, 10, 400])
@pytest.mark.parametrize("kernels", [0, 400])
def test_the_first_event_of_a_host_thread_is_found_behind_names_and_kernels(
    tmp_path: Path, names: int, kernels: int
) -> None:
    """GIVEN up to 200 KB of other events first WHEN a file is identified THEN its start is that of the host's event."""
    builder = TraceBuilder()
    for thread in range(names):
        builder.raw(ph="M", name="thread_name", pid=builder.pid, tid=thread, ts=0, args={"name": "a thread" * 10})
    for at in range(kernels):
        builder.kernel("void gemm<float>(float*)", 500 + at, 1)
    builder.op("aten::mm", 77, 1).op("aten::relu", 99, 1)
    for suffix in (".json", ".json.gz"):
        path = builder.write(tmp_path / f"rank0{suffix}")
        assert identify.identify_fast(path).start_ns == builder.wall_ns(77)


def test_the_marks_of_kineto_are_of_no_process(tmp_path: Path) -> None:
    """GIVEN events in order of time, `Iteration Start` first THEN the process is that of the operators."""
    builder = trace(at_us=5)
    mark = {"ph": "i", "s": "g", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "ts": builder.ts(0)}
    builder.events.insert(0, mark)
    path = builder.write(tmp_path / "rank0.json")
    assert identify.identify(path).process == "node0:4000"

    builder.events = [mark]
    path = builder.write(tmp_path / "rank1.json")
    assert (identify.identify(path).process, identify.identify(path).start_ns) == (None, builder.wall_ns(0))
