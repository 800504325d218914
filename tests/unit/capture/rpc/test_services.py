"""What is noted of a served call: its updates, the versions at its end, and the call that completed its future."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tracekit.capture.job.rpc_worker import Worker
from tracekit.capture.rpc import services
from tracekit.capture.rpc import services as module
from tracekit.capture.rpc.services import begin_service, running_service, take_services, use_of
from tracekit.model.metadata import RpcCallId

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import torch.optim.optimizer as optimizers

    for name, value in (("_numbers", type(services._numbers)()), ("_versions", []), ("_optimizers", [])):
        monkeypatch.setattr(services, name, value)
    monkeypatch.setattr(services, "_is_watching", False)
    monkeypatch.setattr(module, "_services", [])
    hooks = optimizers._global_optimizer_post_hooks.copy()
    yield
    optimizers._global_optimizer_post_hooks.clear()
    optimizers._global_optimizer_post_hooks.update(hooks)


@pytest.fixture
def optimizer() -> torch.optim.Optimizer:
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.ones(2)
    return torch.optim.SGD([parameter], lr=0.1)


def test_an_update_is_a_call_in_which_an_optimizer_took_a_step(optimizer: torch.optim.Optimizer) -> None:
    pull = begin_service(1, 0, "pull")
    optimizer.step()  # by this call, though no function is named for it
    optimizer.step()
    pull.leave()
    pull.end([torch.zeros(2)])

    record = pull.record()
    assert [(update.optimizer, update.version) for update in record.updates] == [(0, 1)]
    assert (record.versions, record.updates_meanwhile, record.released_by) == ([2], 0, None)
    assert record.cpu_ns is not None
    assert 0 <= record.cpu_ns <= record.end_ns - record.start_ns + 10_000_000
    use = use_of(Worker(name="ps", number=0, world_size=2, threads=16), take_services())
    assert [result.shapes for result in use.results] == [[[2]]]
    assert ([optimizer.shapes for optimizer in use.optimizers], use.threads) == ([[[2]]], 16)


def test_a_step_of_another_call_is_meanwhile(optimizer: torch.optim.Optimizer) -> None:
    pull = begin_service(1, 0, "pull")
    pull.leave()  # as on another thread
    push = begin_service(2, 0, "push")
    optimizer.step()
    push.leave()
    push.end()
    pull.end()

    assert (pull.record().updates, pull.record().updates_meanwhile, pull.record().versions) == ([], 1, [1])
    assert (len(push.record().updates), push.record().updates_meanwhile) == (1, 0)


def test_a_future_that_another_call_completes_is_released_by_it() -> None:
    waiting = begin_service(1, 4, "exchange")
    waiting.leave()
    last = begin_service(2, 7, "exchange")
    waiting.end()
    last.leave()
    last.end()

    assert waiting.record().released_by == RpcCallId(caller=2, number=7)
    assert last.record().released_by is None


def test_a_service_within_another_returns_the_thread_to_it() -> None:
    outer = begin_service(1, 0, "outer")
    inner = begin_service(1, 1, "inner")
    assert running_service() is inner
    inner.leave()
    assert running_service() is outer
    outer.leave()
    assert running_service() is None
