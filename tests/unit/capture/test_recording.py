"""A closed recording holds nothing of the program, and leaves nothing in the program."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tests.components import require_module
from tracekit.capture.observers.parallelism.rpc import RpcObserver
from tracekit.capture.probe import probe
from tracekit.capture.rpc import services as served
from tracekit.capture.rpc.remote_calls import Worker
from tracekit.capture.rpc.services import Service, return_services, take_services
from tracekit.capture.warn import CaptureWarning


@pytest.fixture(scope="module")
def distributed() -> Iterator[Any]:
    """torch with a process group of one rank."""
    torch = require_module("torch")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield torch
    torch.distributed.destroy_process_group()


@pytest.fixture
def services() -> Iterator[list[Service]]:
    """The remote calls that this process serves: two have ended, and one runs."""
    served._services[:] = [
        Service(caller=1, number=number, function="pull", thread=7, start_ns=10 * number, end_ns=end_ns)
        for number, end_ns in enumerate([5, 15, None])
    ]
    yield served._services
    served._services.clear()


def test_a_waiting_provisional_recording_does_not_keep_a_dropped_model_alive(distributed: Any, runs: Any) -> None:
    torch = distributed
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    dropped = weakref.ref(model.module.weight)
    recorder = probe(path=runs.path, skip=1000)

    @recorder
    def step(model: Any) -> None:
        model(torch.ones(2, 4)).sum().backward()

    for _ in range(3):
        step(model)
    del model
    gc.collect()

    assert dropped() is None
    with pytest.warns(CaptureWarning, match="ended after 3 steps"):
        recorder.finish()
    (trace,) = runs.traces()
    assert len(trace["tracekit"]["ddp"]) == 1
    assert trace["tracekit"]["strategies"] == ["ddp"]


def test_backward_is_restored_after_another_profiler_started_in_a_step(torch: Any, runs: Any) -> None:
    backward, weight = torch.autograd.backward, torch.ones(3, requires_grad=True)
    recorder = probe(path=runs.path, skip=0, warmup=0, steps=2)

    @recorder
    def step(with_rival: bool) -> None:
        weight.sum().backward()
        if with_rival:
            with torch.profiler.profile():
                torch.ones(2)

    step(False)
    with pytest.warns(CaptureWarning, match="another profiler was started"):
        step(True)

    assert torch.autograd.backward is backward


def test_backward_is_restored_after_a_failure_of_the_probe(
    torch: Any, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("torch has changed")

    backward = torch.autograd.backward
    monkeypatch.setattr("tracekit.capture.recording.Recording.mark", fail)
    with pytest.warns(CaptureWarning, match="torch has changed"):
        probe(path=runs.path, skip=0, warmup=0)(lambda: None)()

    assert torch.autograd.backward is backward


def test_a_step_that_raised_has_no_end_even_if_another_follows(torch: Any, runs: Any) -> None:
    @probe(path=runs.path, skip=0, warmup=0, steps=3)
    def step(call: int) -> None:
        torch.ones(3)
        if call == 1:
            raise ValueError("the user's own")

    for call in range(4):
        try:
            step(call)
        except ValueError:
            assert call == 1

    (trace,) = runs.traces()
    assert [step["end_ns"] is None for step in trace["tracekit"]["steps"]] == [False, True, False]
    assert trace["tracekit"]["window"]["partial"] is True


def test_services_of_a_dropped_recording_go_to_the_next_one(services: list[Service]) -> None:
    running = services[2]

    taken = [service.record() for service in take_services()]
    assert services == [running]
    return_services(taken)

    assert [service.number for service in services] == [0, 1, 2]
    assert [service.record() for service in take_services()] == taken


def test_the_first_window_has_the_services_of_the_early_recording(
    torch: Any, runs: Any, services: list[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Because a caller that ends early keeps the calls of its first steps."""

    def attach(self: RpcObserver, program: object) -> None:
        self._worker = Worker(name="trainer", number=0, world_size=1)

    monkeypatch.setattr(RpcObserver, "attach", attach)
    step = probe(path=runs.path, skip=2, warmup=0, steps=1)(lambda: torch.ones(3))

    for _ in range(4):
        step()

    (trace,) = runs.traces()
    assert [step["step"] for step in trace["tracekit"]["steps"]] == [2]
    assert [service["number"] for service in trace["tracekit"]["rpc"]["services"]] == [0, 1]
