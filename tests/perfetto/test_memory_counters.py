"""Memory over time on the pages of ranks, read by the real trace processor: the recorded numbers and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tests.perfetto.merged import merged
from tracekit.loading.load import load
from tracekit.stats.grouped import grouped
from tracekit.trace_processor import TraceProcessor

RECORDED = Path(__file__).parents[1] / "data" / "cpu_memory"
GPU = (1, 0)
MIB = 1 << 20
STEP_US, STEPS = 1_000, 4

Curve = list[tuple[int, float]]


# The tracks of ranks; in Chrome's format, for which there are no views, each rank is a process.
RANKS = "select track_id, rank, name from tracekit_tracks"


def counters(processor: TraceProcessor, rank: int = 0, *, tracks: str = RANKS) -> dict[str, Curve]:
    """Return the points, time and value, of each counter on a rank's page."""
    rows = processor.query(
        f"select name, ts, value from counter join ({tracks}) using (track_id) where rank = {rank} order by counter.id"
    )
    return grouped((row["name"], (row["ts"], row["value"])) for row in rows)


def gpu_rank(rank: int, skew_us: int = 0) -> TraceBuilder:
    """A rank on a GPU. A step allocates 8 MiB at 100.001 us and frees them at 900.5 us, besides 32 MiB that stay.

    The allocator reserves 64 MiB, and 128 MiB from the third step on. The clock is ahead by `skew_us`.
    """
    trace = TraceBuilder(rank, 2)
    for k in range(STEPS):
        at = STEP_US * k + skew_us
        trace.step(k, at, STEP_US).kernel("gemm", at + 10, 500, launched_at=at)
        trace.nccl("all_reduce", at + 600, 100, launched_at=at + 1)
        reserved = (64 if k < 2 else 128) * MIB
        trace.memory(at + 100.001, 8 * MIB, allocated=40 * MIB, reserved=reserved, device=GPU)
        trace.memory(at + 900.5, -8 * MIB, allocated=32 * MIB, reserved=reserved, device=GPU)
    return trace.capture(clock=[(at + skew_us, skew_us * 1000 * rank, 10) for at in (0, 1, 3_999, 4_000)])


def planted(*steps: int) -> Curve:
    """The expected points of allocated memory in some steps."""
    wall_ns = TraceBuilder().wall_ns
    return [(wall_ns(STEP_US * k + at), value * MIB) for k in steps for at, value in ((100.001, 40.0), (900.5, 32.0))]


@pytest.mark.parametrize("skew_us", [0, 12_345, -1_500_000])
def test_memory_of_a_gpu_is_on_the_run_s_clock(trace_processor: TraceProcessor, tmp_path: Path, skew_us: int) -> None:
    """GIVEN a rank whose clock is off WHEN merged THEN both ranks show the recorded numbers at their true times."""
    run = load(write_run(tmp_path / "in", [gpu_rank(0), gpu_rank(1, skew_us)]))
    assert run.clocks[1].offset_ns == skew_us * 1000
    written = merged(trace_processor, run, tmp_path / "out")
    wall_ns = TraceBuilder().wall_ns
    for rank in (0, 1):
        assert counters(trace_processor, rank) == {
            "GPU 0 · allocated": planted(*range(STEPS)),
            "GPU 0 · reserved": [
                (wall_ns(100.001), 64.0 * MIB),
                (wall_ns(2 * STEP_US + 100.001), 128.0 * MIB),
            ],
        }
    assert written.left_out == {}
    units = trace_processor.query("select distinct unit from counter_track where name glob 'GPU*'")
    assert units == [{"unit": "bytes"}]


def test_memory_counters_are_the_last_tracks_that_tracekit_adds(
    trace_processor: TraceProcessor, tmp_path: Path
) -> None:
    merged(trace_processor, load(write_run(tmp_path / "in", [gpu_rank(0), gpu_rank(1)])), tmp_path / "out")
    rows = trace_processor.query(
        "select t.name as name, extract_arg(t.source_arg_set_id, 'sibling_order_rank') as place from track t "
        "join track parent on t.parent_id = parent.id join tracekit_ranks r on parent.parent_id = r.track_id "
        "where parent.name = 'analysis' and r.rank = 0"
    )
    names = [row["name"] for row in sorted(rows, key=lambda row: row["place"])]
    assert names[-2:] == ["GPU 0 · allocated", "GPU 0 · reserved"]
    assert names[0] == "rank 0 steps"


