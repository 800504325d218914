"""The tables that the bridge makes of handmade traces are those that HTA's own parser makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.components import require_module
from tests.gpu_steps import gpu_steps
from tests.unit.hta.hta_itself import assert_equal_tables, load_by_hta, with_names

# HTA warns of its own use of pandas and of logging; not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")

bridge = require_module("tracekit.hta.trace")


def with_whole_microseconds() -> TraceBuilder:
    """As Kineto wrote times before it had nanoseconds: as integers."""
    trace = gpu_steps(offset_us=0)
    for event in trace.events:
        event |= {"ts": int(event["ts"]), "dur": int(event["dur"])}
    return trace


def with_one_step() -> TraceBuilder:
    return gpu_steps(steps=1)


def without_steps() -> TraceBuilder:
    trace = gpu_steps()
    trace.events = [event for event in trace.events if "ProfilerStep" not in event["name"]]
    return trace


def with_stream_0() -> TraceBuilder:
    return gpu_steps().kernel("on the default stream", 70, 5, stream=0, launched_at=61)


def with_text_as_thread() -> TraceBuilder:
    return gpu_steps().event("PyTorch Profiler (0)", "Trace", 0, 300, pid="Spans", thread="PyTorch Profiler")


def with_text_as_bytes() -> TraceBuilder:
    trace = gpu_steps().memcpy(90, 2, launched_at=80)
    trace.events[-1]["args"]["bytes"] = "4096"
    return trace


def with_a_shared_launch() -> TraceBuilder:
    return gpu_steps().launch_graph(30, ("void a()", 31, 2, 7), ("void b()", 34, 2, 7), ("void c()", 37, 2, 9))


def with_synchronisations() -> TraceBuilder:
    trace = gpu_steps()
    waits = {"stream": -1, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 12, "correlation": 13}
    return trace.event("Event Sync", "cuda_sync", 40, 10, pid=0, thread=-1, args=waits)


def with_missing_launches() -> TraceBuilder:
    return gpu_steps().kernel("launched before the recording", 3, 4).event("cudaLaunchKernel", "cuda_runtime", 90, 1)


def with_other_phases() -> TraceBuilder:
    trace = gpu_steps()
    place = {"pid": trace.pid, "tid": trace.main}
    for at in (0, 2, 2):
        trace.events.insert(at, {"ph": "M", "name": "thread_name", **place, "ts": 0, "args": {"name": "main"}})
    return trace.raw(ph="i", name="a mark", **place, ts=trace.ts(5), s="t")


def with_counters() -> TraceBuilder:
    trace = gpu_steps()
    for at in (21, 51):
        counters = {"smsp__inst_executed.sum": 17 * at, "dram__bytes.sum": 1}
        trace.event("void gemm<float>(float*)", "cuda_profiler_range", at, 2, pid=0, thread=0, args=counters)
    return trace


TRACES = [
    gpu_steps,
    with_whole_microseconds,
    with_one_step,
    without_steps,
    with_stream_0,
    with_text_as_thread,
    with_text_as_bytes,
    with_a_shared_launch,
    with_synchronisations,
    with_missing_launches,
    with_other_phases,
    with_counters,
]


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize("last_step", [False, True])
@pytest.mark.parametrize("build", TRACES)
def test_tables_are_those_of_hta(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Callable[[], TraceBuilder], last_step: bool, native: str
) -> None:
    if native == "1":
        require_module("tracekit.read.decode.native")
    monkeypatch.setenv("TRACEKIT_NATIVE", native)
    files = {0: build().write(tmp_path / "rank0.json")}

    actual = bridge.analysis_of_files(files, include_last_step=last_step)

    expected = load_by_hta(files, include_last_step=last_step)
    for rank in files:  # the names of counters come from a set
        expected.t.traces[rank] = expected.t.traces[rank][actual.t.traces[rank].columns]
    assert_equal_tables(actual, expected)


@pytest.mark.parametrize("last_step", [False, True])
def test_ranks_share_one_zero_and_one_table_of_symbols(tmp_path: Path, last_step: bool) -> None:
    files = {rank: gpu_steps(rank, 3 - rank).write(tmp_path / f"rank{rank}.json.gz") for rank in range(2)}

    actual = bridge.analysis_of_files(files, include_last_step=last_step)

    assert_equal_tables(actual, load_by_hta(files, include_last_step=last_step))


def test_times_keep_their_nanoseconds_if_hta_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    files = {0: gpu_steps(offset_us=0.125).write(tmp_path / "rank0.json")}

    actual = bridge.analysis_of_files(files)

    assert with_names(actual, 0)["ts"].dtype == "float64"
    assert_equal_tables(actual, load_by_hta(files))


def test_times_of_a_wall_clock_are_the_float64_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN microseconds since 1970 with nanoseconds THEN they are rounded as HTA rounds them."""
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    trace = TraceBuilder(absolute=True).step(1, 0, 100).kernel("void gemm()", 10.007, 20.011, launched_at=3.001)
    files = {0: trace.write(tmp_path / "rank0.json")}

    assert_equal_tables(bridge.analysis_of_files(files), load_by_hta(files))


def test_pairs_of_begin_and_end_are_left_out(tmp_path: Path) -> None:
    trace = gpu_steps()
    for phase, at in (("B", 3), ("E", 9)):
        trace.raw(ph=phase, name="a pair", cat="cpu_op", pid=trace.pid, tid=trace.main, ts=trace.ts(at))
    files = {0: trace.write(tmp_path / "rank0.json")}

    assert_equal_tables(bridge.analysis_of_files(files), load_by_hta(files))
