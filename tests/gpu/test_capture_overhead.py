"""What recording costs a step of many small kernels, by the device's own clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gpu.recordings import DeviceRecording

pytestmark = pytest.mark.gpu


def test_every_launch_of_a_recorded_step_is_there_and_its_cost_is_measured(
    record: Callable[[str], DeviceRecording], measured: Callable[..., None]
) -> None:
    """Events of the device time the steps. How much longer a recorded one takes is reported, and not judged here."""
    recording = record("overhead")
    recording.require_whole()

    facts, stated_ns = recording.facts, recording.result["run"]["capture_overhead_ns"]

    assert recording.steps == facts["steps"]
    assert len(recording.kernels) == facts["kernels"]
    assert facts["plain_ms"] > 0
    assert facts["recorded_ms"] > 0
    measured(plain_step_ms=facts["plain_ms"], recorded_step_ms=facts["recorded_ms"])
    if stated_ns is not None:  # where the process could measure it
        assert stated_ns > 0
        measured(stated_overhead_ms=stated_ns / 1e6)


def test_a_step_that_the_host_keeps_up_takes_what_it_takes_by_the_profiler(
    record: Callable[[str], DeviceRecording], measured: Callable[..., None]
) -> None:
    """GIVEN many small operators, so that the device waits for the host THEN the probe adds next to nothing."""
    facts = record("beside_the_profiler").facts

    measured(**facts)
    assert facts["ratio"] <= 1.02
