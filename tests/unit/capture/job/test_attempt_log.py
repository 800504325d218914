"""The progress file: what it says after each call, how often it is written, and where it is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.places import ROOT
from tracekit.capture.job import attempt_log
from tracekit.capture.job.attempt_log import PERIOD_NS, AttemptLog
from tracekit.capture.job.membership import JobMembership
from tracekit.capture.job.run_agreement import AgreedStep
from tracekit.capture.output.paths import DiskBudget
from tracekit.capture.probe import probe
from tracekit.capture.schedule import NEVER
from tracekit.model.metadata import Progress, ProgressHeader
from tracekit.model.metadata.job import FILE_BYTES

NOT_RESUMED = AgreedStep(first_step=0, source="calls")
S = 1_000_000_000

DIES = """
import os, signal, sys
from tracekit.capture.probe import probe

@probe(sys.argv[1], skip=100)
def step(call):
    if call == 5:
        os.kill(os.getpid(), signal.SIGKILL)

for call in range(9):
    step(call)
"""


@pytest.fixture
def elastic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "myjob")


class Clock:
    """A wall clock that is set by hand."""

    def __init__(self) -> None:
        self.now_ns = 1_700_000_000 * S

    def time_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(attempt_log, "time", made)
    return made


def log(path: Path, **limits: int) -> AttemptLog:
    return AttemptLog(path, JobMembership(path, 0), DiskBudget(**limits))


def progress_below(path: Path) -> Progress:
    (file,) = path.rglob("*.progress")
    return Progress.parse(file.read_bytes(), msgspec.json.Decoder(ProgressHeader).decode)


@pytest.mark.usefixtures("elastic")
def test_each_call_leaves_its_time_and_the_file_does_not_grow(tmp_path: Path, clock: Clock) -> None:
    kept = log(tmp_path)
    for call in range(1000):
        clock.now_ns += S
        assert kept.on_call(call, NOT_RESUMED) == call + 1

    (file,) = tmp_path.glob("myjob-*/attempt-0/rank-000000.progress")
    assert file.stat().st_size == FILE_BYTES
    progress = progress_below(tmp_path)
    assert [call for call, _ in progress.calls] == list(range(1000 - 256, 1000))
    assert progress.last_sign_ns == clock.now_ns
    assert progress.header.first_call_ns == clock.now_ns - 999 * S
    assert (progress.header.ended_ns, progress.header.ending) == (None, None)


@pytest.mark.usefixtures("elastic")
def test_where_the_job_has_resumed_is_said_when_it_is_known(tmp_path: Path, clock: Clock) -> None:
    kept = log(tmp_path)
    kept.on_call(0, NOT_RESUMED)
    kept.on_call(1, AgreedStep(first_step=40, source="optimizer"))

    header = progress_below(tmp_path).header
    assert (header.first_step, header.first_step_source) == (40, "optimizer")


@pytest.mark.usefixtures("elastic")
def test_an_error_and_the_end_are_said(tmp_path: Path, clock: Clock) -> None:
    kept = log(tmp_path)
    kept.on_call(0, NOT_RESUMED)
    kept.raised(ValueError("wrong"))
    clock.now_ns += S
    kept.ended("error")

    header = progress_below(tmp_path).header
    assert (header.raised_ns, header.error) == (clock.now_ns - S, "ValueError")
    assert (header.ended_ns, header.ending) == (clock.now_ns, "error")


@pytest.mark.parametrize("variables", [{}, {"TORCHELASTIC_RUN_ID": "none"}])
def test_a_job_with_one_attempt_leaves_nothing(
    tmp_path: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert log(tmp_path / "runs").on_call(0, NOT_RESUMED) == NEVER
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("elastic")
def test_nothing_is_written_on_a_full_disk_or_over_another_file(tmp_path: Path) -> None:
    assert log(tmp_path / "full", min_free_bytes=1 << 60).on_call(0, NOT_RESUMED) == NEVER
    assert not list(tmp_path.rglob("*.progress"))

    first = log(tmp_path / "runs")
    assert first.on_call(0, NOT_RESUMED) == 1
    (file,) = tmp_path.rglob("*.progress")
    before = file.read_bytes()
    log(tmp_path / "runs").on_call(0, NOT_RESUMED)
    assert file.read_bytes() == before


@pytest.mark.usefixtures("elastic")
def test_tracekit_0_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[], float]) -> None:
    monkeypatch.setenv("TRACEKIT", "0")
    probe(path=tmp_path / "runs")(work)()

    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("elastic")
def test_calls_are_noted_before_in_and_after_the_window(runs: Any, work: Callable[[], float]) -> None:
    """GIVEN a window of calls 1 and 2 WHEN five calls that take a period each are made THEN all are there."""
    recorded = probe(path=runs.path, skip=1, warmup=0, steps=2)

    @recorded
    def step() -> None:
        work()
        time.sleep(PERIOD_NS / S)

    for _ in range(5):
        step()
    recorded.finish()

    assert runs.steps() == [[1, 2]]
    assert [call for call, _ in progress_below(runs.path).calls] == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("elastic")
def test_a_killed_process_leaves_its_last_call(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    begin_ns = time.time_ns()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], env=environment, timeout=60)

    assert done.returncode == -signal.SIGKILL
    progress = progress_below(tmp_path)
    assert begin_ns <= progress.header.first_call_ns <= progress.last_sign_ns <= time.time_ns()
    assert progress.header.ended_ns is None
    # These calls take no time, so that the gaps between those that are reported double: 0, 1, 3, 7, or 0, 1, 2, 4 where
    # the first one, which joins the job, takes over 50 ms.
    assert progress.calls[-1][0] >= 3
