"""How often windows search the objects of the program, of which there may be millions."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tracekit.capture import windows
from tracekit.capture.hooks.patching import CaptureWarning
from tracekit.capture.job.clock import HostClock
from tracekit.capture.probe import probe
from tracekit.capture.profiler_session import ProfilerSession


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of objects that each search went through, in order."""
    found: list[int] = []
    get_objects = gc.get_objects

    def counted(*args: Any) -> list[Any]:
        objects = get_objects(*args)
        found.append(len(objects))
        return objects

    monkeypatch.setattr(gc, "get_objects", counted)
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"skip": 0, "warmup": 0}, {0: 1, 3: 1}),
        ({}, {0: 1, 3: 1}),
        ({"skip": 2}, {0: 1, 2: 1}),
        # Windows that follow each other: one closes in the call in which the next warms up.
        ({"repeat": 3}, {0: 1, 3: 1, 7: 1, 11: 1}),
        ({"repeat": 2, "every": 6}, {0: 1, 3: 1, 9: 1}),
    ],
)
def test_each_call_searches_at_most_once_and_none_searches_to_open_or_close_after_a_warm_up(
    runs: Any, work: Callable[[], float], searches: list[int], options: dict[str, int], expected: dict[int, int]
) -> None:
    step = probe(path=runs.path, **options)(work)

    actual = {}
    for call in range(20):
        before = len(searches)
        step()
        if len(searches) > before:
            actual[call] = len(searches) - before

    assert actual == expected


@pytest.mark.parametrize(
    ("captured", "recorded"),
    [
        (range(2, 5), [6, 7]),  # prepared in call 5, as a warm-up is before the first recorded call
        (range(3, 4), [4, 5]),  # prepared, and opened a call later
        (range(4, 6), [3, 4]),  # closed when the graph is captured; what is captured meanwhile is no step
    ],
)
def test_no_window_is_prepared_opened_or_closed_while_a_graph_is_captured(
    runs: Any,
    work: Callable[[], float],
    monkeypatch: pytest.MonkeyPatch,
    captured: Sequence[int],
    recorded: list[int],
) -> None:
    edges: list[int] = []
    for name in ("prepare", "start", "stop"):
        original = getattr(ProfilerSession, name)

        def noted(session: ProfilerSession, original: Callable[..., Any] = original) -> None:
            edges.append(call)
            original(session)

        monkeypatch.setattr(ProfilerSession, name, noted)
    monkeypatch.setattr(windows, "is_capturing_graph", lambda: call in captured)
    recorder = probe(path=runs.path, skip=2, warmup=1, steps=2)
    step = recorder(work)
    for call in range(10):  # noqa: B007 (read by the stand-ins)
        step()
    recorder.finish()

    assert set(edges).isdisjoint(captured)
    assert runs.steps() == [recorded]
    assert runs.traces()[0]["tracekit"]["window"]["partial"] is False


def test_a_job_that_is_too_short_for_its_window_says_so(runs: Any, work: Callable[[], float]) -> None:
    recorder = probe(path=runs.path)
    step = recorder(work)
    for _ in range(3):
        step()

    with pytest.warns(CaptureWarning, match=r"ended after 3 steps.*need 7 a window: recorded 0; lower skip or steps"):
        recorder.finish()

    assert runs.files() == []


@pytest.mark.parametrize(
    ("options", "expected"), [({}, [3, 7]), ({"warmup": 0}, [2, 6]), ({"skip": 0, "warmup": 0}, [0, 3])]
)
def test_clocks_are_measured_a_call_before_the_first_recorded_one(
    runs: Any,
    work: Callable[[], float],
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, int],
    expected: list[int],
) -> None:
    """One rank of each host measures for all: in a recorded call the others would wait for it."""
    actual: list[int] = []
    step = probe(path=runs.path, **options)(work)
    call = 0
    monkeypatch.setattr(HostClock, "measure", lambda clock: actual.append(call))

    for call in range(10):  # noqa: B007 (read by the clock)
        step()

    assert actual == expected
