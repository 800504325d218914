"""Ways in which programs launch: CUDA graphs, compiled regions, `cudaLaunchKernelExC`, HIP, several devices.

Expected values are computed by hand; times in the drawings are microseconds. Names and keys are those of public traces
and of Kineto's sources (output_json.cpp, MetadataFieldCatalog.h).
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import TraceBuilder
from tests.summarized_trace import summarize_trace
from tests.unit.explain.summarized import Summarize
from tracekit.explain.communication.tables import COMMUNICATION_SUMS
from tracekit.explain.step_time.tables import FLOPS, PHASE_SUMS
from tracekit.loading.options import SummaryOptions
from tracekit.model.events import EventTable
from tracekit.model.summary import RankSummary, StepParts
from tracekit.rank.communication_rules import DEFAULT_RULES
from tracekit.rank.kernel_launches import device_events
from tracekit.rank.lanes import build_lanes
from tracekit.read.decode.portable import decode

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


NAMES = ("step", "compute", "comm", "overlapped_comm", "exposed_comm", "exposed_copy", "idle")


def parts(step: StepParts) -> tuple[float, ...]:
    """Return length, compute, communication, overlapped and exposed communication, exposed copy, and idle time."""
    return tuple(getattr(step, f"{name}_ns") / 1000 for name in NAMES)


def compute_by_phase(summary: RankSummary) -> dict[str, float]:
    return {part.phase: part.compute_ns / 1000 for part in summary[PHASE_SUMS].parts if part.compute_ns}


# ---- CUDA graphs --------------------------------------------------------------------------------------------------


def graph_training(call: str = "cudaGraphLaunch") -> TraceBuilder:
    """
    host    0  launches a copy, the graph and an optimizer kernel   40  again                         80
    copy       3-6                                                      45-48
    compute      20-50       70-90 90-95                                 95-125        145-165 165-170
    comm              40-70                                                    115-145
    """
    trace = TraceBuilder()
    for k, (host, at) in enumerate(((0, 20), (40, 95))):
        trace.step(k, host, 40).memcpy(host + 3 + 2 * k, 3, stream=9, launched_at=host + 1)
        trace.launch_graph(
            host + 5, ("gemm", at, 30, 7), (ALL_REDUCE, at + 20, 30, 20), ("gemm", at + 50, 20, 7), call=call
        )
        trace.kernel("adam", at + 70, 5, launched_at=host + 15)
    return trace


@pytest.mark.parametrize("call", ["cudaGraphLaunch", "hipGraphLaunch"])
def test_kernels_of_a_graph_belong_to_its_launch(summarize: Summarize, tmp_path: Path, call: str) -> None:
    """Step 1 begins at 95, as the graph of step 0 was launched before 40. No launch seems to lack its kernel."""
    summary = summarize(graph_training(call))
    assert [parts(step) for step in summary.steps] == [(95, 55, 30, 10, 20, 3, 17), (75, 55, 30, 10, 20, 0, 0)]
    assert [step.complete for step in summary.steps] == [True, True]
    (row,) = summary[COMMUNICATION_SUMS]
    assert (row.kind, row.phase, row.count, row.total_ns, row.exposed_ns) == (
        "all_reduce", None, 2, 60_000, 40_000,
    )  # fmt: skip
    assert summary.notes == ()

    communication = build_lanes(decode(tmp_path / "rank0.json"), DEFAULT_RULES).communication_events
    assert (communication.start_ns - communication.launch_ns).tolist() == [35_000, 70_000]


def test_what_a_graph_multiplies_is_not_counted_and_said(summarize: Summarize) -> None:
    shapes = {"Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"]}
    trace = graph_training().op("aten::mm", 16, 2, **shapes)
    assert summarize(trace)[FLOPS].uncounted == ("cudaGraphLaunch",)


# ---- compiled regions ---------------------------------------------------------------------------------------------


def compiled_step(trace: TraceBuilder, region: str) -> TraceBuilder:
    """
    host     forward 2-30                backward 50-80     optimizer 85-95
    compute    triton 20-45, gemm 45-60    triton 70-85       96-99
    comm                                         80-95
    """
    trace.op("Torch-Compiled Region: 0/0", 2, 28).op("CompiledFunction", 4, 24, **{"Sequence number": 1})
    trace.event("## Call CompiledFxGraph frizqoobob ##", region, 6, 20, args={"External id": 501})
    trace.kernel("triton_poi_fused_add_gelu_0", 20, 10, launched_at=8, launched_by="cuLaunchKernel")
    trace.kernel("triton_red_fused_native_layer_norm_1", 30, 15, launched_at=10, launched_by="cuLaunchKernelEx")
    trace.op("aten::addmm", 12, 4).kernel("sm80_xmma_gemm_bf16", 45, 15, launched_at=13)
    trace.backward("CompiledFunctionBackward", 50, 30)
    trace.event("## Call CompiledFxGraph fmcg46qtch ##", region, 55, 20, thread=trace.autograd)
    trace.kernel("triton_per_fused_sum_2", 70, 15, launched_at=60, launched_by="cuLaunchKernel")
    trace.nccl("all_reduce", 80, 15, launched_at=65, launched_by="cudaLaunchKernelExC")
    trace.label("Optimizer.step#AdamW.step", 85, 10)
    return trace.kernel("triton_for_fused_3", 96, 3, launched_at=88, launched_by="cuLaunchKernel")


@pytest.mark.parametrize("region", ["cpu_op", "user_annotation"])
def test_kernels_of_compiled_regions_are_compute_and_the_regions_are_not(summarize: Summarize, region: str) -> None:
    """The region is an operator or an annotation, by version of torch; annotations are copied to the stream."""
    trace = compiled_step(TraceBuilder().step(0, 0, 100), region)
    trace.kernel("## Call CompiledFxGraph frizqoobob ##", 20, 40, category="gpu_user_annotation")
    summary = summarize(trace)
    assert [parts(step) for step in summary.steps] == [(100, 58, 15, 5, 10, 0, 32)]
    assert compute_by_phase(summary) == {"forward": 40, "backward": 15, "optimizer": 3}
    (row,) = summary[COMMUNICATION_SUMS]
    assert (row.kind, row.phase, row.exposed_ns) == ("all_reduce", "backward", 10_000)
    assert summary.notes == ()


def test_a_compiled_region_on_a_cpu_is_compute(summarize: Summarize) -> None:
    """What Inductor compiles for CPUs runs inside of the region, without operators of its own."""
    trace = TraceBuilder().step(0, 0, 100).op("Torch-Compiled Region: 0/0", 2, 28)
    trace.op("## Call CompiledFxGraph frizqoobob ##", 6, 20).op("aten::addmm", 12, 4)
    trace.backward("CompiledFunctionBackward", 50, 30).op("aten::mm", 60, 5, thread=trace.autograd)
    summary = summarize(trace)
    assert [parts(step) for step in summary.steps] == [(100, 58, 0, 0, 0, 0, 42)]
    assert compute_by_phase(summary) == {"forward": 28, "backward": 30}


# ---- calls of CUDA and HIP ----------------------------------------------------------------------------------------


def delays_ns(events: EventTable, call: str) -> np.ndarray:
    """Return from launch to start, of the kernels that `call` launched."""
    device = device_events(events)
    linked = device.row[device.linked]
    launches = device.launch_row[device.linked]
    named = np.array([events.strings[name] == call for name in events.name[launches]])
    delays: np.ndarray = (events.start_ns[linked] - events.start_ns[launches])[named]
    return delays


def delays_by_hand_us(trace: Path, call: str) -> list[float]:
    with gzip.open(trace) as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    launched: dict[int, float] = {e["args"]["correlation"]: e["ts"] for e in events if e["name"] == call}
    on_device = [e for e in events if e["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"}]
    started = [(e["args"].get("correlation"), e["ts"]) for e in on_device]
    return [at - launched[correlation] for correlation, at in started if correlation in launched]


@pytest.mark.parametrize(
    ("trace", "call", "count"),
    [
        ("a100_ddp_rank0_of_2", "cudaLaunchKernelExC", 150),
        ("b200_tp8_custom_allreduce", "cudaLaunchKernelExC", 180),
        ("b200_tp8_custom_allreduce", "cuLaunchKernelEx", 220),
        ("mi300x_resnet_rank0_of_8", "hipExtModuleLaunchKernel", 1167),
        ("mi300x_resnet_rank0_of_8", "hipExtLaunchKernel", 12),
    ],
)
def test_launch_delays_of_public_traces(real_traces: Path, trace: str, call: str, count: int) -> None:
    path = real_traces / f"single_rank/{trace}.json.gz"
    actual = delays_ns(decode(path).events, call)
    assert len(actual) == count
    assert np.sort(actual) / 1000 == pytest.approx(sorted(delays_by_hand_us(path, call)), abs=0.5)


def step_of(calls: dict[str, str]) -> TraceBuilder:
    """
    compute   10-30     35-60          80-95
    comm             25-70
    """
    trace = TraceBuilder().step(0, 0, 100).kernel("gemm", 10, 20, launched_at=2, launched_by=calls["eager"])
    trace.nccl("all_reduce", 25, 45, launched_at=4, launched_by=calls["collective"])
    trace.kernel("triton_poi_fused_add_0", 35, 25, launched_at=6, launched_by=calls["module"])
    return trace.kernel("reduce", 80, 15, launched_at=8, launched_by=calls["eager"])


CUDA = {"eager": "cudaLaunchKernel", "collective": "cudaLaunchKernelExC", "module": "cuLaunchKernelEx"}
HIP = {"eager": "hipLaunchKernel", "collective": "hipExtLaunchKernel", "module": "hipModuleLaunchKernel"}


@pytest.mark.parametrize("calls", [CUDA, HIP], ids=["CUDA", "HIP"])
def test_every_way_of_launching_links_and_misses_alike(summarize: Summarize, calls: dict[str, str]) -> None:
    summary = summarize(step_of(calls))
    assert [parts(step) for step in summary.steps] == [(100, 60, 45, 30, 15, 0, 25)]
    assert summary.collectives.launch_ns.tolist() == [step_of(calls).wall_ns(4)]
    assert summary.notes == ()

    for lost in ("gemm", "triton_poi_fused_add_0", "ncclDevKernel_AllReduce"):
        trace = step_of(calls)
        trace.events = [event for event in trace.events if not event["name"].startswith(lost)]
        assert summarize(trace).unmeasured == "device records are missing in each of its steps", lost


def test_the_mi300x_trace_lost_nothing(real_traces: Path) -> None:
    """2238 launches have their kernels. Another 757 kernels were launched before the recording."""
    trace = decode(real_traces / "single_rank/mi300x_resnet_rank0_of_8.json.gz")
    lanes = build_lanes(trace, DEFAULT_RULES)
    assert (len(lanes.launches), int(lanes.launches.missing.sum())) == (2238, 0)
    summary = summarize_trace(trace, 0, SummaryOptions())
    assert [step.complete for step in summary.steps] == [True] * 3
    assert [note.id for note in summary.notes] == ["before-recording"]


# ---- several devices ----------------------------------------------------------------------------------------------


def two_devices() -> TraceBuilder:
    """A model in two parts, as with `device_map`: the second device computes while the first one waits.

    device 0   10-40          copy to device 1 40-50                  85-95
    device 1                                      50-80
    comm on 0                     45-60
    """
    trace = TraceBuilder().step(0, 0, 100).kernel("gemm", 10, 30, launched_at=2)
    trace.kernel("Memcpy PtoP (Device -> Device)", 40, 10, launched_at=4, launched_by="cudaMemcpyPeerAsync",
                 category="gpu_memcpy")  # fmt: skip
    trace.kernel("gemm", 50, 30, device=1, launched_at=6)
    trace.nccl("all_reduce", 45, 15, launched_at=8)
    return trace.kernel("adam", 85, 10, launched_at=12)


def test_devices_of_one_process_count_together(summarize: Summarize) -> None:
    """The rank computes while any of its devices does. The second half of the all-reduce is hidden by the other one."""
    summary = summarize(two_devices())
    assert [parts(step) for step in summary.steps] == [(100, 70, 20, 10, 10, 0, 20)]
    kinds: dict[str, Any] = {row.kind: (row.count, row.total_ns, row.exposed_ns) for row in summary[COMMUNICATION_SUMS]}
    assert kinds == {"peer_copy": (1, 10_000, 5_000), "all_reduce": (1, 15_000, 5_000)}
    assert summary.notes == ()


def test_streams_of_equal_number_are_different_streams_on_different_devices(summarize: Summarize) -> None:
    """GIVEN a kernel on stream 7 of device 1 before all that is linked there THEN only that device had work before."""
    trace = two_devices().kernel("early", -20, 25, device=1).kernel("no launch", 42, 3)
    summary = summarize(trace)
    (note,) = summary.notes
    assert "1 kernels (0 of them communication) were launched before the recording" in note.text
    assert summary.steps[0].start_ns == trace.wall_ns(5)


def test_a_step_that_lacks_the_kernels_of_one_device_is_incomplete(summarize: Summarize) -> None:
    trace = two_devices()
    trace.events = [event for event in trace.events if event["pid"] != 1]
    assert summarize(trace).unmeasured is not None
