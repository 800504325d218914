"""The steps of real optimizers are counted, and passed on from the thread that takes them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tracekit.capture.rpc import services
from tracekit.model.metadata import RpcUpdate

torch = pytest.importorskip("torch")


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, RpcUpdate]]]:
    """What is noted, with the thread; afterwards no optimizer is watched."""
    import torch.optim.optimizer as module

    for name, value in (("_numbers", type(services._numbers)()), ("_versions", []), ("_optimizers", [])):
        monkeypatch.setattr(services, name, value)
    monkeypatch.setattr(services, "_is_watching", False)
    hooks = module._global_optimizer_post_hooks.copy()
    noted: list[tuple[int, RpcUpdate]] = []
    services.watch_optimizers(lambda update: noted.append((threading.get_ident(), update)))
    yield noted
    module._global_optimizer_post_hooks.clear()
    module._global_optimizer_post_hooks.update(hooks)


def optimizer_of(*shape: int) -> torch.optim.Optimizer:
    parameter = torch.nn.Parameter(torch.zeros(*shape))
    parameter.grad = torch.ones(*shape)
    return torch.optim.SGD([parameter], lr=0.1)


def test_each_optimizer_has_a_version_from_its_first_step_on(noted: list[tuple[int, RpcUpdate]]) -> None:
    first, second = optimizer_of(2, 3), optimizer_of(4)

    first.step()
    second.step()
    first.step()

    assert [(update.optimizer, update.version) for _, update in noted] == [(0, 1), (1, 1), (0, 2)]
    assert (services.versions(), services.steps_taken()) == ([2, 1], 3)
    assert [optimizer.shapes for optimizer in services.optimizers()] == [[[2, 3]], [[4]]]


def test_steps_of_several_threads_are_all_counted(noted: list[tuple[int, RpcUpdate]]) -> None:
    shared = optimizer_of(2)
    threads = [threading.Thread(target=lambda: [shared.step() for _ in range(50)]) for _ in range(4)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert services.versions() == [200]
    assert sorted(update.version for _, update in noted) == list(range(1, 201))
    assert len({thread for thread, _ in noted}) > 1


def test_with_very_many_optimizers_no_version_is_known(noted: list[tuple[int, RpcUpdate]]) -> None:
    for _ in range(services._MAX_OPTIMIZERS + 3):
        optimizer_of(1).step()

    assert services.versions() is None
    assert len(noted) == services._MAX_OPTIMIZERS + 1


def test_a_second_watch_counts_nothing_twice(noted: list[tuple[int, RpcUpdate]]) -> None:
    services.watch_optimizers(lambda update: None)

    optimizer_of(1).step()

    assert services.versions() == [1]


def test_without_a_watch_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "_is_watching", False)

    assert services.versions() is None
