"""The probe beside other profilers of the program: it does not disturb them, and leaves nothing patched or running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tracekit.capture.hooks.patching import CaptureWarning
from tracekit.capture.probe import probe

# A single process gets no warning.
pytestmark = pytest.mark.filterwarnings("error::tracekit.capture.hooks.patching.CaptureWarning")


def test_nothing_is_recorded_beside_a_running_profiler_and_one_warning_says_so(
    torch: Any, runs: Any, work: Callable[[], float]
) -> None:
    step = probe(path=runs.path, repeat=3)(work)

    with torch.profiler.profile() as foreign, pytest.warns(CaptureWarning) as caught:  # noqa: PT031
        for _ in range(30):
            step()

    assert len(caught) == 1
    assert "a profiler is already running" in str(caught[0].message)
    assert runs.files() == []
    assert sum(event.name == "aten::ones" for event in foreign.events()) == 30


def test_nothing_is_recorded_beside_a_profiler_in_its_warm_up(torch: Any, runs: Any, work: Callable[[], float]) -> None:
    step = probe(path=runs.path, skip=0, warmup=0)(work)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1)

    with (  # noqa: PT031
        torch.profiler.profile(schedule=schedule) as foreign,
        pytest.warns(CaptureWarning, match="in its warm-up"),
    ):
        for _ in range(3):
            step()
            foreign.step()

    assert runs.files() == []
    assert sum(event.name == "aten::ones" for event in foreign.events()) == 2


def test_a_window_ends_when_another_profiler_starts(torch: Any, runs: Any, work: Callable[[], float]) -> None:
    step = probe(path=runs.path, skip=0, warmup=0)(work)
    step()
    step()

    with (  # noqa: PT031
        pytest.warns(CaptureWarning, match="another profiler was started"),
        torch.profiler.profile() as foreign,
    ):
        for _ in range(5):
            step()

    assert sum(event.name == "aten::ones" for event in foreign.events()) == 5
    assert runs.steps() == [[0, 1]]
    assert runs.traces()[0]["tracekit"]["window"]["partial"] is True


def test_nothing_is_left_patched_or_running_after_a_window(torch: Any, runs: Any, work: Callable[[], float]) -> None:
    before = (
        torch.distributed.Work.wait,
        torch.distributed.destroy_process_group,
        torch.autograd.profiler.profile._prepare_trace,
        torch.autograd.profiler.profile._start_trace,
    )
    step = probe(path=runs.path, skip=0, warmup=0, steps=1)(work)
    step()
    during = torch.distributed.Work.wait
    step()
    runs.wait()
    step()  # nothing is being written any more

    assert during is not before[0]
    assert before == (
        torch.distributed.Work.wait,
        torch.distributed.destroy_process_group,
        torch.autograd.profiler.profile._prepare_trace,
        torch.autograd.profiler.profile._start_trace,
    )
    assert not torch.autograd._profiler_enabled()
