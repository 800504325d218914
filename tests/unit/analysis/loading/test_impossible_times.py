"""Which steps contain a jump of the clock that only the first or last collectives show? Times are in us."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tests.damaged_runs.events import step_of_the_wall_clock
from tracekit.analysis.report import analyze
from tracekit.model.run import Run

RANKS, STEPS = 4, 6


def trace_of(rank: int, *, late: dict[int, float] | None = None) -> TraceBuilder:
    """Return steps of 1000 us with an all-reduce each. `late`: by step, when the rank leaves it later than others."""
    trace = TraceBuilder(rank, RANKS)
    for step in range(STEPS):
        begin = 1000 * step
        trace.step(step, begin, 1000).op("aten::mm", begin + 10, 300)
        trace.gloo("all_reduce", begin + 400, 200 + (late or {}).get(step, 0), issued_at=begin + 390)
    return trace


def wrong_steps(folder: Path, *traces: TraceBuilder) -> dict[int, set[int]]:
    """Return the steps that do not count, by rank."""
    return incomplete_steps(analyze(write_run(folder, traces)).run)


def incomplete_steps(run: Run) -> dict[int, set[int]]:
    counting = {summary.rank: {step.step for step in summary.steps if step.complete} for summary in run.ranks}
    return {rank: wrong for rank, steps in counting.items() if (wrong := set(range(STEPS)) - steps)}


@pytest.mark.parametrize(("at", "expected"), [(700, {0, 1}), (1700, {1, 2}), (4700, {4, 5})])
@pytest.mark.parametrize("rank", [0, 2])
def test_a_jump_near_an_end(tmp_path: Path, rank: int, at: float, expected: set[int]) -> None:
    traces = [trace_of(i) for i in range(RANKS)]
    step_of_the_wall_clock(traces[rank], at_us=at, by_us=50_000)
    assert wrong_steps(tmp_path, *traces) == {rank: expected}


@pytest.mark.parametrize(("at", "expected"), [(700, {0, 1}), (4700, {4, 5})])
@pytest.mark.parametrize(
    ("machines", "wrong"), [("aabb", {0, 1, 2, 3}), ("aaab", {0, 1, 2, 3}), ("bcaa", {2, 3}), ("ab", {0, 1})]
)
def test_a_jump_of_a_machine_near_an_end(
    tmp_path: Path, machines: str, wrong: set[int], at: float, expected: set[int]
) -> None:
    """GIVEN that the clock of machine "a" jumps THEN it is known to be that of "a" if there are three machines."""
    traces = [trace_of(rank) for rank in range(len(machines))]
    for trace, machine in zip(traces, machines, strict=True):
        trace.host, trace.world_size = machine, len(machines)
        trace.header["distributedInfo"]["world_size"] = len(machines)
        if machine == "a":
            step_of_the_wall_clock(trace, at_us=at, by_us=50_000)
    run = analyze(write_run(tmp_path, traces)).run
    assert incomplete_steps(run) == dict.fromkeys(wrong, expected)
    texts = [note.text for note in run.notes if "when" in note.text and note.kind == "clock_step"]
    assert len(texts) == len(wrong)
    assert all(("or that of its peers" in text) == (len(set(machines)) == 2) for text in texts)


@pytest.mark.parametrize(("at", "expected"), [(700, {0, 1}), (4700, {4, 5})])
def test_ranks_of_no_known_machine_may_share_a_clock(tmp_path: Path, at: float, expected: set[int]) -> None:
    """GIVEN a jump of two of four ranks THEN nothing tells whose clocks it is."""
    traces = [trace_of(rank) for rank in range(RANKS)]
    for trace in traces[1:3]:
        step_of_the_wall_clock(trace, at_us=at, by_us=50_000)
    for trace in traces:
        trace.host = "localhost"
    run = analyze(write_run(tmp_path, traces)).run
    assert incomplete_steps(run) == dict.fromkeys(range(RANKS), expected)


def test_a_small_jump_elsewhere_hides_none(tmp_path: Path) -> None:
    traces = [trace_of(rank) for rank in range(RANKS)]
    for trace, machine in zip(traces, "abbc", strict=True):
        trace.host = machine
        if machine == "b":
            step_of_the_wall_clock(trace, at_us=2900, by_us=60)
            step_of_the_wall_clock(trace, at_us=4800, by_us=50_000)
    wrong = wrong_steps(tmp_path, *traces)
    assert {rank: steps & {4, 5} for rank, steps in wrong.items()} == {1: {4, 5}, 2: {4, 5}}


@pytest.mark.parametrize("late", [{0: 390.0}, {5: 390.0}, dict.fromkeys(range(1, 6), 390.0)])
def test_a_rank_that_leaves_late_has_no_other_clock(tmp_path: Path, late: dict[int, float]) -> None:
    traces = [trace_of(i, late=late if i == 2 else None) for i in range(RANKS)]
    assert wrong_steps(tmp_path, *traces) == {}


def test_two_ranks_do_not_show_whose_clock_is_wrong(tmp_path: Path) -> None:
    traces = [trace_of(i) for i in range(2)]
    step_of_the_wall_clock(traces[1], at_us=700, by_us=300)
    assert wrong_steps(tmp_path, *traces) == {0: {0}, 1: {0}}, "both leave out a long first step"
