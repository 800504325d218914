"""Can the steps of a recording be those of one process on one clock? Times are microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tracekit.analysis.timeline.host_steps import HostSteps, host_steps
from tracekit.read.decode.portable import decode


def steps_of(folder: Path, trace: TraceBuilder) -> HostSteps:
    return host_steps(decode(trace.write(folder / "rank0.json")))


def with_steps(*numbers: int) -> TraceBuilder:
    """Steps of 100 us without a gap."""
    trace = TraceBuilder()
    for place, number in enumerate(numbers):
        trace.step(number, 100 * place, 100).op("aten::mm", 100 * place + 10, 50)
    return trace


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ((3, 4, 5), None),
        ((3, 4, 4), "step 4 is in it more than once"),
        ((3, 4, 3, 4), "steps 3-4 are in it more than once"),
        ((3, 5, 4), "its steps are not in the order of their numbers (its clock was set back?)"),
    ],
)
def test_numbers_of_steps_ascend(tmp_path: Path, numbers: tuple[int, ...], reason: str | None, captured: bool) -> None:
    trace = with_steps(*numbers)
    assert steps_of(tmp_path, trace.capture() if captured else trace).contradiction == reason


def test_steps_do_not_overlap_but_for_rounding(tmp_path: Path) -> None:
    assert steps_of(tmp_path, TraceBuilder().step(3, 0, 102).step(4, 100, 100)).contradiction is None
    overlapping = steps_of(tmp_path, TraceBuilder().step(3, 0, 103).step(4, 100, 100)).contradiction
    assert overlapping == "steps 3 and 4 overlap in time (its clock was set back?)"


def test_the_end_of_a_step_is_not_known_where_the_next_one_is_not_recorded(tmp_path: Path) -> None:
    steps = steps_of(tmp_path, with_steps(3, 4, 6, 7))
    assert (steps.closed.tolist(), steps.contradiction) == ([True, False, True, True], None)


def test_a_number_beyond_64_bits_is_no_step(tmp_path: Path) -> None:
    assert steps_of(tmp_path, with_steps(3, 4).step(2**70, 200, 100)).step.tolist() == [3, 4]
    assert steps_of(tmp_path, with_steps(2**70)).source == "recording"


@pytest.mark.parametrize("pid", [4711, "4711", "python"])
def test_operators_of_two_processes_are_of_two_files(tmp_path: Path, pid: int | str) -> None:
    trace = with_steps(3, 4).event("aten::mm", "cpu_op", 20, 5, pid=pid, thread=1)
    assert steps_of(tmp_path, trace).contradiction == f"it mixes the operators of 2 processes (pid 4000, {pid})"


def test_a_python_thread_that_idles_is_no_process(tmp_path: Path) -> None:
    """GIVEN frames of an idle thread on pid 0, as Kineto writes them with stacks THEN the file is of one process."""
    trace = with_steps(3, 4).event("threading.py(973): _bootstrap", "python_function", 0, 200, pid=0, thread=0)
    assert steps_of(tmp_path, trace).contradiction is None


def test_devices_and_marks_of_the_profiler_are_no_processes(tmp_path: Path) -> None:
    trace = with_steps(3, 4).kernel("gemm", 20, 5, device=3).event("sync", "cuda_sync", 30, 5, pid=3, thread=7)
    trace.event("PyTorch Profiler (0)", "Trace", 0, 200, pid="Spans", thread="PyTorch Profiler")
    assert steps_of(tmp_path, trace).contradiction is None
