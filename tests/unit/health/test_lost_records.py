"""Steps and ranks whose device records are lost, and what only looks like it. Times are microseconds."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.summarized_trace import summarize_trace
from tests.unit.explain.summarized import Summarize
from tracekit.explain.sections import ALL_PARTS
from tracekit.loading.options import StepSelection, SummaryOptions
from tracekit.model.metadata import Device
from tracekit.model.summary import RankSummary
from tracekit.read.decode.portable import decode

A100 = "single_rank/a100_ddp_rank0_of_2.json.gz"
DEVICE_RECORDS = {"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"}


def completed(summary: RankSummary) -> dict[int, bool]:
    return {step.step: step.complete for step in summary.steps}


def lost_notes(summary: RankSummary) -> list[str]:
    return [note.text for note in summary.notes if note.id == "lost-device-records"]


def training(steps: int = 4, *, lost: Callable[[int, int], bool] = lambda step, i: False) -> TraceBuilder:
    """Steps of 1000 with 100 kernels each; those that are `lost`, by step and number, are launched only."""
    trace = TraceBuilder()
    for k in range(steps):
        trace.step(k, 1000 * k, 1000)
        for i in range(100):
            at = 1000 * k + 10 * i
            trace.op("aten::mm", at, 4).kernel("gemm", at + 3, 5, launched_at=at + 1)
            if lost(k, i):
                trace.events.pop()
    return trace


# ---- steps --------------------------------------------------------------------------------------------------------


def test_a_step_that_lacks_more_than_a_hundredth_of_its_kernels_is_incomplete(summarize: Summarize) -> None:
    """GIVEN 0, 1, 2 and 100 of 100 kernels missing, none of them at the end of a step."""
    missing = (0, 1, 2, 0)
    summary = summarize(training(lost=lambda k, i: 10 <= i < 10 + missing[k]))
    assert completed(summary) == {0: True, 1: True, 2: False, 3: True}
    assert summary.steps[1].compute_ns == 99 * 5_000
    assert summary.unmeasured is None


def test_a_step_whose_begin_a_lost_kernel_may_have_delayed_is_incomplete(summarize: Summarize) -> None:
    """GIVEN the last kernels of step 1 lost, or others of it THEN step 2 begins when nobody knows, or does not."""
    assert completed(summarize(training(lost=lambda k, i: k == 1 and i >= 90)))[2] is False
    assert completed(summarize(training(lost=lambda k, i: k == 1 and 80 <= i < 90)))[2] is True


def test_a_lost_launch_of_a_graph_counts_as_its_kernels(summarize: Summarize) -> None:
    """GIVEN steps with 200 launches and a graph of 300 kernels, and one whose graph is lost."""
    trace = TraceBuilder()
    for k in range(3):
        trace.step(k, 1000 * k, 1000)
        for i in range(200):
            trace.kernel("small", 1000 * k + 2 * i + 1, 1, launched_at=1000 * k + i)
        if k != 1:
            trace.launch_graph(1000 * k + 400, *(("g", 1000 * k + 410 + i, 1, 7) for i in range(300)))
        else:
            trace.event("cudaGraphLaunch", "cuda_runtime", 1400, 5, args={"correlation": 999_999})
            trace.kernel("small", 1420, 1, launched_at=1410)
    assert completed(summarize(trace)) == {0: True, 1: False, 2: True}


def test_kernels_of_unknown_launches_may_be_those_that_seem_missing(summarize: Summarize) -> None:
    """GIVEN device records whose correlation ids were lost, as some tools write them THEN no kernel is missing, and a
    note says that their steps are not known."""
    trace = training(2)
    for event in trace.events:
        if event["cat"] == "kernel" and event["ts"] >= trace.ts(500):
            del event["args"]["correlation"]
    summary = summarize(trace)
    (note,) = summary.notes
    assert completed(summary) == {0: True, 1: True}
    assert "150 of 200 kernels that compute have no launch" in note.text


def test_a_whole_window_does_not_lack_what_runs_after_it(summarize: Summarize) -> None:
    """GIVEN a host that is 30 kernels ahead when the recording ends WHEN it is one window THEN this is complete. A step
    that ends with them is not.
    """
    trace = training(2, lost=lambda k, i: k == 1 and i >= 70)
    assert completed(summarize(trace)) == {0: True, 1: False}
    whole = summarize(trace, steps=StepSelection(whole=True))
    assert (completed(whole), lost_notes(whole)) == ({0: True}, [])

    trace.event("cudaDeviceSynchronize", "cuda_runtime", 1999, 1)
    assert (
        summarize(trace, steps=StepSelection(whole=True)).unmeasured
        == "device records are missing in each of its steps"
    )


def test_a_step_in_which_all_records_end_is_incomplete(summarize: Summarize) -> None:
    """GIVEN neither launches nor kernels from the middle of step 2 on, as when the profiler's buffers are full."""
    trace = training()
    trace.events = [
        event
        for event in trace.events
        if event["cat"] not in {"kernel", "cuda_runtime"} or event["ts"] < trace.ts(2500)
    ]
    for event in trace.events:
        if event["cat"] == "cuda_runtime":  # each launch names its operator, which was recorded just before
            event["args"]["External id"] -= 1
    summary = summarize(trace)
    assert completed(summary) == {0: True, 1: True, 2: False, 3: False}


