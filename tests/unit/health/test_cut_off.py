"""A rank whose file is cut off leaves the comparison of the others as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from benchmarks.gpu_jobs import Defect, JobSpec, simulate
from benchmarks.gpu_jobs.analysed import report_of
from tests.builders import TraceBuilder
from tests.damaged_runs.events import in_order_of_time
from tests.damaged_runs.good_run import rank_trace
from tests.summarized_trace import summarize_trace
from tracekit.errors import InputError
from tracekit.loading.options import SummaryOptions
from tracekit.model.summary import StepParts
from tracekit.read.decode.decoder import decode

SLOW, CUT = 1, 3
SPEC = JobSpec(family="ddp", dp=4, steps=5, defect=Defect(cause="compute", ranks=(SLOW,), delay_us=800.0))


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_the_slow_rank_is_named_as_if_the_cut_file_were_missing(share: float) -> None:
    """GIVEN a file that keeps a part of its bytes; Kineto writes kernels last, so that no step of it is whole."""
    documents = simulate(SPEC).documents()
    traces = {rank: msgspec.json.encode(document) for rank, document in documents.items()}
    cut = traces | {CUT: traces[CUT][: int(share * len(traces[CUT]))]}
    missing = {rank: content for rank, content in traces.items() if rank != CUT}

    reports = [report_of(these, only=["breakdown", "stragglers"]) for these in (cut, missing)]

    assert [report.stragglers.verdict.rank for report in reports] == [SLOW, SLOW]
    assert [report.run.common_steps() for report in reports] == [reports[1].run.common_steps()] * 2
    verdicts = [report.stragglers.verdict.caused_delay_ns for report in reports]
    assert verdicts[0] == verdicts[1]
    (rank,) = [summary for summary in reports[0].run.ranks if summary.rank == CUT]
    assert (rank.is_measured, rank.steps) == (False, ())


def as_kineto_writes(trace: TraceBuilder) -> TraceBuilder:
    return trace


def in_order_of_ends(trace: TraceBuilder) -> TraceBuilder:
    """Events as a tool writes them that writes each when it is over."""
    trace.events.sort(key=lambda event: event["ts"] + event.get("dur", 0))
    return trace


@pytest.mark.parametrize("order", [as_kineto_writes, in_order_of_time, in_order_of_ends])
def test_steps_that_count_are_as_in_the_whole_file(
    tmp_path: Path, order: Callable[[TraceBuilder], TraceBuilder]
) -> None:
    """GIVEN a file cut off anywhere THEN a step that counts has the numbers that it has in the whole file."""
    path = order(rank_trace()).write(tmp_path / "rank8.json")
    text = path.read_bytes()
    whole = {step.step: step for step in complete_steps(path)}
    counting = []
    for cut in range(400, len(text), 211):
        path.write_bytes(text[:cut])
        try:
            steps = complete_steps(path)
        except InputError:
            assert not counting
            continue
        assert steps == [whole[step.step] for step in steps]
        counting.append(len(steps))
    assert len(whole) == 6
    assert max(counting) >= (0 if order is in_order_of_ends else 5)


def complete_steps(path: Path) -> list[StepParts]:
    return [step for step in summarize_trace(decode(path), 8, SummaryOptions()).steps if step.complete]
