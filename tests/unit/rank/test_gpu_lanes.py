"""Lanes, windows and sums of GPU ranks. Expected values are computed by hand; times in the drawings are
microseconds.
"""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.unit.explain.summarized import Summarize
from tracekit.explain.communication.tables import COMMUNICATION_SUMS
from tracekit.model.metadata import Group
from tracekit.model.summary import StepParts
from tracekit.rank.communication_rules import DEFAULT_RULES, CommunicationRule

NAMES = ("step", "compute", "comm", "overlapped_comm", "exposed_comm", "exposed_copy", "idle")


def parts(step: StepParts) -> dict[str, float]:
    """Return the parts of a step in microseconds."""
    return {name: getattr(step, f"{name}_ns") / 1000 for name in NAMES}


def of(*microseconds: float) -> dict[str, float]:
    """Return parts from length, compute, communication, overlapped and exposed communication, exposed copy, and
    idle time.
    """
    return dict(zip(NAMES, microseconds, strict=True))


def test_parts_of_one_step(summarize: Summarize) -> None:
    """
    compute  10-50
    comm           40-70
    copy   5-15       60-90      and 95-100 is idle, as is 0-5 and 90-95
    """
    trace = TraceBuilder().step(3, 0, 100)
    trace.kernel("gemm", 10, 40, launched_at=1).nccl("all_reduce", 40, 30, launched_at=2)
    trace.memcpy(5, 10, stream=8, launched_at=1.5).memcpy(60, 30, stream=8, launched_at=3)
    summary = summarize(trace)
    (step,) = summary.steps
    assert parts(step) == of(100, 40, 30, 10, 20, 5 + 20, 15)
    assert (summary.device, step.step, step.start_ns, step.complete) == ("gpu", 3, trace.wall_ns(0), True)


def test_a_step_begins_when_earlier_compute_has_ended(summarize: Summarize) -> None:
    """GIVEN a host that runs ahead THEN b_k = max(host start, end of compute launched before), communication aside.

    host   |0  |10 |20 |30
    gpu    k0 5-40, k1 40-80, k2 80-130; nccl 38-60 was launched in step 0
    """
    trace = TraceBuilder().step(0, 0, 10).step(1, 10, 10).step(2, 20, 10)
    trace.kernel("k0", 5, 35, launched_at=2).kernel("k1", 40, 40, launched_at=12).kernel("k2", 80, 50, launched_at=22)
    trace.nccl("all_reduce", 38, 22, launched_at=3)
    summary = summarize(trace)
    assert [step.start_ns - trace.wall_ns(0) for step in summary.steps] == [0, 40_000, 80_000]
    assert [parts(step) for step in summary.steps] == [
        of(40, 35, 2, 2, 0, 0, 5),
        of(40, 40, 20, 20, 0, 0, 0),
        of(50, 50, 0, 0, 0, 0, 0),
    ]
    (row,) = summary[COMMUNICATION_SUMS]
    assert (row.count, row.total_ns, row.exposed_ns) == (1, 22_000, 0)


def test_kernels_launched_before_the_recording(summarize: Summarize) -> None:
    """GIVEN unlinked device events before their stream's first linked one THEN b_0 waits for them and a note counts
    them.
    """
    trace = TraceBuilder().step(0, 0, 50).step(1, 50, 50)
    trace.kernel("early 1", -20, 15).kernel("early 2", -5, 17).nccl("all_reduce", 3, 10)
    trace.memcpy(0, 1, stream=7).backward("MmBackward0", 7, 2)
    trace.kernel("k0", 20, 10, launched_at=5).nccl("all_reduce", 22, 10, launched_at=6)
    trace.kernel("unlinked later", 60, 10).kernel("k1", 80, 5, launched_at=55)
    summary = summarize(trace)
    assert [parts(step) for step in summary.steps] == [
        of(38, 10, 1 + 10, 8, 1 + 2, 0, 25),
        of(50, 15, 0, 0, 0, 0, 35),
    ]
    assert summary.steps[0].start_ns == trace.wall_ns(12)
    (note,) = summary.notes
    assert note.id == "before-recording"
    assert "3 kernels (1 of them communication) were launched before the recording" in note.text
    assert note.text.startswith("rank 0: rank0.json: ")
    rows = {row.phase: (row.count, row.total_ns, row.exposed_ns) for row in summary[COMMUNICATION_SUMS]}
    assert rows == {None: (0, 1_000, 1_000), "forward": (1, 10_000, 2_000)}


def test_a_step_whose_device_events_are_missing_is_incomplete(summarize: Summarize) -> None:
    trace = TraceBuilder().step(0, 0, 10).step(1, 10, 10).step(2, 20, 10)
    trace.kernel("k0", 1, 5, launched_at=0).kernel("k2", 21, 5, launched_at=20.5)
    assert [step.complete for step in summarize(trace).steps] == [True, False, True]