@pytest.mark.parametrize("device", [(0, -1), GPU])
def test_without_totals_changes_are_counted_from_the_beginning(
    trace_processor: TraceProcessor, tmp_path: Path, device: tuple[int, int]
) -> None:
    """GIVEN a CPU, whose totals are wrong, or an allocator that records changes only THEN the curve adds up from 0."""
    trace = TraceBuilder(0, 1).step(0, 0, 100).op("aten::empty", 10, 50)
    total = 12_345 if device == (0, -1) else 0
    for at, change in ((20, 1000), (30.25, 24), (30.25, -1), (40, -2000)):
        trace.memory(at, change, allocated=total, device=device)
    merged(trace_processor, load(write_run(tmp_path / "in", [trace])), tmp_path / "out")
    label = "CPU" if device == (0, -1) else "GPU 0"
    curve = [(trace.wall_ns(at), value) for at, value in ((0, 0), (20, 1000), (30.25, 1023), (40, -977))]
    assert counters(trace_processor) == {f"{label} · allocated less freed": curve}


def test_each_device_has_its_counters(trace_processor: TraceProcessor, tmp_path: Path) -> None:
    trace = TraceBuilder(0, 1).step(0, 0, 100)
    for at, device in enumerate([(1, 1), (0, -1), (6, 0), (1, 1), (20, 4), (12, 0)]):
        trace.memory(at, 8, allocated=100 + at, reserved=0, device=device)
    merged(trace_processor, load(write_run(tmp_path / "in", [trace])), tmp_path / "out")
    assert {name: [value for _, value in curve] for name, curve in counters(trace_processor).items()} == {
        "CPU · allocated less freed": [0, 8],
        "GPU 1 · allocated": [100, 103],
        "GPU 0 · allocated": [102],
        "XPU 0 · allocated": [105],
        "device of type 20 4 · allocated": [104],
    }


def test_windows_of_a_real_recording_share_a_counter(trace_processor: TraceProcessor, tmp_path: Path) -> None:
    """GIVEN two windows, whose steps allocate 4 MB and free them, then 1 MB that stays THEN they share a counter.

    PyTorch's totals would start the second window with 2 MB that were freed long before.
    """
    run = load(RECORDED)
    written = merged(trace_processor, run, tmp_path)
    ((name, curve),) = counters(trace_processor).items()
    assert name == "CPU · allocated less freed"
    assert [ts for ts, _ in curve] == sorted(ts for ts, _ in curve)
    (second,) = trace_processor.query("select min(ts) as begin from tracekit_steps where step = 9")
    before = [value for ts, value in curve if ts < second["begin"]]
    after = [value for ts, value in curve if ts >= second["begin"]]
    assert (before[0], max(before)) == (0, 4_000_000)
    assert [*before[-1:], *after] == [0, 4_000_000, 0, 1_000_000, 5_000_000, 1_000_000, 2_000_000]
    assert written.left_out == {"M": 16, "i": 4}


def test_the_view_of_memory_has_every_value(trace_processor: TraceProcessor, tmp_path: Path) -> None:
    """GIVEN a GPU and a CPU whose memory was recorded THEN `tracekit_memory` has the values of each counter."""
    for number, folder in enumerate((write_run(tmp_path / "in", [gpu_rank(0), gpu_rank(1)]), RECORDED)):
        run = load(folder)
        merged(trace_processor, run, tmp_path / f"out{number}")
        rows = trace_processor.query("select rank, device, what, size_bytes, ts from tracekit_memory order by rank, ts")
        for summary in run.ranks:
            by_name: dict[str, Curve] = {}
            for row in rows:
                if row["rank"] == summary.rank:
                    by_name.setdefault(f"{row['device']} · {row['what']}", []).append((row["ts"], row["size_bytes"]))
            assert by_name
            assert by_name == counters(trace_processor, summary.rank)


def test_a_run_without_records_of_memory_has_no_counter(trace_processor: TraceProcessor, tmp_path: Path) -> None:
    trace = TraceBuilder(0, 1).step(0, 0, 100)
    merged(trace_processor, load(write_run(tmp_path / "in", [trace])), tmp_path / "out")
    assert counters(trace_processor) == {}


def test_recorded_counters_are_kept_in_the_merged_trace_and_its_views(
    trace_processor: TraceProcessor, tmp_path: Path
) -> None:
    """GIVEN samples of a clock rate, of which one repeats the value before it."""
    traces = [gpu_rank(rank) for rank in (0, 1)]
    for at, clock in ((50, 1980), (1050, 1980), (2050, 1110)):
        traces[1].raw(ph="C", name="SM clock", pid="GPU 0", tid=0, ts=traces[1].ts(at), args={"MHz": clock})
    run = load(write_run(tmp_path / "in", traces))
    assert merged(trace_processor, run, tmp_path / "out").left_out == {}
    wall_ns, name = TraceBuilder().wall_ns, "GPU 0 · SM clock · MHz"
    assert counters(trace_processor, 1)[name] == [(wall_ns(50), 1980), (wall_ns(2050), 1110)]
    rows = trace_processor.query(f"select rank, value, dur from tracekit_counters where counter = '{name}'")
    assert rows[0] == {"rank": 1, "value": 1980, "dur": 2_000_000}
