"""The merged trace of a run, read by the real trace processor: nothing is lost, and sums equal the report."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tests.perfetto.merged import (
    assert_arrows_are_whole,
    assert_totals_are_the_reports,
    assert_views_are_the_reports,
    complete_events,
    input_slices,
    merged,
    shown_slices,
)
from tracekit.loading.load import load
from tracekit.render.merged.derived_tracks import SliceFilter
from tracekit.render.merged.merge import merge
from tracekit.trace_processor import TraceProcessor

DDP = Path(__file__).parents[1] / "data" / "ddp_slow_rank"


@pytest.mark.parametrize("source", ["dlrm", "ddp"])
def test_every_slice_is_there_and_the_lanes_are_the_reports(
    trace_processor: TraceProcessor, real_traces: Path, tmp_path: Path, source: str
) -> None:
    folder = real_traces / "dlrm_8xV100" if source == "dlrm" else DDP
    run = load(folder)
    written = merged(trace_processor, run, tmp_path)
    expected = input_slices(folder)
    assert shown_slices(trace_processor) == expected
    assert (written.slices, written.filtered) == (expected.total(), {})
    assert_totals_are_the_reports(trace_processor, run)
    assert_views_are_the_reports(trace_processor, run)
    assert_arrows_are_whole(trace_processor, run)


def test_steps_have_their_windows(trace_processor: TraceProcessor, tmp_path: Path) -> None:
    run = load(DDP)
    merged(trace_processor, run, tmp_path)
    rows = trace_processor.query(
        "select r.name as page, s.rank as rank, s.name as name, ts, dur from tracekit_slices s "
        "join tracekit_ranks r using (rank) where track = 'steps' order by rank, ts"
    )
    expected = [
        (summary.rank, f"step {step.step}", step.start_ns - clock.offset_ns, step.step_ns)
        for summary, clock in zip(run.ranks, run.clocks, strict=True)
        for step in summary.steps
    ]
    assert [(row["rank"], row["name"], row["ts"], row["dur"]) for row in rows] == expected
    names = [f"rank {summary.rank} · {summary.host}" for summary in run.ranks]
    assert sorted({row["page"] for row in rows}) == names


def gpu_rank(rank: int, *, skew_us: int = 0, drift_ppm: float = 0) -> TraceBuilder:
    """20 steps of 100 ms, with an all-reduce at the same true time on every rank. The clock is ahead by `skew_us`."""

    def clock(true_us: float) -> float:
        return round(true_us * (1 + drift_ppm / 1e6) + skew_us, 3)

    trace = TraceBuilder(rank, 2)
    for k in range(20):
        at = 100_000 * k
        trace.step(k, clock(at), 100_000).kernel("gemm", clock(at + 10_000), 20_000 + 100 * rank, launched_at=clock(at))
        trace.nccl("all_reduce", clock(at + 40_000), 10_000, launched_at=clock(at + 1))
    times = (0, 10_000, 1_990_000, 2_000_000)
    return trace.capture(clock=[(clock(at), round(1000 * (clock(at) - at)) if rank else 0, 0) for at in times])


@pytest.mark.parametrize("skew_us", [0, 12_345, -1_500_000, 250_000_000])
def test_skewed_clocks_come_out_aligned(trace_processor: TraceProcessor, tmp_path: Path, skew_us: int) -> None:
    """GIVEN a rank whose clock is off by a measured offset WHEN merged THEN one collective starts at one time."""
    run = load(write_run(tmp_path / "in", [gpu_rank(0), gpu_rank(1, skew_us=skew_us)]))
    assert [clock.offset_ns for clock in run.clocks] == [0, skew_us * 1000]
    merged(trace_processor, run, tmp_path / "out")
    rows = trace_processor.query(
        "select ts, count() as n from slice where name glob 'ncclDevKernel_*' group by ts order by ts"
    )
    first = gpu_rank(0).wall_ns(40_000)
    assert [(row["ts"], row["n"]) for row in rows] == [(first + 100_000_000 * k, 2) for k in range(20)]
    assert_totals_are_the_reports(trace_processor, run)


def test_windows_of_a_rank_share_their_tracks(trace_processor: TraceProcessor, tmp_path: Path) -> None:
    """GIVEN two windows of each rank WHEN merged THEN each rank is one process, and its tracks have both windows."""
    for rank in (0, 1):
        for first in (0, 50):
            trace = TraceBuilder(rank, 2)
            for k in range(first, first + 2):
                trace.step(k, 100 * k, 100).kernel("gemm", 100 * k + 10, 20, launched_at=100 * k)
                trace.nccl("all_reduce", 100 * k + 20, 30, launched_at=100 * k + 1)
            trace.capture().write_capture(tmp_path / "in")
    run = load(tmp_path / "in")
    written = merged(trace_processor, run, tmp_path / "out")
    assert written.slices == input_slices(tmp_path / "in").total() == 2 * 2 * 2 * 5
    pages = trace_processor.query("select name from tracekit_ranks order by rank")
    assert [row["name"] for row in pages] == ["rank 0 · node0", "rank 1 · node0"]
    tracks = trace_processor.query("select name, count() as n from tracekit_tracks where rank is not null group by 1")
    counts = {row["name"]: row["n"] for row in tracks}
    for name in ("compute", "communication", "steps", "GPU 0 stream 7"):
        assert counts[name] == 2, name
    assert_totals_are_the_reports(trace_processor, run)


def test_a_slice_that_is_left_out_counts_for_the_first_filter_that_leaves_it_out(
    trace_processor: TraceProcessor, real_traces: Path, tmp_path: Path
) -> None:
    folder = real_traces / "dlrm_8xV100"
    events = list(complete_events(folder))
    kernels = [event for event in events if event.get("cat") == "kernel"]
    long = [event for event in kernels if event["dur"] >= 50]
    shown = SliceFilter(categories=frozenset({"kernel"}), min_duration_ns=50_000)
    written = merged(trace_processor, load(folder), tmp_path, shown=shown)
    assert written.filtered == {
        "--categories": len(events) - len(kernels),
        "--min-dur": len(kernels) - len(long),
    }
    assert shown_slices(trace_processor) == Counter((event["cat"], event["name"]) for event in long)
    assert written.slices == len(long) > 0


def test_arguments_and_launches_are_the_input_s(
    trace_processor: TraceProcessor, real_traces: Path, tmp_path: Path
) -> None:
    """GIVEN a run on GPUs THEN every kernel and copy has an arrow from its launch, which has its correlation id."""
    folder = real_traces / "dlrm_8xV100"
    merged(trace_processor, load(folder), tmp_path)
    rows = trace_processor.query(
        "select category, extract_arg(arg_set_id, 'debug.correlation') as correlation, "
        "extract_arg(arg_set_id, 'debug.External id') as external_id, count() as n from slice "
        "where category != 'tracekit' group by 1, 2, 3"
    )
    events = list(complete_events(folder))
    expected = Counter(
        (event["cat"], event["args"].get("correlation"), event["args"].get("External id")) for event in events
    )
    assert {(row["category"], row["correlation"], row["external_id"]): row["n"] for row in rows} == expected
    arrows = trace_processor.query(
        "select b.category as category, extract_arg(a.arg_set_id, 'debug.correlation') as call, "
        "extract_arg(b.arg_set_id, 'debug.correlation') as launched from flow join slice a on slice_out = a.id "
        "join slice b on slice_in = b.id where a.category = 'cuda_runtime'"
    )
    assert all(row["call"] == row["launched"] for row in arrows)
    launched = 0
    for path in folder.glob("*.json*"):  # correlation ids are unique within a rank
        of_rank = list(complete_events(path))
        calls = {event["args"]["correlation"] for event in of_rank if event["cat"] == "cuda_runtime"}
        on_device = [event for event in of_rank if event["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"}]
        launched += sum(event["args"]["correlation"] in calls for event in on_device)
    assert len(arrows) == launched == 2116


def test_kernels_are_the_input_s_with_the_calls_that_launched_them(
    trace_processor: TraceProcessor, real_traces: Path, tmp_path: Path
) -> None:
    folder = real_traces / "dlrm_8xV100"
    merged(trace_processor, load(folder), tmp_path)
    columns = "rank", "category", "name", "device", "stream", "grid", "block", "size_bytes", "correlation", "launch"
    shown = Counter(
        tuple(row[column] for column in columns)
        for row in trace_processor.query(
            "select k.*, extract_arg(call.arg_set_id, 'debug.correlation') as launch from tracekit_kernels k "
            "left join slice call on call.id = launch_slice_id and call.name = launch_name and call.ts = launch_ts"
        )
    )
    expected: Counter[tuple[object, ...]] = Counter()
    for path in folder.glob("*.json*"):
        document = json.loads(gzip.decompress(path.read_bytes()))
        of_rank = [event for event in document["traceEvents"] if event["ph"] == "X"]
        calls = {event["args"]["correlation"] for event in of_rank if event["cat"] == "cuda_runtime"}
        for event in of_rank:
            if event["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"}:
                arguments, number = event["args"], event["args"]["correlation"]
                where = (document["distributedInfo"]["rank"], event["cat"], event["name"], event["pid"], event["tid"])
                shape = [json.dumps(arguments[name]) if name in arguments else None for name in ("grid", "block")]
                expected[*where, *shape, arguments.get("bytes"), number, number if number in calls else None] += 1
    assert shown == expected
    assert sum(count for key, count in shown.items() if key[-1] is not None) == 2116


def test_all_kernels_of_a_graph_lead_to_its_launch(trace_processor: TraceProcessor, tmp_path: Path) -> None:
    """GIVEN kernels of one CUDA graph THEN each names the launch, unless a filter leaves that out."""
    trace = TraceBuilder(0, 1).step(0, 0, 100)
    ids = {"correlation": 900, "External id": 900}
    trace.event("cudaGraphLaunch", "cuda_runtime", 10, 1, args=ids)
    for number in range(3):
        where = {"device": 0, "stream": 7}
        trace.event(f"kernel {number}", "kernel", 20 + 10 * number, 5, pid=0, thread=7, args=ids | where)
    run = load(write_run(tmp_path / "in", [trace]))
    for folder, categories, launch in (("all", None, "cudaGraphLaunch"), ("kernels", frozenset({"kernel"}), None)):
        merged(trace_processor, run, tmp_path / folder, shown=SliceFilter(categories=categories))
        rows = trace_processor.query("select * from tracekit_kernels order by ts")
        assert [(row["name"], row["stream"], row["launch_name"], row["launch_slice_id"] is None) for row in rows] == [
            (f"kernel {number}", 7, launch, launch is None) for number in range(3)
        ]


def test_input_with_the_names_of_derived_tracks_stays_input(trace_processor: TraceProcessor, tmp_path: Path) -> None:
    """GIVEN events with the category, names and threads of tracks that tracekit adds THEN they count as input."""
    trace = TraceBuilder(0, 1).step(0, 0, 100).op("aten::mm", 20, 30)
    names = ("analysis", "steps", "waits", "device", "findings")
    for thread, name in enumerate(names, 50):
        trace.event(name, "tracekit", 10, 5, thread=thread)
        trace.raw(ph="M", name="thread_name", pid=trace.pid, tid=thread, args={"name": name})
    folder = write_run(tmp_path / "in", [trace])
    merged(trace_processor, load(folder), tmp_path / "out")
    assert shown_slices(trace_processor) == input_slices(folder)
    assert shown_slices(trace_processor)["tracekit", "steps"] == 1
    assert [row["step"] for row in trace_processor.query("select step from tracekit_steps")] == [0]


def test_a_backward_operator_has_an_arrow_from_its_forward(trace_processor: TraceProcessor, tmp_path: Path) -> None:
    """GIVEN a run of PyTorch THEN there are as many arrows as in Kineto's file, between equal sequence numbers."""
    merged(trace_processor, load(DDP), tmp_path)
    rows = trace_processor.query(
        "select extract_arg(a.arg_set_id, 'debug.Sequence number') as forward, "
        "extract_arg(b.arg_set_id, 'debug.Sequence number') as backward, count() as n from flow "
        "join slice a on slice_out = a.id join slice b on slice_in = b.id where a.category = 'cpu_op' group by 1, 2"
    )
    assert all(row["forward"] == row["backward"] for row in rows)
    kineto = 0
    for path in DDP.rglob("rank-*.json.gz"):
        document = json.loads(gzip.decompress(path.read_bytes()))
        kineto += sum(event["ph"] == "s" and event["cat"] == "fwdbwd" for event in document["traceEvents"])
    assert sum(row["n"] for row in rows) == kineto > 0