def test_annotations_on_device_tracks_are_not_device_events(summarize: Summarize) -> None:
    trace = TraceBuilder().step(0, 0, 100).kernel("k", 10, 30, launched_at=1)
    trace.kernel("ProfilerStep#0", 10, 80, category="gpu_user_annotation", launched_at=None)
    trace.kernel("nccl:all_reduce", 10, 80, category="gpu_user_annotation")
    (step,) = summarize(trace).steps
    assert parts(step) == of(100, 30, 0, 0, 0, 0, 70)


def test_without_steps_the_recording_is_one_window(summarize: Summarize) -> None:
    trace = TraceBuilder().kernel("k", 10, 30, launched_at=1).nccl("all_reduce", 30, 30, launched_at=2)
    trace.event("PyTorch Profiler (0)", "Trace", 0, 1000, pid="Spans")
    summary = summarize(trace)
    assert [parts(step) for step in summary.steps] == [of(50, 30, 30, 10, 20, 0, 0)]
    assert [note.id for note in summary.notes] == ["no-steps"]


# ---- which kernels communicate, of what kind, how much ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all_reduce"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", "all_gather"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*)", "reduce_scatter"),
        ("ncclKernel_SendRecv(ncclDevComm*, unsigned long, ncclWork*)", "send_recv"),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevComm*)", "broadcast"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "unknown"),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "unknown"),
        ("void deep_ep::internode::dispatch<false, 4>(int4*)", "dispatch"),
        ("void deep_ep::intranode::combine<int>(int4*)", "combine"),
        ("void deep_ep::internode::notify_dispatch<false, 4>(int const*)", "dispatch"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", "all_reduce"),
        ("void sglang::cross_device_reduce_2stage<__half, 4>(RankData*)", "all_reduce"),
        ("void multimem_all_reduce_kernel<float>(float*)", "all_reduce"),
        ("void two_shot_all_reduce_kernel<c10::BFloat16>(c10::BFloat16**)", "all_reduce"),
        ("nvshmemi_transfer_rma_put_nbi", "unknown"),
    ],
)
def test_kernels_that_communicate(summarize: Summarize, name: str, kind: str) -> None:
    trace = TraceBuilder().step(0, 0, 100).kernel(name, 10, 20, launched_at=1).kernel("gemm", 50, 5, launched_at=2)
    summary = summarize(trace)
    assert parts(summary.steps[0]) == of(100, 5, 20, 0, 20, 0, 75)
    assert [row.kind for row in summary[COMMUNICATION_SUMS]] == [kind]


@pytest.mark.parametrize(
    "name",
    [
        "ampere_sgemm_128x64_tn",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(float)",
        "void at::native::vectorized_gather_kernel<16, long>(char*)",
        "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
        "void cub::DeviceReduceKernel<float>()",
        "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_SN",
    ],
)
def test_kernels_with_similar_names_that_do_not_communicate(summarize: Summarize, name: str) -> None:
    summary = summarize(TraceBuilder().step(0, 0, 100).kernel(name, 10, 20, launched_at=1))
    assert parts(summary.steps[0]) == of(100, 20, 0, 0, 0, 0, 80)
    assert summary[COMMUNICATION_SUMS] == ()


def test_a_users_rule_is_applied(summarize: Summarize) -> None:
    trace = TraceBuilder().step(0, 0, 100).kernel("my_ring_kernel", 10, 20, launched_at=1)
    rules = (CommunicationRule("^my_ring", "all_to_all"), *DEFAULT_RULES)
    summary = summarize(trace, rules=rules)
    assert [(row.kind, row.count, row.total_ns) for row in summary[COMMUNICATION_SUMS]] == [("all_to_all", 1, 20_000)]


def test_a_kernel_launched_by_a_collective_is_no_compute_even_without_rule(summarize: Summarize) -> None:
    trace = TraceBuilder().step(0, 0, 100).kernel("mystery", 10, 20, launched_at=2)
    trace.op("c10d::allreduce_", 1, 3, **{"External id": trace.events[-1]["args"]["External id"]})
    summary = summarize(trace)
    assert parts(summary.steps[0]) == of(100, 0, 20, 0, 20, 0, 80)
    assert [row.kind for row in summary[COMMUNICATION_SUMS]] == ["unclassified"]
    assert [note.id for note in summary.notes] == ["unclassified"]


