"""The steps of a recording as the host saw them. Times are microseconds."""

from __future__ import annotations

from pathlib import Path

from tests.builders import TraceBuilder
from tracekit.loading.recording import recording_of
from tracekit.rank.communication_rules import DEFAULT_RULES
from tracekit.rank.steps import HostSteps
from tracekit.read.decode.portable import decode


def steps_of(folder: Path, trace: TraceBuilder) -> HostSteps:
    return recording_of(decode(trace.write(folder / "rank0.json")), DEFAULT_RULES).lanes.windows.host


def with_steps(*numbers: int) -> TraceBuilder:
    """Steps of 100 us without a gap."""
    trace = TraceBuilder()
    for place, number in enumerate(numbers):
        trace.step(number, 100 * place, 100).op("aten::mm", 100 * place + 10, 50)
    return trace


def test_the_end_of_a_step_is_not_known_where_the_next_one_is_not_recorded(tmp_path: Path) -> None:
    assert steps_of(tmp_path, with_steps(3, 4, 6, 7)).closed.tolist() == [True, False, True, True]


def test_a_number_beyond_64_bits_is_no_step(tmp_path: Path) -> None:
    assert steps_of(tmp_path, with_steps(3, 4).step(2**70, 200, 100)).step.tolist() == [3, 4]
    assert steps_of(tmp_path, with_steps(2**70)).source == "recording"
