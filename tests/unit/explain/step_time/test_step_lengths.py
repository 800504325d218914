"""How long the steps of the job are, which first one is left out, and when they differ too much to judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.exchanges import rank, run_of, send
from tests.builders import TraceBuilder, write_run
from tracekit.explain.step_time.step_lengths import first_steps_to_leave_out, noisy_steps, step_lengths
from tracekit.findings.finding import held
from tracekit.loading.load import load
from tracekit.loading.options import StepSelection, SummaryOptions
from tracekit.model.run import ClockModel, LeftOutStep, Run
from tracekit.model.summary import RankSummary
from tracekit.render.json_result import result_dict
from tracekit.report.report import analyze

MS = 1_000_000


def rank_of(number: int, steps_ms: Mapping[int, tuple[float, float]], **others: Any) -> RankSummary:
    """Return a rank with steps by number, each with its start and its end."""
    summary = rank(number, steps=tuple(steps_ms), **others)
    return replace(
        summary,
        steps=tuple(
            replace(step, start_ns=round(start * MS), step_ns=round((end - start) * MS))
            for step, (start, end) in zip(summary.steps, steps_ms.values(), strict=True)
        ),
    )


def in_a_row(lengths_ms: Sequence[float], *, first: int = 3, at_ms: float = 0) -> dict[int, tuple[float, float]]:
    """Return steps that follow each other, the first of which is number `first`."""
    ends = np.cumsum([at_ms, *lengths_ms]).tolist()
    return {first + k: (ends[k], ends[k + 1]) for k in range(len(lengths_ms))}


def run_with(*lengths_ms: float) -> Run:
    """Return a run of two ranks that exchange a message, with steps of these lengths."""
    return run_of([rank_of(0, in_a_row(lengths_ms), messages=[send(1, 100)]), rank_of(1, in_a_row(lengths_ms))])


# ---- lengths ------------------------------------------------------------------------------------------------------


def test_a_step_of_the_job_is_from_the_latest_end_to_the_latest_end() -> None:
    """GIVEN rank 0 that begins 80 ms before rank 1, and ends 2 ms before or after it THEN the waiting is no step."""
    run = run_of([
        rank_of(0, {3: (0, 150), 4: (150, 212), 5: (212, 270)}, messages=[send(1, 100)]),
        rank_of(1, {3: (80, 152), 4: (152, 210), 5: (210, 271)}),
    ])  # fmt: skip

    actual = step_lengths(run)

    assert actual is not None
    assert (actual.median_ns, actual.min_ns, actual.max_ns, actual.count) == (60 * MS, 59 * MS, 72 * MS, 3)


def test_times_are_on_the_clock_of_the_run() -> None:
    ahead = rank_of(1, in_a_row([60, 62], at_ms=500))
    clocks = tuple(ClockModel(rank=i, method="probe", offset_ns=500 * MS * i) for i in range(2))

    actual = step_lengths(run_of([rank_of(0, in_a_row([60, 62])), ahead], clocks=clocks))

    assert actual is not None
    assert (actual.min_ns, actual.max_ns) == (60 * MS, 62 * MS)


def test_where_clocks_cannot_be_compared_a_step_has_the_median_length_of_its_ranks() -> None:
    clocks = tuple(ClockModel(rank=i, method="none") for i in range(3))
    hosts = [rank_of(i, in_a_row([60 + i, 70 + 2 * i]), host=f"node{i}") for i in range(3)]

    actual = step_lengths(run_of(hosts, clocks=clocks))

    assert actual is not None
    assert (actual.min_ns, actual.max_ns) == (61 * MS, 72 * MS)


def test_steps_of_several_windows_do_not_count_the_time_between() -> None:
    steps_ms = in_a_row([60, 61]) | in_a_row([62, 63], first=20, at_ms=5000)

    actual = step_lengths(run_of([rank_of(0, steps_ms)]))

    assert actual is not None
    assert (actual.count, actual.max_ns) == (4, 63 * MS)


def test_without_a_step_that_all_ranks_completed_there_are_no_lengths() -> None:
    assert step_lengths(run_of([rank(0, steps=()), rank_of(1, in_a_row([60]))])) is None


# ---- the first recorded step ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths_ms", "expected"),
    [
        ((144.7, 60, 58, 63), [(3, 144.7)]),
        ((210, 131, 126, 134, 145), [(3, 210)]),
        ((66, 60, 58, 63), []),  # within the spread of the others
        ((160, 131, 126, 134, 155), []),
        ((61, 58, 60, 59), []),  # longer than all others, but by less than a tenth
        ((30, 60, 58, 63), []),  # short
        ((60, 58, 144.7, 63), []),  # another one is long
        ((144.7, 60, 58), [(3, 144.7)]),
        ((75, 60, 58), []),  # two others tell little of how steps differ
        ((144.7, 90, 58), []),
        ((144.7, 60), []),
    ],
)
def test_a_first_step_beyond_the_spread_of_the_others_is_left_out(
    lengths_ms: tuple[float, ...], expected: list[tuple[int, float]]
) -> None:
    actual = first_steps_to_leave_out([rank_of(i, in_a_row(lengths_ms)) for i in range(2)])

    assert actual == tuple(LeftOutStep(step=step, step_ns=round(time_ms * MS)) for step, time_ms in expected)


def test_each_window_has_a_first_step() -> None:
    steps_ms = in_a_row([140, 60, 61]) | in_a_row([62, 60, 59], first=20) | in_a_row([150, 58, 60], first=40)

    assert [left.step for left in first_steps_to_leave_out([rank_of(0, steps_ms)])] == [3, 40]


def test_a_first_step_that_a_rank_did_not_complete_is_not_compared() -> None:
    whole, cut = rank_of(0, in_a_row([144.7, 60, 58, 63, 61])), rank_of(1, in_a_row([144.7, 60, 58, 63, 61]))
    cut = replace(cut, steps=(replace(cut.steps[0], complete=False), *cut.steps[1:]))

    assert first_steps_to_leave_out([whole, cut]) == ()


def polluted(rank: int, first_us: int) -> TraceBuilder:
    """Return a rank of four steps: the first of them takes `first_us`, the others 100 us, half of it compute."""
    trace, begin_us = TraceBuilder(rank, 2), 0
    for k, for_us in enumerate((first_us, 100, 100, 100)):
        trace.step(k, begin_us, for_us).kernel("gemm", begin_us, for_us // 2, launched_at=begin_us)
        trace.nccl("all_reduce", begin_us + for_us // 2, for_us // 2, launched_at=begin_us + 1)
        begin_us += for_us
    return trace


def test_no_number_of_a_report_counts_the_step_that_is_left_out(tmp_path: Path) -> None:
    """GIVEN a first step of 1 ms, and three of 100 us THEN sums and means are of those three, and a note says so."""
    folder = write_run(tmp_path, [polluted(rank, 1000) for rank in range(2)])

    report = analyze(folder)

    result = result_dict(report)
    assert report.run.common_steps() == {1, 2, 3}
    assert report.run.mean_rank_step_ns() == 100_000
    assert {(row["steps"], row["step_ns"], row["compute_ns"]) for row in result["ranks"]} == {(3, 300_000, 150_000)}
    assert {(row["count"], row["total_ns"]) for row in result["communication"]} == {(3, 150_000)}
    assert sum(row["total_ns"] for row in result["phases"]["parts"] if row["rank"] == 0) == 300_000
    assert result["run"]["step_ns"] == {
        "median": 100_000, "min": 100_000, "max": 100_000, "count": 3, "left_out": [{"step": 0, "step_ns": 1_000_000}],
    }  # fmt: skip
    assert [note["text"] for note in result["notes"] if note["id"] == "first-step"] == [
        "step 0, the first recorded, took 1.0 ms, the others at most 0.1 ms: it is left out"
    ]


def test_steps_that_the_user_selects_are_all_counted(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [polluted(rank, 1000) for rank in range(2)])

    run = load(folder, options=SummaryOptions(steps=StepSelection(first=0)))

    assert (run.common_steps(), run.left_out) == ({0, 1, 2, 3}, ())


# ---- noise --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths_ms", "noisy"),
    [
        ((396, 642, 1339), True),
        ((60, 61, 140), True),
        ((60, 120), True),
        ((178, 184, 189, 206, 213, 229), False),  # processes that share two processors
        ((131, 126, 134, 145, 147, 155), False),
        ((30, 60, 30, 60, 30, 60), False),  # every second step is another
        ((60, 75), False),
        ((60,), False),
    ],
)
def test_steps_are_too_noisy_if_their_mean_is_not_known_to_a_fifth(lengths_ms: tuple[float, ...], noisy: bool) -> None:
    assert bool(held(noisy_steps(run_with(*lengths_ms), {}))) == noisy


def test_steps_are_not_noisy_if_it_is_known_why_they_differ() -> None:
    run = run_with(100, 102, 900, 101)
    step = sorted(run.common_steps())[2]

    assert held(noisy_steps(run, {}))
    assert held(noisy_steps(run, {step: 800 * MS})) == ()


@pytest.mark.parametrize(
    ("stall", "first"), [("cudaMalloc", "allocator-stalls"), ("cudaFuncGetAttributes", "noisy-steps")]
)
def test_a_stall_of_the_host_explains_why_a_step_is_longer(tmp_path: Path, stall: str, first: str) -> None:
    """GIVEN steps of 100, 100 and 500 us, of which the last stands still for 400."""
    trace = TraceBuilder()
    for step in range(3):
        trace.step(step, 100 * step, 100 + 400 * (step == 2))
        trace.kernel("gemm", 100 * step + 10, 90, launched_at=100 * step)
    trace.event(stall, "cuda_runtime", 301, 398, args={"correlation": 777})
    trace.kernel("gemm", 699, 1, launched_at=698)
    assert analyze(write_run(tmp_path, [trace])).findings[0].id == first


@pytest.mark.parametrize(
    ("of_ranks_ms", "noisy_rank"),
    [
        (([20, 21, 22], [120, 125, 122], [20, 160, 24]), None),  # one step of one rank
        (([20, 160, 24], [120, 125, 122], [25, 30, 180]), 0),
        (([20, 21, 22], [120, 125, 122]), None),
    ],
)
def test_steps_of_ranks_that_do_not_wait_for_each_other_are_compared_rank_by_rank(
    of_ranks_ms: tuple[list[float], ...], noisy_rank: int | None
) -> None:
    run = run_of([rank_of(number, in_a_row(lengths_ms)) for number, lengths_ms in enumerate(of_ranks_ms)])
    assert run.ranks_are_independent

    assert [finding.rank for finding in held(noisy_steps(run, {}))] == ([] if noisy_rank is None else [noisy_rank])
