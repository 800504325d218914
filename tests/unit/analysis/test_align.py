"""Clocks of ranks against the lowest rank that is there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.analysis.align import on_run_clock
from tracekit.analysis.load import load
from tracekit.model.run import ClockModel

Samples = list[tuple[float, int, int]]  # at us, offset ns, error ns


def clocks(folder: Path, *samples: Samples | None, first_rank: int = 0) -> tuple[ClockModel, ...]:
    ranks = []
    for rank, measured in enumerate(samples, start=first_rank):
        trace = TraceBuilder(rank, 8).step(0, 0, 10).op("op", 0, 5)
        ranks.append(trace if measured is None else trace.capture(clock=measured))
    return load(write_run(folder, ranks)).clocks


def test_offsets_are_relative_to_the_lowest_rank_present(tmp_path: Path) -> None:
    """GIVEN measurements against rank 0, which is missing THEN rank 2 is the reference and errors add."""
    found = clocks(tmp_path, [(0, 500, 10)], [(0, 800, 20)], first_rank=2)
    assert [(clock.rank, clock.method, clock.offset_ns, clock.error_ns) for clock in found] == [
        (2, "probe", 0, 0),
        (3, "probe", 300, 30),
    ]


def test_the_sample_of_least_error_speaks(tmp_path: Path) -> None:
    found = clocks(tmp_path, [(0, 0, 0)], [(0, 900, 90), (100, 700, 7), (200, 800, 80)])
    assert (found[1].offset_ns, found[1].error_ns, found[1].drift_ppm) == (700, 7, None)


def test_drift_between_the_ends_of_a_window(tmp_path: Path) -> None:
    """100 us more after 2 s is 50 ppm; less than the errors is none."""
    drifting: Samples = [(0, 1000, 10), (2_000_000, 101_000, 10)]
    noisy: Samples = [(0, 1000, 60_000), (2_000_000, 101_000, 60_000)]
    still: Samples = [(0, 0, 0), (2_000_000, 0, 0)]
    found = clocks(tmp_path, still, drifting, noisy)
    assert [clock.drift_ppm for clock in found] == [0.0, pytest.approx(50), 0.0]
    wall_ns = TraceBuilder().wall_ns
    on_run = on_run_clock(np.array([wall_ns(0), wall_ns(2_000_000)]), found[1])
    assert on_run.tolist() == [wall_ns(0) - 1000, wall_ns(2_000_000) - 101_000]


def test_without_measurements_clocks_are_taken_as_they_are(tmp_path: Path) -> None:
    assert [clock.method for clock in clocks(tmp_path / "a", None, None)] == ["none", "none"]
    assert [clock.method for clock in clocks(tmp_path / "b", [], [])] == ["none", "none"]
    some = clocks(tmp_path / "c", [(0, 100, 1)], [])
    assert [(clock.method, clock.offset_ns, clock.error_ns) for clock in some] == [("probe", 0, 0), ("none", 0, None)]
    first_unknown = clocks(tmp_path / "d", [], [(0, 100, 1)])  # the lowest rank that was measured is the reference
    assert [(clock.method, clock.offset_ns) for clock in first_unknown] == [("none", 0), ("probe", 0)]
