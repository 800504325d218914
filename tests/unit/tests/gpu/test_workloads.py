"""What the workloads of `make gpu` do, on a stand-in for CUDA: they run to their end, and know what they did.

The stand-in runs kernels at once, on the CPU. A graph of it keeps the operators that are captured, and runs them when
it is replayed. What a device records of all this is for the tests in `tests/gpu/`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.components import require_module
from tests.integration.recorded import read_traces
from tracekit.capture.probe_object import _started_probes

torch = require_module("torch")
TorchDispatchMode = require_module("torch.utils._python_dispatch").TorchDispatchMode
workloads = require_module("tests.gpu.workloads")


class Event:
    """Each of them happens a millisecond after the one before."""

    now_ms = 0.0

    def __init__(self, enable_timing: bool = False) -> None:
        self.at_ms = -1.0

    def record(self) -> None:
        Event.now_ms += 1.0
        self.at_ms = Event.now_ms

    def synchronize(self) -> None:
        assert self.at_ms > 0

    def elapsed_time(self, end: Event) -> float:
        return end.at_ms - self.at_ms


class Stream:
    def wait_stream(self, other: Stream) -> None:
        assert isinstance(other, Stream)


class CapturedGraph(TorchDispatchMode):
    """`torch.cuda.CUDAGraph`: operators in place, kept instead of run."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace != "aten":  # such as the spans of a profiler
            return func(*args, **(kwargs or {}))
        self.kept.append((func, args, kwargs or {}))
        return args[0]

    def replay(self) -> None:
        for func, args, kwargs in self.kept:
            func(*args, **kwargs)


class Cuda:
    """What the workloads ask of `torch.cuda`."""

    def __init__(self) -> None:
        self.spins = 0
        self.capturing: CapturedGraph | None = None

    def sleep(self, cycles: int) -> None:
        assert cycles > 0
        self.spins += self.capturing is None

    @contextlib.contextmanager
    def graph(self, graph: CapturedGraph) -> Iterator[None]:
        self.capturing = graph
        with graph:
            yield
        self.capturing = None

    def is_capturing(self) -> bool:
        return self.capturing is not None


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cuda]:
    stand_in = Cuda()
    replaced = {
        "_sleep": stand_in.sleep,
        "Event": Event,
        "Stream": Stream,
        "CUDAGraph": CapturedGraph,
        "graph": stand_in.graph,
        "stream": lambda stream: contextlib.nullcontext(),
        "current_stream": Stream,
        "synchronize": lambda: None,
        "is_current_stream_capturing": stand_in.is_capturing,
    }
    for name, value in replaced.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(workloads, "DEVICE", torch.device("cpu"))
    for name in ("prepare", "start", "stop"):  # which a workload replaces
        monkeypatch.setattr(workloads.ProfilerSession, name, getattr(workloads.ProfilerSession, name))
    workloads.cycles_per_ms.cache_clear()
    yield stand_in
    workloads.cycles_per_ms.cache_clear()


def recorded_steps(out: Path) -> int:
    for started in list(_started_probes):  # in a process of its own, they have written when it has ended
        started.finish()
    (trace,) = read_traces(out)
    return len(trace["tracekit"]["steps"])


@pytest.mark.parametrize(("name", "spins_of_step"), [("classification", 1), ("streams", 2), ("synchronisation", 3)])
def test_every_step_spins_as_often_as_it_says(name: str, spins_of_step: int, cuda: Cuda, tmp_path: Path) -> None:
    workloads.cycles_per_ms()
    cuda.spins = 0

    facts = workloads.WORKLOADS[name](tmp_path)

    assert cuda.spins == spins_of_step * workloads.CALLS
    assert facts.get("spins_of_step", 1) == spins_of_step
    assert recorded_steps(tmp_path) == workloads.STEPS


def test_replays_add_up(cuda: Cuda, tmp_path: Path) -> None:
    facts = workloads.graphs(tmp_path)

    assert facts["total"] == facts["expected_total"] == 2 * 7 * 4
    assert recorded_steps(tmp_path) == workloads.STEPS


def test_a_graph_that_is_captured_in_the_window_is_replayed_from_there_on(cuda: Cuda, tmp_path: Path) -> None:
    facts = workloads.capture_in_window(tmp_path)

    assert facts["totals"] == facts["expected_totals"] == [4 * 4, 4 * 3]
    assert recorded_steps(tmp_path) == workloads.STEPS


def test_captured_steps_count_like_the_others_and_every_edge_is_noted(cuda: Cuda, tmp_path: Path) -> None:
    facts = workloads.window_edges(tmp_path)

    assert facts["total"] == facts["expected_total"] == 2 * workloads.CALLS
    assert {name for name, _ in facts["edges"]} == {"prepare", "start", "stop"}
    assert recorded_steps(tmp_path) > 0


def test_as_many_steps_are_timed_without_a_recording_as_with_one(cuda: Cuda, tmp_path: Path) -> None:
    facts = workloads.overhead(tmp_path)

    assert facts == {"kernels": 2000, "steps": 20, "plain_ms": 1.0, "recorded_ms": 1.0}
    assert recorded_steps(tmp_path) == 20
