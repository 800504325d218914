"""How often windows search the objects of the program, of which there may be millions."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from tracekit.capture.job.clock import HostClock
from tracekit.capture.probe import probe


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
        # The provisional recording opens and closes; the window warms up and closes.
        ({}, {0: 1, 2: 1, 3: 1}),
        # The provisional recording closes in the call in which the window warms up.
        ({"skip": 2}, {0: 1, 2: 1}),
        # Windows that follow each other: one closes in the call in which the next warms up.
        ({"repeat": 3}, {0: 1, 2: 1, 3: 1, 7: 1, 11: 1}),
        ({"repeat": 2, "every": 6}, {0: 1, 2: 1, 3: 1, 9: 1}),
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
