"""What the host was in at given times. Times are microseconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.builders import TraceBuilder
from tests.unit.rank.test_idle_causes import recorded_steps
from tracekit.explain.step_time.idle import HostLocations, Location
from tracekit.model.intervals import Intervals
from tracekit.rank.idle_causes import idle_by_cause
from tracekit.read.decode.portable import decode


def location_at(trace: TraceBuilder, at_us: float, folder: Path) -> Location:
    locations = HostLocations(recorded_steps(decode(trace.write(folder / "rank0.json"))))
    ((what, location, total_ns),) = locations.sums(np.array([3]), np.array([trace.wall_ns(at_us)]), np.array([7]))
    assert (what, total_ns) == (3, 7)
    return location


def a_trace() -> TraceBuilder:
    trace = TraceBuilder().step(3, 0, 1000).kernel("gemm", 10, 20, launched_at=0)
    trace.op("DistributedDataParallel.forward", 100, 200).op("aten::linear", 120, 50).op("aten::addmm", 130, 30)
    trace.label("Optimizer.step#SGD.step", 400, 100).op("aten::add_", 410, 20)
    trace.backward("AddmmBackward0", 600, 100).op("aten::mm", 620, 50, thread=trace.autograd)
    return trace


@pytest.mark.parametrize(
    ("at_us", "expected"),
    [
        pytest.param(140, ("aten::linear", None, None), id="the outermost operator"),
        pytest.param(200, (None, "DistributedDataParallel.forward", None), id="Python, in a wrapper"),
        pytest.param(420, ("Optimizer.step#SGD.step", None, None), id="the optimizer around its operators"),
        pytest.param(450, ("Optimizer.step#SGD.step", None, None), id="the optimizer's Python"),
        pytest.param(630, ("AddmmBackward0", None, None), id="autograd"),
        pytest.param(800, (None, None, None), id="nothing recorded"),
    ],
)
def test_the_location_of_the_host(tmp_path: Path, at_us: float, expected: Location) -> None:
    assert location_at(a_trace(), at_us, tmp_path) == expected


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (["train.py(10): main", "model.py(20): forward", "torch/nn/modules/linear.py(130): forward"], "model.py(20)"),
        (["train.py(10): main", "/usr/lib/python3.11/logging/__init__.py(1): info"], "train.py(10)"),
        (["/home/me/lib/python3.11/site-packages/torch/optim/sgd.py(5): step"], None),
        (["/venv/lib/python3.11/site-packages/vllm/worker.py(5): run", "<built-in method mm>"], "vllm/worker.py(5)"),
        (["train.py(10): main", "tracekit/capture/probe.py(8): _enter", "nn.Module: Linear_0"], "train.py(10)"),
    ],
)
def test_the_source_is_the_innermost_function_of_the_program(
    tmp_path: Path, frames: list[str], expected: str | None
) -> None:
    trace = a_trace()
    for depth, frame in enumerate(frames):
        trace.event(frame, "python_function", 750 + depth, 200 - 2 * depth)
    _, _, source = location_at(trace, 800, tmp_path)
    assert (source is None) == (expected is None)
    assert expected is None or expected in str(source)


def test_locations_sum_to_the_time_that_is_split(tmp_path: Path) -> None:
    recorded = recorded_steps(decode(a_trace().write(tmp_path / "rank0.json")))
    locations, time = HostLocations(recorded), idle_by_cause(recorded)["host_bound"]
    start_ns, end_ns = locations.split(time)
    assert Intervals.union_of(start_ns, end_ns) == Intervals.union_of(time.start_ns, time.end_ns)
    found = locations.sums(np.zeros(len(start_ns), dtype=np.int64), start_ns, end_ns - start_ns)
    sums = {location: total_ns / 1000 for _, location, total_ns in found}
    assert sums == {
        (None, None, None): 10 + 70 + 100 + 100 + 300,
        ("aten::linear", None, None): 50,
        (None, "DistributedDataParallel.forward", None): 150,
        ("Optimizer.step#SGD.step", None, None): 100,
        ("AddmmBackward0", None, None): 100,
    }