def test_overlapping_slices_of_a_thread_are_all_kept(trace_processor: TraceProcessor, tmp_path: Path) -> None:
    """GIVEN a send and a receive that cross on the calling thread, of which viewers of Chrome JSON would drop one THEN
    both are in the trace."""
    trace = TraceBuilder(0, 1).step(0, 0, 100).gloo("recv", 10, 30).op("aten::mm", 20, 30).gloo("send", 35, 15)
    trace.op("aten::mm", 20, 30).op("empty", 20, 0).op("", 21, 1)
    run = load(write_run(tmp_path / "in", [trace]))
    merged(trace_processor, run, tmp_path / "out")
    rows = trace_processor.query("select name, ts, dur from slice where category != 'tracekit'")
    actual = Counter((row["name"] or "", row["ts"] - trace.wall_ns(0), row["dur"]) for row in rows)
    origin = trace.ts(0)
    assert actual == Counter(
        (e["name"], int((e["ts"] - origin) * 1000), int(e["dur"] * 1000)) for e in trace.events if e["ph"] == "X"
    )


def test_one_worker_two_workers_and_gzip_write_the_same_bytes(tmp_path: Path) -> None:
    run = load(DDP)
    one = merge(run, tmp_path / "one.pftrace", jobs=1)
    two = merge(run, tmp_path / "two.pftrace", jobs=2)
    packed = merge(run, tmp_path / "packed.pftrace.gz", jobs=1)
    assert one.path.read_bytes() == two.path.read_bytes() == gzip.decompress(packed.path.read_bytes())