def test_what_the_profiler_logs_of_its_end_counts(summarize: Summarize) -> None:
    """GIVEN a last step that launches less than the others do, as the profiler says that its buffers were full."""
    trace = training(2)
    trace.events = [e for e in trace.events if e["cat"] not in {"kernel", "cuda_runtime"} or e["ts"] < trace.ts(1950)]
    assert completed(summarize(trace)) == {0: True, 1: True}
    trace.header["WARNING"] = [
        (
            "WARNING:2024-12-05 09:59:04 47:47 CuptiActivityApi.cpp:174] Exceeded max GPU buffer count (33 > 32) - "
            "terminating tracing"
        )
    ]
    summary = summarize(trace)
    assert completed(summary) == {0: True, 1: False}
    assert [note.id for note in summary.notes] == ["lost-device-records", "profiler-loss"]


# ---- ranks --------------------------------------------------------------------------------------------------------


def nothing_of_the_device(summary: RankSummary) -> bool:
    kept = {name: value for name, value in summary.parts.items() if name != "memory"}
    return (summary.steps, len(summary.collectives), len(summary.messages)) == ((), 0, 0) and all(
        repr(value) == repr(ALL_PARTS[name].empty()) for name, value in kept.items()
    )


def test_a_rank_without_kernels_that_launched_some_is_not_measured(summarize: Summarize) -> None:
    trace = training(2, lost=lambda k, i: True).capture()
    summary = summarize(trace)
    assert (summary.device, summary.unmeasured) == ("gpu", "none of the 200 kernels that it launched is recorded")
    assert nothing_of_the_device(summary)
    assert (summary.recorded_steps, summary.is_measured) == ((0, 1), False)

    trace.memcpy(5, 1, launched_at=2)
    assert summarize(trace).unmeasured == summary.unmeasured, "copies are no kernels"


def recorded_on_the_host(backend: str = "gloo", **header: Any) -> TraceBuilder:
    """What `activities=[ProfilerActivity.CPU]` records: neither kernels nor launches."""
    trace = TraceBuilder().step(0, 0, 100).op("aten::mm", 10, 20)
    trace.header["deviceProperties"] = [{"id": 0, "name": "NVIDIA A100"}]
    trace.header["distributedInfo"]["backend"] = backend
    trace.header |= header
    return trace


GPU_WITHOUT_RECORDS: dict[str, TraceBuilder] = {
    "a job with NCCL": recorded_on_the_host("nccl"),
    "an annotation of NCCL": recorded_on_the_host("undefined").label("nccl:all_reduce", 40, 5),
    "NCCL beside Gloo": recorded_on_the_host("nccl").label("nccl:all_reduce", 40, 5).gloo("all_reduce", 60, 5),
    "an operator of cuDNN": recorded_on_the_host().op("aten::cudnn_convolution", 40, 5),
}


@pytest.mark.parametrize("trace", GPU_WITHOUT_RECORDS.values(), ids=GPU_WITHOUT_RECORDS)
def test_a_gpu_rank_recorded_without_cuda_activity_is_no_cpu_rank(summarize: Summarize, trace: TraceBuilder) -> None:
    summary = summarize(trace)
    assert (summary.device, summary.steps) == ("gpu", ())
    assert summary.unmeasured == "it was recorded without CUDA activity"


