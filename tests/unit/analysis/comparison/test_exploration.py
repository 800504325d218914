"""Which phases, ranks and groups changed."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.studies.compare_runs import report_of
from tests.unit.analysis.comparison.compared_runs import STEADY, report_of_steps
from tracekit.analysis.comparison.exploration import explored_changes
from tracekit.analysis.comparison.run_noise import RunNoise
from tracekit.analysis.report import Report

NOISE = RunNoise(share=0.02, runs=1, is_measured=False)


def explored(baseline: Report, candidate: Report) -> dict[tuple[object, object], dict[str, object]]:
    rows = explored_changes([baseline], candidate, NOISE)
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


def test_few_steps_have_no_p_value() -> None:
    rows = explored_changes([report_of_steps(STEADY[:7])], report_of_steps(STEADY), NOISE)
    assert rows
    assert all(row["p_value"] is None and not row["stands_out"] for row in rows)


def test_a_run_and_itself_differ_in_nothing() -> None:
    report = report_of_steps(STEADY)
    rows = explored_changes([report], report, NOISE)
    assert {row["change_ns"] for row in rows} == {0}
    assert {row["p_value"] for row in rows} == {1.0}


def test_phases_sum_to_the_mean_step() -> None:
    rows = explored_changes([report_of_steps(STEADY)], report_of_steps(STEADY), NOISE)
    times_ns = [row["baseline_ns"] for row in rows if row["dimension"] == "phase"]
    assert sum(map(int, times_ns)) == pytest.approx(100_000_000, rel=0.001)  # type: ignore[call-overload]


def test_of_runs_of_one_kind_little_stands_out() -> None:
    """GIVEN 12 pairs of runs with noise THEN something stands out in few of them."""
    pairs = [[report_of(f"{seed} {side}", steps=12, varying="ranks") for side in "ab"] for seed in range(12)]
    standing_out = [any(row["stands_out"] for row in explored_changes(pair[:1], pair[1], NOISE)) for pair in pairs]
    assert np.mean(standing_out) <= 0.25
