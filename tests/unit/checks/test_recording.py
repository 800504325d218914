"""Whether recording works in the process of the tests."""

from __future__ import annotations

from tracekit.checks.recording import try_torch


def test_torch_is_tried_for_real() -> None:
    parts = {part.name: part for part in try_torch()}
    assert list(parts) == ["torch", "profiler", "gpu", "distributed", "gloo", "nccl"]
    assert not [part for part in parts.values() if part.works is False]
    assert parts["gloo"].works is True
