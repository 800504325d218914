"""CUDA graphs: replayed or captured while a window is open, and captured where a window would begin or end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gpu.recordings import DeviceRecording

pytestmark = pytest.mark.gpu

GRAPH_LAUNCHES = ("cudaGraphLaunch", "hipGraphLaunch")


def test_every_kernel_of_a_replayed_graph_is_recorded(
    record: Callable[[str], DeviceRecording], measured: Callable[..., None]
) -> None:
    recording = record("graphs")
    row = recording.require_whole()

    replays = recording.steps * recording.facts["replays_of_step"]
    spun_ns = sum(spin.duration_ns for spin in recording.spins)

    assert recording.calls(*GRAPH_LAUNCHES) == replays == len(recording.spins)
    assert len(recording.kernels) >= replays * recording.facts["kernels_of_graph"]
    assert {use.kind for use in recording.uses} <= {"compute", "copy"}
    assert row["compute_ns"] >= spun_ns > 0
    assert recording.facts["total"] == recording.facts["expected_total"]
    measured(replays=replays, compute_ms=row["compute_ns"] / 1e6)


def test_capturing_a_graph_within_a_window_loses_nothing(
    record: Callable[[str], DeviceRecording], measured: Callable[..., None]
) -> None:
    """GIVEN a graph that is captured in a recorded step THEN its launches, which run nothing, lack no kernels."""
    recording = record("capture_in_window")
    recording.require_whole()

    assert len(recording.spins) == recording.facts["replays"]
    assert recording.calls(*GRAPH_LAUNCHES) == recording.facts["replays"]
    assert recording.facts["totals"] == recording.facts["expected_totals"]
    measured(kernels=len(recording.kernels))


def test_no_window_opens_or_closes_while_a_graph_is_captured(
    record: Callable[[str], DeviceRecording], measured: Callable[..., None]
) -> None:
    """GIVEN a program that captures the steps at whose begin a window would do something THEN it waits.

    What the program computes stays right: a profiler that starts or stops meanwhile would make the capture fail.
    """
    recording = record("window_edges")
    edges = recording.facts["edges"]

    assert {name for name, _ in edges} == {"prepare", "start", "stop"}
    assert [name for name, is_capturing in edges if is_capturing] == []
    assert recording.facts["total"] == recording.facts["expected_total"]
    assert [text for text in recording.facts["warnings"] if "recording has ended" in text] == []
    assert recording.steps > 0
    measured(edges=len(edges), recorded_steps=recording.steps)
