"""Which communication is blocking: as CUPTI records what waits for what. Times are microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.loading.recording import recording_of
from tracekit.rank.communication_rules import DEFAULT_RULES
from tracekit.rank.ready_times import device_ready_times
from tracekit.read.decode.portable import decode
from tracekit.report.report import analyze

COMPUTE, COMMUNICATION = 7, 20


def synchronisation(trace: TraceBuilder, name: str, at: float, for_us: float = 1, **args: Any) -> TraceBuilder:
    stream = args.get("stream", -1)
    return trace.event(name, "cuda_sync", at, for_us, pid=0, thread=stream, args={"stream": stream} | args)


def event_recorded(trace: TraceBuilder, at: float, correlation: int) -> TraceBuilder:
    return trace.event("cudaEventRecord", "cuda_runtime", at, 1, args={"correlation": correlation})


def training(rank: int = 0) -> TraceBuilder:
    """A step of 1000: a kernel until 110, an all-reduce until 300, a kernel at 305, an all-reduce at 400 to 600, and a
    kernel at 655 that is launched at 650.
    """
    trace = TraceBuilder(rank).step(0, 0, 1000).kernel("a", 10, 100, launched_at=1)
    event_recorded(trace, 4, 900).nccl("all_reduce", 110, 190, launched_at=3)
    trace.kernel("b", 305, 95, launched_at=6).nccl("all_reduce", 400, 200, launched_at=8)
    return trace.kernel("c", 655, 345, launched_at=650)


def of_stream(trace: TraceBuilder, **args: int) -> TraceBuilder:
    waits = {"stream": COMPUTE, "wait_on_stream": COMMUNICATION, "wait_on_cuda_event_record_corr_id": 900}
    return synchronisation(trace, "Stream Wait Event", 5, **waits | args)


def exposed_and_blocking(folder: Path, trace: TraceBuilder) -> tuple[int, int | None]:
    (step,) = analyze(write_run(folder, [trace]), only="breakdown").run.ranks[0].steps
    return step.exposed_comm_ns // 1000, None if step.blocking_comm_ns is None else step.blocking_comm_ns // 1000


def test_without_records_of_waits_no_communication_is_known_to_block(tmp_path: Path) -> None:
    assert exposed_and_blocking(tmp_path, training()) == (390, None)


def test_communication_blocks_for_which_the_stream_of_compute_waits(tmp_path: Path) -> None:
    """THEN kernel b waited from the end of kernel a; the second all-reduce is exposed, and nothing waits for it."""
    assert exposed_and_blocking(tmp_path, of_stream(training())) == (390, 190)


@pytest.mark.parametrize("record", [-1, 5])
def test_an_event_whose_record_is_unknown_was_recorded_by_the_wait_at_the_latest(tmp_path: Path, record: int) -> None:
    trace = of_stream(training(), wait_on_cuda_event_record_corr_id=record)
    assert exposed_and_blocking(tmp_path, trace) == (390, 190)


def test_an_event_from_before_the_communication_blocks_nothing(tmp_path: Path) -> None:
    trace = event_recorded(training(), 2, 901)
    assert exposed_and_blocking(tmp_path, of_stream(trace, wait_on_cuda_event_record_corr_id=901)) == (390, 0)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("Event Sync", {"wait_on_stream": COMMUNICATION}),
        ("Stream Sync", {"stream": COMMUNICATION}),
        ("Context Sync", {}),
    ],
)
def test_communication_blocks_for_which_the_host_waits(tmp_path: Path, name: str, args: dict[str, int]) -> None:
    trace = synchronisation(of_stream(training()), name, 420, 182, **args)
    assert exposed_and_blocking(tmp_path, trace) == (390, 190 + 180)


def test_a_wait_for_another_stream_is_none_for_communication(tmp_path: Path) -> None:
    trace = synchronisation(of_stream(training()), "Event Sync", 420, 182, wait_on_stream=COMPUTE)
    assert exposed_and_blocking(tmp_path, trace) == (390, 190)


def test_what_the_run_waits_for_says_how_much_of_it_blocks(tmp_path: Path) -> None:
    report = analyze(write_run(tmp_path, [of_stream(training(rank)) for rank in (0, 1)]))
    (finding,) = [finding for finding in report.findings if finding.id == "exposed-transfers"]
    assert finding.evidence["blocking_share"] == pytest.approx(0.19)


def test_queued_communication_is_ready_when_what_it_waits_for_has_ended(tmp_path: Path) -> None:
    """GIVEN a second all-reduce, queued behind the first, that waits for kernel a alone and not for b."""
    trace = TraceBuilder().step(0, 0, 1000).kernel("a", 10, 100, launched_at=1)
    event_recorded(trace, 2, 900).kernel("b", 110, 500, launched_at=3)
    trace.nccl("all_reduce", 50, 400, launched_at=4)
    waits = {"stream": COMMUNICATION, "wait_on_stream": COMPUTE, "wait_on_cuda_event_record_corr_id": 900}
    synchronisation(trace, "Stream Wait Event", 5, **waits).nccl("all_reduce", 452, 300, launched_at=6)
    recording = recording_of(decode(trace.write(tmp_path / "rank0.json")), DEFAULT_RULES)
    ready_ns = device_ready_times(recording.trace.events, recording.lanes).ready_ns
    assert ready_ns[1] == trace.wall_ns(110)
