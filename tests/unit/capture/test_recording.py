"""A closed recording holds nothing of the program, and leaves nothing in the program."""

from __future__ import annotations

from typing import Any

import pytest

from tracekit.capture.hooks.patching import CaptureWarning
from tracekit.capture.probe import probe


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