def test_kind_group_and_size_of_collectives(summarize: Summarize) -> None:
    """The size is that of the full array: the larger of input and output, in bytes of the data type."""
    trace = TraceBuilder(world_size=4).step(0, 0, 1000)
    trace.nccl("all_reduce", 10, 10, launched_at=1, elements=100)
    trace.nccl("all_gather", 30, 10, launched_at=2, group=[0, 2], description="mesh_tp", dtype="BFloat16",
               **{"In msg nelems": 50, "Out msg nelems": 100})  # fmt: skip
    trace.nccl("reduce_scatter", 50, 10, launched_at=3, group=[0, 2], description="mesh_tp", dtype="Half",
               **{"In msg nelems": 60, "Out msg nelems": 30})  # fmt: skip
    trace.nccl("all_to_all", 70, 10, launched_at=4, group=[0, 1], description="", elements=7, dtype="Odd8")
    rows = {(row.kind, row.group and row.group.ranks): row for row in summarize(trace)[COMMUNICATION_SUMS]}
    assert {key: row.size_bytes for key, row in rows.items()} == {
        ("all_reduce", (0, 1, 2, 3)): 400,
        ("all_gather", (0, 2)): 200,
        ("reduce_scatter", (0, 2)): 120,
        ("all_to_all", (0, 1)): None,
    }
    groups = {row.group.description: row.group.parallelism for row in rows.values() if row.group}
    assert groups == {"default_pg": None, "mesh_tp": "tp", "": None}


def test_recorded_groups_give_the_parallelism(summarize: Summarize) -> None:
    trace = TraceBuilder(world_size=4).step(0, 0, 100)
    trace.nccl("all_reduce", 10, 10, launched_at=1, group=[0, 1], description="tp0", **{"Process Group Name": "7"})
    group = Group(id=3, name="7", desc="tp0", backend="nccl", parallelism="tp", ranks=[0, 1])
    (row,) = summarize(trace.capture(groups=[group]))[COMMUNICATION_SUMS]
    assert row.group is not None
    assert (row.group.parallelism, row.group.ranks) == ("tp", (0, 1))


@pytest.mark.parametrize(
    "arguments",
    [
        {"In msg nelems": 2**62, "Out msg nelems": 1},
        {"In msg nelems": -5, "Out msg nelems": -7},
        {"In msg nelems": 1e300},
        {"Process Group Ranks": "[" + "9" * 5000 + "]"},
        {"Process Group Ranks": "[0, 1, ...]"},
        {"Seq": 2**70},
        {"Input Dims": 5, "Input type": None},
        {"Input Dims": [[2**40, 2**40]], "Input type": ["float"]},
        {"Input Dims": None, "Input type": 7},
        {"Input Dims": [[-1, True]], "Input type": {"a": "float"}},
        {"Input Dims": [[[[[[[[3]]]]]]]], "Input type": ["float"]},
    ],
)
def test_invalid_arguments_lose_at_most_the_size(summarize: Summarize, arguments: dict[str, object]) -> None:
    trace = TraceBuilder().step(0, 0, 100).nccl("all_reduce", 10, 10, launched_at=5, **arguments)
    trace.label("nccl:all_reduce", 4, 3)
    trace.events[-1]["args"] |= arguments
    (row,) = summarize(trace)[COMMUNICATION_SUMS]
    assert (row.kind, row.count, row.total_ns) == ("all_reduce", 1, 10_000)
    cpu = TraceBuilder().step(0, 0, 100).gloo("all_reduce", 10, 10, issued_at=9)
    cpu.events[-1]["args"] |= arguments
    cpu.events[-2]["args"] |= arguments
    (row,) = summarize(cpu)[COMMUNICATION_SUMS]
    assert (row.kind, row.count, row.total_ns) == ("all_reduce", 1, 10_000)


def test_a_forward_that_backward_recomputes_is_backward(summarize: Summarize) -> None:
    trace = TraceBuilder().step(0, 0, 100).backward("CheckpointBackward", 20, 60, thread=4000)
    trace.op("aten::mm", 25, 5, **{"Sequence number": 1, "Fwd thread id": 0}).nccl("all_gather", 50, 10, launched_at=40)
    (row,) = summarize(trace)[COMMUNICATION_SUMS]
    assert row.phase == "backward"


def test_equal_collectives_on_two_streams_count_twice(summarize: Summarize) -> None:
    """GIVEN a recording in whole microseconds WHEN two collectives coincide THEN both are counted."""
    trace = TraceBuilder().step(0, 0, 100).kernel("k", 0, 5, launched_at=0)
    trace.nccl("all_reduce", 10, 10, stream=20, launched_at=1).nccl("all_reduce", 10, 10, stream=21, launched_at=2)
    (row,) = summarize(trace)[COMMUNICATION_SUMS]
    assert (row.count, row.size_bytes, row.total_ns) == (2, 8000, 10_000)
