"""What a host launched between the points at which it, or its device, depends on anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.unit.explain.whatif.graph.device_job import trace_of
from tests.unit.explain.whatif.recorded import summary
from tracekit.explain.whatif.tables import CUTS, LAUNCH_INTERVALS, LaunchIntervals
from tracekit.model.events import ABSENT, Int64

DURATIONS = ("device_ns", "limit_host_ns", "limit_device_ns")
NONE = -1.0


class Rows:
    """Launch intervals in microseconds since the trace began, NONE where there is none."""

    def __init__(self, trace: TraceBuilder, folder: Path) -> None:
        self.intervals: LaunchIntervals = summary(trace, folder)[LAUNCH_INTERVALS]
        self.begin_ns = trace.wall_ns(0)
        self.what = [CUTS[number] for number in self.intervals.what.tolist()]

    def of(self, what: str, column: str) -> list[float]:
        """Return a column of the rows that begin with a cut."""
        values: Int64 = getattr(self.intervals, column)
        since_ns = 0 if column in DURATIONS else self.begin_ns
        return [
            NONE if value == ABSENT else (value - since_ns) / 1000
            for cut, value in zip(self.what, values.tolist(), strict=True)
            if cut == what
        ]


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    """A rank whose steps of 200 `device_job` draws; it loads data from 2 to 6."""
    return Rows(trace_of(0, (100, 100), load_at=2), tmp_path)


def test_the_time_of_the_host_is_cut_in_order(rows: Rows) -> None:
    assert rows.what == ["begin", *["step", "data", "resume", "launch", "wait", "synchronise"] * 3, "end"]
    assert rows.of("step", "begin_ns") == [0, 200, 400]
    assert (rows.of("data", "begin_ns"), rows.of("resume", "begin_ns")) == ([2, 202, 402], [6, 206, 406])
    assert rows.of("end", "begin_ns") == [600]


def test_communication_waits_for_the_kernels_before_and_a_kernel_for_communication(rows: Rows) -> None:
    assert rows.of("launch", "begin_ns") == [12, 212, 412]
    assert rows.of("launch", "communication_end_ns") == [135, 335, 535]
    assert rows.of("wait", "awaited_communication_ns") == [135, 335, 535]
    of_launches = [need for need in rows.intervals.needs_kernels.tolist() if need != ABSENT]
    assert of_launches == [1, 1, 1]


def test_a_synchronisation_waits_for_the_kernel_that_was_launched_last(rows: Rows) -> None:
    assert rows.of("synchronise", "begin_ns") == [20, 220, 420]
    assert rows.of("synchronise", "until_ns") == [162, 362, 562]
    assert rows.of("synchronise", "awaited_kernel_ns") == [157, 357, 557]
    assert rows.of("synchronise", "awaited_communication_ns") == [NONE] * 3


def test_kernels_end_no_earlier_than_their_launches_allow(rows: Rows) -> None:
    """THEN the product of 100, launched 2 after the loading and started 7 later, ends 109 after it at the earliest."""
    assert rows.of("resume", "limit_host_ns") == [9, 9, 9]
    assert rows.of("resume", "limit_device_ns") == [100, 100, 100]
    assert rows.of("resume", "device_end_ns") == [115, 315, 515]
    assert rows.of("wait", "device_end_ns") == [157, 357, 557]
    assert rows.of("synchronise", "device_ns") == [NONE] * 3


def test_ranks_without_known_launches_have_no_intervals(tmp_path: Path) -> None:
    on_cpu = TraceBuilder().step(0, 0, 100).op("aten::mm", 10, 50)
    without_launches = TraceBuilder().step(0, 0, 100).kernel("gemm", 10, 50).kernel("adam", 70, 10)

    for trace in (on_cpu, without_launches):
        assert len(summary(trace, tmp_path)[LAUNCH_INTERVALS]) == 0
