"""What device events do whose names do not tell it. Times are microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.summarized_trace import summarize_trace
from tracekit.explain.communication.tables import COMMUNICATION_SUMS
from tracekit.loading.options import SummaryOptions
from tracekit.rank.communication_rules import parse_rule
from tracekit.read.decode.portable import decode


def kinds(folder: Path, trace: TraceBuilder, *rules: str) -> dict[str, int]:
    """Return the count of each kind."""
    options = SummaryOptions().with_rules([parse_rule(rule) for rule in rules])
    summary = summarize_trace(decode(trace.write(folder / "rank0.json")), 0, options)
    return {row.kind: row.count for row in summary[COMMUNICATION_SUMS]}


def a_step() -> TraceBuilder:
    """A kernel that computes, on stream 7."""
    return TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 3).kernel("custom_mm", 5, 10, launched_at=1)


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("symm_mem::one_shot_all_reduce", "cpu_op"),
        ("_C_custom_ar::all_reduce", "cpu_op"),
        ("FusedDispatch", "cpu_op"),
        ("autograd::engine::evaluate_function: FusedCombineBackward", "cpu_op"),
        ("_AllToAll", "cpu_op"),
        ("deep_ep/buffer.py(354): dispatch", "python_function"),
        ("<built-in method internode_combine of deep_ep_cpp.Buffer object at 0x7f>", "python_function"),
        ("nn.Module: MoEAlltoAllTokenDispatcher_3", "python_function"),
        ("torch/distributed/distributed_c10d.py(2776): broadcast", "python_function"),
        ("nccl:broadcast", "user_annotation"),
        ("c10d::broadcast_", "cpu_op"),
    ],
)
def test_a_stream_of_its_own_that_something_distributed_launches_on(tmp_path: Path, name: str, category: str) -> None:
    trace = a_step().event(name, category, 10, 10).kernel("mystery", 40, 10, stream=33, launched_at=12)
    assert kinds(tmp_path, trace) == {"unclassified": 1}


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("MoELayer", "cpu_op"),
        ("aten::all_gather_like", "cpu_op"),
        ("torch/distributed/fsdp/fully_sharded_data_parallel.py(850): forward", "python_function"),
        ("dispatch(F)", "user_annotation"),
        ("nn.Module: DeepEpilogue_0", "python_function"),
    ],
)
def test_a_stream_that_nothing_distributed_launches_on_computes(tmp_path: Path, name: str, category: str) -> None:
    trace = a_step().event(name, category, 10, 10).kernel("mystery", 40, 10, stream=33, launched_at=12)
    assert kinds(tmp_path, trace) == {}


def launched_by(operator: str) -> TraceBuilder:
    """A kernel on stream 33 launched at 12, by an operator inside one of symmetric memory."""
    trace = a_step().op("symm_mem::fused_all_gather_matmul", 10, 10).op(operator, 11, 5)
    return trace.kernel("mystery", 40, 10, stream=33, launched_at=12)


def test_a_kernel_with_an_operator_that_computes_behind_it_computes(tmp_path: Path) -> None:
    assert kinds(tmp_path, launched_by("aten::mm")) == {}
    assert kinds(tmp_path, launched_by("_GroupedGemm")) == {}
    assert kinds(tmp_path, launched_by("symm_mem::one_shot_all_reduce")) == {"unclassified": 1}


def test_a_stream_that_also_computes_is_no_evidence(tmp_path: Path) -> None:
    """A kernel that no rule is for, or that one of tracekit's rules calls compute, makes it a stream of compute."""
    for other in ("other", "ampere_gemm_128x64"):
        trace = launched_by("symm_mem::one_shot_all_reduce").kernel(other, 60, 10, stream=33, launched_at=30)
        assert kinds(tmp_path, trace) == {}


def test_a_copy_of_torch_on_a_stream_of_fsdp_computes(tmp_path: Path) -> None:
    trace = a_step().op("fsdp::all_gather_copy_in", 10, 10)
    trace.kernel("void at::native::multi_tensor_apply_kernel<int>(int)", 40, 10, stream=33, launched_at=12)
    assert kinds(tmp_path, trace) == {}


def test_a_users_rule_about_one_kernel_changes_no_other(tmp_path: Path) -> None:
    trace = launched_by("symm_mem::one_shot_all_reduce").kernel("cast", 60, 10, stream=33, launched_at=14)
    assert kinds(tmp_path, trace) == {"unclassified": 2}
    assert kinds(tmp_path, trace, "^cast=compute") == {"unclassified": 1}
    assert kinds(tmp_path, trace, "^cast=all_to_all") == {"unclassified": 1, "all_to_all": 1}


def test_a_kernel_that_is_not_linked_to_its_launch_is_no_evidence(tmp_path: Path) -> None:
    trace = a_step().op("symm_mem::one_shot_all_reduce", 10, 10).kernel("mystery", 40, 10, stream=33)
    assert kinds(tmp_path, trace) == {}


def copy(call: str, name: str = "Memcpy DtoD (Device -> Device)") -> TraceBuilder:
    trace = a_step()
    ids: dict[str, Any] = {"External id": 900, "correlation": 900}
    trace.event(call, "cuda_runtime", 20, 1, args=ids)
    return trace.event(name, "gpu_memcpy", 30, 10, pid=0, thread=13, args=ids | {"device": 0, "stream": 13})


@pytest.mark.parametrize("call", ["cudaMemcpyPeerAsync", "cuMemcpyPeerAsync", "hipMemcpyPeerAsync", "cudaMemcpy3DPeer"])
def test_a_copy_between_two_devices_communicates_by_its_call(tmp_path: Path, call: str) -> None:
    """ROCm names it like a copy within one device."""
    assert kinds(tmp_path, copy(call)) == {"peer_copy": 1}


def test_a_copy_within_a_device_does_not_communicate(tmp_path: Path) -> None:
    assert kinds(tmp_path, copy("cudaMemcpyAsync")) == {}
    assert kinds(tmp_path, copy("cudaMemcpyAsync", "Memcpy PtoP (Device -> Device)")) == {"peer_copy": 1}


def test_a_notification_is_of_the_kind_of_the_exchange_that_follows_on_its_stream(tmp_path: Path) -> None:
    trace = a_step()
    names = ("cached_notify", "dispatch", "cached_notify", "combine", "cached_notify")
    for number, name in enumerate(names):
        trace.kernel(f"void dpsk::ep::internode::{name}<false>(int)", 20 + 10 * number, 5, stream=27, launched_at=10)
    trace.kernel("void dpsk::ep::internode::dispatch<false>(int)", 75, 5, stream=28, launched_at=10)
    assert kinds(tmp_path, trace) == {"dispatch": 3, "combine": 2, "unknown": 1}
