"""What the change of the step consists of."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.comparison.compared_runs import STEADY, longer, report_of_steps, run_of_steps
from tracekit.comparison.step_verdict import UNEVEN_STEPS, cause_changes
from tracekit.explain.step_time.step_lengths import step_lengths
from tracekit.report.report import Report, analyze


def median_ns(report: Report) -> int:
    lengths = step_lengths(report.run)
    assert lengths is not None
    return lengths.median_ns


def changes(*reports: Report) -> dict[tuple[str, tuple[int, ...]], int]:
    """Return the change by cause and ranks, from the first reports to the last one."""
    *baselines, candidate = reports
    before_ns = sum(map(median_ns, baselines)) // len(baselines)
    _, rows = cause_changes(baselines, candidate, before_ns, median_ns(candidate))
    assert sum(map(number, rows)) == median_ns(candidate) - before_ns
    return {(str(row["cause"]), tuple(ranks(row))): number(row) for row in rows}


def number(row: dict[str, Any]) -> int:
    return int(row["change_ns"])


def ranks(row: dict[str, Any]) -> list[int]:
    return list(row["ranks"])


def test_each_cause_has_its_change() -> None:
    found = changes(report_of_steps(STEADY), report_of_steps(longer(3), data_ms=4, transfer_ms=12))
    assert found["compute", ()] == 3_000_000
    assert found["data", ()] == 4_000_000
    assert found["transfer", ()] == 2_000_000
    assert UNEVEN_STEPS not in {cause for cause, _ in found}  # the median step is the mean one


def test_a_rank_that_became_slow_is_named() -> None:
    found = changes(report_of_steps(STEADY, ranks=4), report_of_steps(STEADY, ranks=4, slower_ms={2: 30}))
    assert found["slow_compute", (2,)] == 30_000_000


def test_without_a_diagnosis_the_parts_of_the_step_are_compared() -> None:
    reports = [analyze(run_of_steps(steps), only=["breakdown"]) for steps in (STEADY, longer(5))]
    basis, rows = cause_changes(reports[:1], reports[1], median_ns(reports[0]), median_ns(reports[1]))
    assert basis == "breakdown"
    assert {row["cause"]: row["change_ns"] for row in rows} == {"compute": 5_000_000, "exposed_comm": 0}


@settings(max_examples=20, deadline=None)
@given(
    runs=st.lists(st.lists(st.floats(1, 300), min_size=3, max_size=5), min_size=2, max_size=4),
    slower_ms=st.floats(0, 100),
)
def test_causes_sum_to_the_change_whatever_the_runs(runs: list[list[float]], slower_ms: float) -> None:
    """`changes` checks the sum."""
    *baselines, candidate = runs
    reports = [report_of_steps(steps, ranks=3) for steps in baselines]
    assert changes(*reports, report_of_steps(candidate, ranks=3, slower_ms={1: slower_ms}))
