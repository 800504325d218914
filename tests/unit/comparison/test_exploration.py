"""Which phases, ranks and groups changed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.unit.comparison.compared_runs import STEADY, report_of_steps
from tracekit.comparison.comparison import explored_changes
from tracekit.comparison.step_verdict import ChangeEstimate, RunNoise
from tracekit.explain.kernels.by_name import MOST_SHOWN
from tracekit.explain.kernels.sections import Kernels
from tracekit.report.report import Report


def change(steps: int = 10) -> ChangeEstimate:
    """Return a change of the step with noise of 2 % between runs, and of 1 % within them."""
    noise = RunNoise(share=0.02, runs=1, is_measured=False)
    half_width = math.hypot(math.log1p(0.02), math.log1p(0.01))
    return ChangeEstimate(
        baseline=100.0,
        candidate=100.0,
        steps=steps,
        run_noise=noise,
        low=math.exp(-half_width),
        high=math.exp(half_width),
        step_variance=0.01,
    )


def explored(baseline: Report, candidate: Report) -> dict[tuple[object, object], dict[str, object]]:
    rows = explored_changes([baseline], candidate, change())
    return {(row["dimension"], row["name"]): row for row in rows}


def test_the_rank_that_became_slow_stands_out_and_the_others_do_not() -> None:
    found = explored(report_of_steps(STEADY, ranks=4), report_of_steps(STEADY, ranks=4, slower_ms={2: 30}))
    assert found["rank", "2"]["change_ns"] == 30_000_000
    assert [name for (by, name), row in found.items() if by == "rank" and row["stands_out"]] == ["2"]


def test_longer_communication_stands_out_by_kind_and_group() -> None:
    found = explored(report_of_steps(STEADY), report_of_steps(STEADY, transfer_ms=20))
    row = found["group", "all_reduce"]
    assert (row["baseline_ns"], row["candidate_ns"]) == (10_000_000, 20_000_000)
    assert row["stands_out"]
    assert not found["rank", "0"]["stands_out"]


def test_what_only_one_run_has_counts_from_nothing() -> None:
    with_data, without = report_of_steps(STEADY, data_ms=5), report_of_steps(STEADY)
    row = explored(without, with_data)["rank", "0"]
    assert row["change_ns"] == 5_000_000


def test_phases_sum_to_the_mean_step() -> None:
    rows = explored_changes([report_of_steps(STEADY)], report_of_steps(STEADY), change())
    times_ns = [row["baseline_ns"] for row in rows if row["dimension"] == "phase"]
    assert sum(map(int, times_ns)) == pytest.approx(100_000_000, rel=0.001)  # type: ignore[call-overload]


def with_kernels(**times_ns: float) -> Report:
    """Return the report of a run whose device ran kernels of these names."""
    rows = [
        {"name": name, "kind": "compute", "count": 1.0, "total_ns": time_ns, "self_ns": time_ns, "exposed_ns": time_ns}
        | {"ranks": 2, "worst_rank": 0, "worst_total_ns": time_ns}
        for name, time_ns in times_ns.items()
    ]
    report = report_of_steps(STEADY)
    return replace(report, results={**report.results, "kernels": Kernels(kernels=rows, kernel_shapes=[], operators=[])})


def test_a_kernel_that_takes_longer_or_is_new_stands_out() -> None:
    found = explored(with_kernels(gemm=50e6, copy=9e6), with_kernels(gemm=55e6, copy=9.05e6, cast=4e6))
    assert found["kernel", "gemm"]["change_ns"] == 5_000_000
    assert found["kernel", "cast"]["baseline_ns"] == 0
    standing_out = {name for (by, name), row in found.items() if by == "kernel" and row["stands_out"]}
    assert standing_out == {"gemm", "cast"}


def test_a_kernel_is_not_new_where_only_the_longest_are_listed() -> None:
    """GIVEN 50 kernels in the baseline, which may have others THEN the 51st of the candidate has no change."""
    many = {f"kernel{i}": 2e6 for i in range(MOST_SHOWN)}
    found = explored(with_kernels(**many), with_kernels(**many, another=2e6))
    assert ("kernel", "another") not in found
    assert ("kernel", "kernel0") in found
