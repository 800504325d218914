"""A device that hangs: the process ends as it would without us, and what was recorded is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.components import require_module
from tests.integration.conftest import TIMEOUT_S, environment
from tests.integration.recorded import Launch, read_traces

WORKER = Path(__file__).with_name("hanging_device_worker.py")
BLOCKED_S = "60"  # far longer than any limit, and than a process takes on a busy machine


def seconds_of(launch_forked: Launch, *arguments: str | Path) -> tuple[float, subprocess.CompletedProcess[str]]:
    begin = time.monotonic()
    result = launch_forked(WORKER, *arguments, BLOCKED_S, ranks=0)
    return time.monotonic() - begin, result


def test_a_rank_that_raises_exits_although_its_device_hangs(launch_forked: Launch, tmp_path: Path) -> None:
    took_s, result = seconds_of(launch_forked, tmp_path, "recorded", "raise")

    assert took_s < float(BLOCKED_S)
    assert result.returncode == 1
    assert "ValueError: the user's own" in result.stderr
    first, second = sorted(read_traces(tmp_path), key=lambda trace: trace["tracekit"]["steps"][0]["step"])
    assert [step["step"] for step in first["tracekit"]["steps"]] == [0, 1]
    assert [step["step"] for step in second["tracekit"]["steps"]] == [5, 6]
    (note,) = second["tracekit"]["notes"]
    assert "the device was still at work 2 s after" in note["text"]
    assert list(tmp_path.rglob(".*")) == []


def test_sigterm_ends_a_rank_whose_main_thread_is_blocked_in_c(tmp_path: Path) -> None:
    require_module("torch")
    with subprocess.Popen(
        [sys.executable, WORKER, tmp_path, "recorded", "sigterm", BLOCKED_S], env=environment(), stderr=subprocess.PIPE
    ) as process:
        deadline = time.monotonic() + TIMEOUT_S
        while not (tmp_path / "blocked").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        code = process.wait(float(BLOCKED_S) / 2)

    assert code == -signal.SIGTERM
    (trace,) = read_traces(tmp_path)
    assert [step["step"] for step in trace["tracekit"]["steps"]] == [0, 1]


@pytest.mark.parametrize("mode", ["bare", "recorded"])
def test_under_torchrun_the_other_ranks_end_as_without_us(launch_forked: Launch, tmp_path: Path, mode: str) -> None:
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    result = launch_forked(*torchrun, WORKER, tmp_path, mode, "raise", BLOCKED_S, ranks=2)

    assert result.returncode == 1
    assert "exitcode  : 1 (pid: " in result.stderr
    assert "rank      : 1 (local_rank: 1)" in result.stderr  # the one that raised is the first failure
    if mode == "recorded":
        steps = [[step["step"] for step in trace["tracekit"]["steps"]] for trace in read_traces(tmp_path)]
        assert steps.count([0, 1]) == 2


def test_the_descriptor_and_the_handler_are_given_back(tmp_path: Path) -> None:
    """Where the program has a wake-up descriptor of its own, as asyncio does, it stays."""
    torch = require_module("torch")
    from tracekit.capture.probe import probe

    handler = signal.getsignal(signal.SIGTERM)  # that of a probe, where another test of this process left one
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    previous = signal.set_wakeup_fd(theirs)
    try:
        recorder = probe(path=tmp_path, skip=0, warmup=0, steps=1)
        recorder(lambda: torch.ones(3))()
        assert signal.set_wakeup_fd(theirs) == theirs
        recorder.finish()
        assert signal.set_wakeup_fd(theirs) == theirs
    finally:
        signal.set_wakeup_fd(previous)
        os.close(ours)
        os.close(theirs)
    assert signal.getsignal(signal.SIGTERM) == handler
