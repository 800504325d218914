"""In which steps does a rank lack collectives that it must have taken part in?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from tests.builders import TraceBuilder, write_run
from tracekit.analysis.report import analyze

STEPS = range(6)


def trace_of(
    rank: int, *, reduces: Collection[int] = STEPS, computes: Collection[int] = STEPS, steps: Sequence[int] = STEPS
) -> TraceBuilder:
    """Return the steps of a rank on a CPU: in which it computes, and in which it reduces with the others."""
    trace = TraceBuilder(rank, 3)
    for step in steps:
        begin = 1000 * step
        trace.step(step, begin, 1000)
        if step in computes:
            trace.op("aten::mm", begin + 10, 300)
        if step in reduces:
            trace.gloo("all_reduce", begin + 400, 200, issued_at=begin + 390)
    return trace


def lacking(folder: Path, *traces: TraceBuilder) -> list[tuple[int | None, str | None]]:
    """Return the rank and the file of each note about steps that lack records."""
    notes = analyze(write_run(folder, traces)).run.notes
    return [(note.rank, note.file) for note in notes if note.kind == "lost_device_records"]


def test_a_step_without_any_record(tmp_path: Path) -> None:
    some = set(STEPS) - {3}
    traces = [trace_of(0), trace_of(1), trace_of(2, reduces=some, computes=some)]
    ((rank, file),) = lacking(tmp_path, *traces)
    assert rank == 2
    assert file is not None


def test_without_ids_a_step_that_computes_may_have_no_collective(tmp_path: Path) -> None:
    assert lacking(tmp_path, trace_of(0), trace_of(1), trace_of(2, reduces=set(STEPS) - {3})) == []


def test_an_idle_step_without_collectives_of_the_others(tmp_path: Path) -> None:
    """Gradients accumulate, and one rank has nothing to do."""
    some = {1, 3, 5}
    traces = [trace_of(rank, reduces=some, computes=some if rank == 2 else STEPS) for rank in range(3)]
    assert lacking(tmp_path, *traces) == []


def test_a_rank_that_records_fewer_steps(tmp_path: Path) -> None:
    assert lacking(tmp_path, trace_of(0), trace_of(1), trace_of(2, steps=range(2, 5))) == []


def test_a_rank_that_never_communicates(tmp_path: Path) -> None:
    assert lacking(tmp_path, trace_of(0), trace_of(1), trace_of(2, reduces=(), computes=(0, 1, 2))) == []
