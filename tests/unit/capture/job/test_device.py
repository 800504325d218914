"""The accelerator of a process, by whatever name torch has for it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from tracekit.capture.job.process import accelerator_module, is_capturing_graph, this_device


@pytest.fixture
def stub(torch: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An accelerator `torch.stub` that this process uses; `capturing` says whether a graph is being captured."""
    module = ModuleType("torch.stub")
    module.capturing = False  # type: ignore[attr-defined]
    module.is_available = module.is_initialized = lambda: True  # type: ignore[attr-defined]
    module.current_device = lambda: 3  # type: ignore[attr-defined]
    module.get_device_name = lambda index: f"Stub {index}"  # type: ignore[attr-defined]
    module.is_current_stream_capturing = lambda: module.capturing  # type: ignore[attr-defined]
    monkeypatch.setattr(torch, "stub", module, raising=False)
    device = type("device", (), {"type": "stub"})
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: device)
    return module


def test_without_an_accelerator_the_device_is_the_cpu(torch: Any) -> None:
    assert accelerator_module() is None
    assert this_device().type == "cpu"
    assert is_capturing_graph() is False


def test_torch_may_raise_where_there_is_no_accelerator(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN builds for CPUs of torch 2.6, which raise rather than return None."""

    def raise_error() -> None:
        raise RuntimeError("Cannot access accelerator device when none is available.")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", raise_error)

    assert this_device().type == "cpu"
    assert is_capturing_graph() is False


def test_an_accelerator_of_any_name_is_found(stub: ModuleType) -> None:
    device = this_device()

    assert accelerator_module() is stub
    assert (device.type, device.index, device.name) == ("stub", 3, "Stub 3")


def test_an_accelerator_that_training_does_not_use_is_left_alone(stub: ModuleType) -> None:
    stub.is_initialized = lambda: False  # type: ignore[attr-defined]

    assert accelerator_module() is None


def test_a_graph_that_is_captured_is_noticed(stub: ModuleType) -> None:
    stub.capturing = True  # type: ignore[attr-defined]

    assert is_capturing_graph() is True
