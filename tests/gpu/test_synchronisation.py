"""A host that waits for its device, and what that costs the device."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.gpu.recordings import DeviceRecording

pytestmark = pytest.mark.gpu


def test_idle_time_behind_a_synchronising_call_has_it_as_its_cause(
    record: Callable[[str], DeviceRecording], measured: Callable[..., None]
) -> None:
    """GIVEN a host that works after it has waited, instead of meanwhile THEN the gaps are synchronisation."""
    recording = record("synchronisation")
    row = recording.require_whole()

    spins, count = recording.spins, recording.facts["spins_of_step"]
    of_steps = [spins[first : first + count] for first in range(0, len(spins), count)]
    gaps_ns = sum(later.start_ns - earlier.end_ns for step in of_steps for earlier, later in itertools.pairwise(step))
    idle_ns = recording.idle_ns()

    assert len(spins) == recording.steps * count
    assert recording.calls("cudaDeviceSynchronize", "hipDeviceSynchronize") >= 2 * recording.steps
    assert recording.calls("cudaEventSynchronize", "hipEventSynchronize") >= recording.steps
    assert sum(idle_ns.values()) == row["idle_ns"]
    assert idle_ns["synchronisation"] >= 0.8 * gaps_ns > 0
    measured(gaps_ms=gaps_ns / 1e6, synchronisation_ms=idle_ns["synchronisation"] / 1e6)