def test_an_intel_gpu_is_told_its_own_activity(summarize: Summarize) -> None:
    summary = summarize(recorded_on_the_host("xccl"))
    assert summary.unmeasured == "it was recorded without XPU activity"
    assert "ProfilerActivity.XPU" in summary.notes[-1].text


def test_the_capture_knows_the_device(summarize: Summarize) -> None:
    trace = recorded_on_the_host().capture()
    assert summarize(trace).device == "cpu"
    assert trace.metadata is not None
    on_gpu = Device(type="cuda", index=0, name="NVIDIA A100")
    trace.metadata = replace(trace.metadata, device=on_gpu)
    assert summarize(trace).unmeasured == "it was recorded without CUDA activity"


CPU_RANKS: dict[str, TraceBuilder] = {
    "Gloo on a host with a GPU": recorded_on_the_host().gloo("all_reduce", 40, 10),
    "no process group": recorded_on_the_host(""),
    "both backends": recorded_on_the_host("cpu:gloo,cuda:nccl"),
    "Gloo in a job with NCCL": recorded_on_the_host("nccl").gloo("all_reduce", 40, 10),
    "attention of CPUs": recorded_on_the_host("nccl").op("aten::_scaled_dot_product_flash_attention_for_cpu", 40, 5),
    "what convolutions and recurrent networks ask on CPUs": recorded_on_the_host().op(
        "aten::cudnn_is_acceptable", 4, 1
    ),
}


@pytest.mark.parametrize("trace", CPU_RANKS.values(), ids=CPU_RANKS)
def test_a_rank_that_computes_on_its_cpu_stays_one(summarize: Summarize, trace: TraceBuilder) -> None:
    summary = summarize(trace)
    assert (summary.device, summary.unmeasured, completed(summary)) == ("cpu", None, {0: True})


# ---- the public A100 trace, whole and with lost kernels -----------------------------------------------------------


def a100(real_traces: Path, folder: Path, *, kept: Callable[[dict[str, Any], float], bool]) -> RankSummary:
    """Summarise it with the events that are `kept`, by event and share of the recording at which it starts."""
    with gzip.open(real_traces / A100) as file:
        trace = json.load(file)
    spans = [e for e in trace["traceEvents"] if e.get("ph") == "X" and e["cat"] != "Trace"]
    begin, end = min(e["ts"] for e in spans), max(e["ts"] + e["dur"] for e in spans)
    trace["traceEvents"] = [e for e in trace["traceEvents"] if kept(e, (e.get("ts", 0) - begin) / (end - begin))]
    path = folder / "rank0.json"
    path.write_text(json.dumps(trace))
    return summarize_trace(decode(path), 0, SummaryOptions())


def test_the_a100_trace_lost_nothing(real_traces: Path, tmp_path: Path) -> None:
    summary = a100(real_traces, tmp_path, kept=lambda event, share: True)
    assert (completed(summary), lost_notes(summary)) == ({4: True, 5: True, 6: True}, [])


def test_the_a100_trace_without_kernels_in_its_end(real_traces: Path, tmp_path: Path) -> None:
    """WHEN the kernels of the last 30 % are removed THEN the other two steps keep their overlap, 14.76 %."""
    summary = a100(real_traces, tmp_path, kept=lambda e, share: e.get("cat") != "kernel" or share < 0.7)
    assert completed(summary) == {4: True, 5: True, 6: False}
    complete = [step for step in summary.steps if step.complete]
    overlapped, comm = (sum(getattr(step, f"{name}_ns") for step in complete) for name in ("overlapped_comm", "comm"))
    assert 100 * overlapped / comm == pytest.approx(14.76, abs=0.005)
    (note,) = lost_notes(summary)
    assert "step 6 lacks device records and does not count (896 of 900 launches there have no kernel)" in note


def test_the_a100_trace_without_device_records(real_traces: Path, tmp_path: Path) -> None:
    no_kernels = a100(real_traces, tmp_path, kept=lambda e, share: e.get("cat") not in DEVICE_RECORDS)
    assert (no_kernels.device, no_kernels.steps) == ("gpu", ())
    assert no_kernels.unmeasured == "none of the 2,700 kernels that it launched is recorded"

    on_host = a100(real_traces, tmp_path, kept=lambda e, share: e.get("cat") not in {*DEVICE_RECORDS, "cuda_runtime"})
    assert (on_host.device, on_host.steps) == ("gpu", ())
    assert on_host.unmeasured == "it was recorded without CUDA activity"
