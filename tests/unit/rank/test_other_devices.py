"""Which devices are not read, and which recordings are only unusual: categories of anybody, and of GPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.loading.load import load
from tracekit.rank.other_devices import other_device
from tracekit.read.decode.portable import decode
from tracekit.report.report import analyze


def with_events(
    category: str, *, backend: str = "gloo", device: str | None = None, kernel: bool = False
) -> TraceBuilder:
    trace = TraceBuilder(world_size=2).step(0, 0, 100).op("aten::mm", 5, 40)
    trace.header["distributedInfo"]["backend"] = backend
    trace.header["deviceProperties"] = [] if device is None else [{"id": 0, "name": device}]
    if kernel:
        trace.kernel("gemm", 20, 50, launched_at=5)
    return trace.event("job", category, 20, 50, pid=9, thread=1) if category else trace


def of_ascend() -> TraceBuilder:
    """As Ascend's profiler writes it: processes have names, and events of the device no category."""
    trace = with_events("").event("MatMul", "", 20, 50, pid=77, thread=3)
    return trace.raw(ph="M", name="process_name", pid=77, tid=0, ts=0, args={"name": "Ascend Hardware"})


OTHERS: dict[str, tuple[str, Callable[[], TraceBuilder]]] = {
    "MTIA": ("mtia", lambda: with_events("mtia_ccp_events")),
    "Gaudi": ("hpu", lambda: with_events("hpu_op", backend="hccl")),
    "a backend of torch's own": ("privateuse1", lambda: with_events("privateuse1_runtime", kernel=True)),
    "a category of nobody, under a backend that says so": ("npu", lambda: with_events("task", backend="npu:hccl")),
    "the same beside kernels": ("npu", lambda: with_events("task", backend="npu:hccl", kernel=True)),
    "a category of nobody, under a device that says so": ("Ascend910B", lambda: with_events("t", device="Ascend910B")),
    "only operators, under HCCL": ("hccl", lambda: with_events("", backend="hccl")),
    "processes that say so": ("Ascend Hardware", of_ascend),
}
UNDERSTOOD: dict[str, Callable[[], TraceBuilder]] = {
    "a category of the user on a CPU": lambda: with_events("my_phases"),
    "a category of the user on a GPU": lambda: with_events("my_phases", backend="nccl", kernel=True),
    "the default backends of torch": lambda: with_events("my_phases", backend="cpu:gloo,cuda:nccl,xpu:xccl"),
    "Gloo on a host with an accelerator": lambda: with_events("", device="Ascend910B"),
    "kernels of a library of communication that nobody knows": lambda: with_events("", backend="tccl", kernel=True),
}


@pytest.mark.parametrize(("kind", "trace"), OTHERS.values(), ids=OTHERS)
def test_a_device_that_is_not_understood_is_named(tmp_path: Path, kind: str, trace: Callable[[], TraceBuilder]) -> None:
    other = other_device(decode(trace().write(tmp_path / "rank0.json")))
    assert other is not None
    assert other.startswith(f"{kind} (seen: 1 ")


@pytest.mark.parametrize("trace", UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_unusual_recordings_of_cpus_and_gpus_are_read(tmp_path: Path, trace: Callable[[], TraceBuilder]) -> None:
    assert other_device(decode(trace().write(tmp_path / "rank0.json"))) is None


def test_beside_a_device_that_is_not_understood_nothing_is_cleared(tmp_path: Path) -> None:
    """GIVEN a CPU rank that computes all the time, and an NPU."""
    computes = TraceBuilder(rank=0).step(0, 0, 100).op("aten::mm", 0, 100)
    npu = with_events("task", backend="npu:hccl")
    npu.rank = npu.header["distributedInfo"]["rank"] = 1
    report = analyze(load(write_run(tmp_path, [computes, npu])))

    assert [finding.id for finding in report.findings] == ["ranks-without-times"]
    assert report.findings[0].evidence["ranks"] == [1]
    assert [len(summary.steps) for summary in report.run.ranks] == [1, 0]
