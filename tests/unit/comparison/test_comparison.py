"""Comparisons of simulated runs: the verdict, the causes, and how often both are right.

benchmarks/studies/compare_runs.py measures the rates on more pairs.
"""

from __future__ import annotations

import pytest

from benchmarks.studies.compare_runs import PLANTED, Noise, Planted, judge_lengths, judge_pair
from tests.unit.comparison.compared_runs import STEADY, longer, report_of_steps
from tracekit.comparison.comparison import Comparison, compare
from tracekit.errors import InputError
from tracekit.model.table import rows_of


def change_ns(comparison: Comparison) -> int:
    """Return the change of the median step; the causes sum to it."""
    expected = comparison.candidate_ns - comparison.baseline_ns
    assert sum(row["change_ns"] for row in rows_of(comparison, "causes")) == expected
    return expected


def test_a_longer_step_is_slower_and_computing_is_the_cause() -> None:
    comparison = compare([report_of_steps(STEADY)], report_of_steps(longer(10)))
    assert comparison.verdict.judgement == "slower"
    assert change_ns(comparison) == 10_000_000
    first = rows_of(comparison, "causes")[0]
    assert (first["cause"], first["change_ns"]) == ("compute", 10_000_000)


def test_a_change_within_the_margin_is_equivalent() -> None:
    comparison = compare([report_of_steps(STEADY)], report_of_steps(longer(0.2)))
    assert comparison.verdict.judgement == "equivalent"
    assert (
        compare([report_of_steps(STEADY)], report_of_steps(longer(0.2)), margin=0.01).verdict.judgement
        == "inconclusive"
    )


def test_runs_of_other_jobs_are_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match=r"number of ranks differs: 2 in run, 4 in run"):
        compare([report_of_steps(STEADY)], report_of_steps(STEADY, ranks=4))


def test_pairs_of_one_kind_are_not_called() -> None:
    """GIVEN ranks whose steps vary by 2 %, so that those of the job do by 1.4 %."""
    called = [judge_lengths(seed, (10, 10), Noise(steps=0.014)) in {"slower", "faster"} for seed in range(1000, 1200)]
    assert sum(called) <= 2


@pytest.mark.parametrize("steps", [4, 7])
def test_below_eight_steps_only_changes_of_10_percent_are_called(steps: int) -> None:
    noise = Noise(steps=0.005, runs=0.001)
    assert {judge_lengths(seed, (steps, steps), noise, slowdown=0.08) for seed in range(20)} == {"inconclusive"}
    assert {judge_lengths(seed, (steps, steps), noise, slowdown=0.15) for seed in range(20)} == {"slower"}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_slowdown_has_its_cause_and_stops_at_the_gate(planted: Planted) -> None:
    pairs = [judge_pair(seed, steps=10, varying="ranks", planted=planted) for seed in range(100, 106)]
    assert sum(pair.is_right for pair in pairs) >= 5, [(pair.judgement, pair.cause) for pair in pairs]
    assert all(pair.adds_up for pair in pairs)
    assert sum(pair.passes for pair in pairs) <= 1


def test_a_run_and_itself_are_not_called_and_pass_the_gate() -> None:
    pairs = [judge_pair(seed, steps=10, varying="ranks", same=True) for seed in range(6)]
    assert all(pair.is_right and pair.adds_up and pair.passes for pair in pairs)
