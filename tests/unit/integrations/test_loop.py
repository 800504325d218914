"""How callbacks of a framework drive the probe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.components import require_module
from tracekit.errors import UsageError
from tracekit.integrations import loop
from tracekit.integrations.accelerate import AccelerateProbe
from tracekit.integrations.loop import RecordedLoop


class FakeProbe:
    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def __enter__(self) -> FakeProbe:
        self.calls.append("enter")
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.calls.append("exit" if kind is None else f"exit by {kind.__name__}")

    def step(self) -> None:
        self.calls.append("step")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of all probes of the test."""
    calls: list[str] = []
    monkeypatch.setattr(loop, "probe", lambda path, **options: FakeProbe(calls))
    return calls


def test_a_loop_begins_once_and_each_step_call_ends_a_step(calls: list[str]) -> None:
    recorded = RecordedLoop("runs", {})
    recorded.begin()
    recorded.step()
    recorded.begin()  # frameworks call this for every batch
    recorded.step()
    recorded.end()

    assert calls == ["enter", "step", "step", "exit"]


def test_the_error_of_a_failed_loop_reaches_the_probe(calls: list[str]) -> None:
    recorded = RecordedLoop("runs", {})
    recorded.begin()
    recorded.end(ValueError("the user's own"))
    recorded.end()

    assert calls == ["enter", "exit by ValueError"]


def test_a_step_before_the_loop_begins_is_ignored(calls: list[str]) -> None:
    recorded = RecordedLoop("runs", {})
    recorded.step()
    recorded.end()

    assert calls == []


def test_a_second_loop_is_recorded_too(calls: list[str]) -> None:
    recorded = RecordedLoop("runs", {})
    for _ in range(2):
        recorded.begin()
        recorded.end()

    assert calls == ["enter", "exit"] * 2


def test_accelerate_s_micro_batches_are_parts_of_a_step(calls: list[str]) -> None:
    class Accelerator:
        sync_gradients = False

    accelerator = Accelerator()
    with AccelerateProbe(accelerator, "runs") as probe:
        for accelerator.sync_gradients in (False, True, False, True):
            probe.step()

    assert calls == ["enter", "step", "step", "exit"]


def test_contradictory_options_raise_before_training(tmp_path: Path) -> None:
    require_module("torch")
    for wrong in ({"steps": 0}, {"every": 1}, {"max_bytes": -1}):
        with pytest.raises(UsageError):
            AccelerateProbe(object(), tmp_path, **wrong)
    with pytest.raises(TypeError, match="step"):
        AccelerateProbe(object(), tmp_path, step=3)


def test_no_probe_is_created_before_the_loop_begins(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[str] = []
    monkeypatch.setattr(loop, "probe", lambda path, **options: created.append(path) or FakeProbe([]))

    recorded = RecordedLoop("runs", {"steps": 2})
    assert created == []
    recorded.begin()

    assert created == ["runs"]
