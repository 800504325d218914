"""Kernels and copies on two streams at a time: what overlaps counts once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gpu.recordings import DeviceRecording, covered_ns

pytestmark = pytest.mark.gpu


def test_what_overlaps_on_two_streams_counts_once(
    record: Callable[[str], DeviceRecording], measured: Callable[..., None]
) -> None:
    """GIVEN 20 ms on one stream, and beside it 10 ms and a copy on another THEN a step computes for 20 ms."""
    recording = record("streams")
    row = recording.require_whole()

    spins = recording.spins
    computed_ns = covered_ns(recording.kernels)
    hidden_ns = sum(spin.duration_ns for spin in spins) - covered_ns(spins)

    assert len(spins) == recording.steps * recording.facts["spins_of_step"]
    assert len({spin.stream for spin in spins}) == 2
    assert row["compute_ns"] == computed_ns
    shorter_ns = sum(sorted(spin.duration_ns for spin in spins)[: recording.steps])
    assert hidden_ns >= 0.9 * shorter_ns
    measured(compute_ms=computed_ns / 1e6, hidden_compute_ms=hidden_ns / 1e6)


def test_a_copy_beside_compute_is_not_exposed(
    record: Callable[[str], DeviceRecording], measured: Callable[..., None]
) -> None:
    recording = record("streams")
    row = recording.require_whole()

    copied_ns = covered_ns(recording.copies)
    exposed_ns = covered_ns(recording.device_events) - covered_ns(recording.kernels)

    assert len(recording.copies) == recording.steps
    assert row["exposed_copy_ns"] == exposed_ns <= 0.1 * copied_ns
    measured(copy_ms=copied_ns / 1e6, exposed_copy_ms=exposed_ns / 1e6)
