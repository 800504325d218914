"""Several probes in one process: each has its own run, and no two of them record at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tracekit.capture.hooks.patching import CaptureWarning
from tracekit.capture.probe import probe
from tracekit.read.files.discover import discover

pytestmark = pytest.mark.filterwarnings("error::tracekit.capture.hooks.patching.CaptureWarning")


def recorded(runs: Any) -> set[tuple[str, tuple[int, ...]]]:
    return {(t["tracekit"]["run_id"], tuple(s["step"] for s in t["tracekit"]["steps"])) for t in runs.traces()}


def test_two_probes_one_after_the_other_leave_two_runs(runs: Any, work: Callable[[], float]) -> None:
    train = probe(path=runs.path)(work)
    evaluate = probe(path=runs.path)(work)

    for step in (train, evaluate):
        for _ in range(8):
            step()

    found = recorded(runs)
    assert [steps for _, steps in found] == [(4, 5, 6)] * 2
    assert len({run_id for run_id, _ in found}) == 2


def test_of_two_alternating_probes_the_second_waits_until_the_first_has_closed(
    runs: Any, work: Callable[[], float]
) -> None:
    train = probe(path=runs.path, repeat=2)(work)
    evaluate = probe(path=runs.path, repeat=2)(work)

    with pytest.warns(CaptureWarning, match="another probe of this process is recording") as caught:  # noqa: PT031
        for _ in range(40):
            train()
            evaluate()

    assert len(caught) <= 2  # at most one for each probe
    windows = sorted(len(steps) for _, steps in recorded(runs))
    assert windows == [3, 3, 3, 3]
    assert len({run_id for run_id, _ in recorded(runs)}) == 2
    assert all(not trace["tracekit"]["window"]["partial"] for trace in runs.traces())


def test_a_step_within_a_step_is_recorded_when_the_outer_probe_is_done(runs: Any, work: Callable[[], float]) -> None:
    inner = probe(path=runs.path)(work)
    outer = probe(path=runs.path)(lambda: inner())

    with pytest.warns(CaptureWarning, match="another probe"):  # noqa: PT031
        for _ in range(20):
            outer()

    assert len({run_id for run_id, _ in recorded(runs)}) == 2
    assert {len(steps) for _, steps in recorded(runs)} == {3}


def test_a_full_window_ends_for_that_of_another_probe(runs: Any, work: Callable[[], float]) -> None:
    check = probe(path=runs.path, skip=0, warmup=0, steps=2)(work)
    for _ in range(2):
        check()  # before training, as some trainers do: no call ends its window

    train = probe(path=runs.path)(work)
    for _ in range(8):
        train()

    assert {steps for _, steps in recorded(runs)} == {(0, 1), (4, 5, 6)}
    assert len({run_id for run_id, _ in recorded(runs)}) == 2


def test_a_probe_that_failed_releases_the_profiler(
    runs: Any, work: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("torch has changed")

    with monkeypatch.context() as broken:
        broken.setattr("tracekit.capture.recording.Recording.mark", fail)
        with pytest.warns(CaptureWarning, match="torch has changed"):
            probe(path=runs.path, skip=0, warmup=0)(work)()
    step = probe(path=runs.path, skip=0, warmup=0, steps=1)(work)
    step()
    step()

    assert runs.steps() == [[0]]


def test_reading_finds_both_runs(runs: Any, work: Callable[[], float]) -> None:
    for _ in range(2):
        step = probe(path=runs.path, skip=0, warmup=0, steps=1)(work)
        step()
        step()
    runs.wait()

    found = discover([str(runs.path)])

    named = {run.run_id for run in (found.chosen, *found.others)}
    assert named == {run_id for run_id, _ in recorded(runs)}
    assert len(named) == 2
