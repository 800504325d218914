"""In which steps does a rank end before the collectives of the step, as kernels are lost? Times are microseconds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.analysis.load import load

STEPS = range(6)


def trace_of(rank: int, ranks: int, lost: Collection[int], *, updates: bool = True) -> TraceBuilder:
    """Return steps in which the device is behind the host, reduces, and updates parameters, unless that is `lost`."""
    trace = TraceBuilder(rank, ranks).kernel("adam", 26, 15)  # of the step before the recording
    for step in STEPS:
        host, device = 100 * step, 100 * step + 60
        trace.step(step, host, 100)
        trace.kernel("gemm", device, 25, launched_at=host + 5)
        trace.nccl("all_reduce", device + 50, 15, launched_at=host + 20)
        if updates and step not in lost:
            trace.kernel("adam", device + 66, 15, launched_at=host + 40)
    return trace


def wrong_steps(folder: Path, ranks: int, lost: Mapping[int, Collection[int]]) -> dict[int, list[int]]:
    """Return the steps that do not count, by rank, and check that a note names the file of each such rank."""
    traces = [trace_of(rank, ranks, lost.get(rank, ())) for rank in range(ranks)]
    run = load(write_run(folder, traces))
    wrong = {s.rank: sorted({*STEPS} - {step.step for step in s.steps if step.complete}) for s in run.ranks}
    named = {note.rank: note.file for note in run.notes if note.kind == "lost_device_records"}
    assert named == {rank: run.ranks[rank].file_name for rank, steps in wrong.items() if steps}
    return {rank: steps for rank, steps in wrong.items() if steps}


@pytest.mark.parametrize("step", [0, 2, 4])
def test_a_step_without_its_update_ends_early_and_the_next_one_begins_early(tmp_path: Path, step: int) -> None:
    assert wrong_steps(tmp_path, 4, {2: [step]}) == {2: [step, step + 1]}


def test_the_last_step_ends_with_all_that_it_launched(tmp_path: Path) -> None:
    assert wrong_steps(tmp_path, 4, {2: [5]}) == {}


def test_two_ranks_of_six(tmp_path: Path) -> None:
    assert wrong_steps(tmp_path, 6, {2: [1], 3: [3]}) == {2: [1, 2], 3: [3, 4]}


@pytest.mark.parametrize(
    ("ranks", "lost"),
    [
        (2, {1: [2]}),  # nothing tells which of two is right
        (4, {1: [2], 2: [3]}),  # half of them
        (4, {1: [0, 1, 2, 3, 4, 5]}),  # a rank that has nothing to update
    ],
)
def test_nothing_is_known(tmp_path: Path, ranks: int, lost: dict[int, list[int]]) -> None:
    assert wrong_steps(tmp_path, ranks, lost) == {}


def test_collectives_that_all_ranks_have_behind_their_update(tmp_path: Path) -> None:
    """GIVEN ranks that gather what they have updated THEN each step ends before that on all of them."""
    traces = [trace_of(rank, 4, ()) for rank in range(4)]
    for trace in traces:
        for step in STEPS:
            trace.nccl("all_gather", 100 * step + 145, 10, launched_at=100 * step + 60)
    run = load(write_run(tmp_path, traces))
    assert all(step.complete for summary in run.ranks for step in summary.steps)
    assert [note.kind for note in run.notes if note.kind == "lost_device_records"] == []
