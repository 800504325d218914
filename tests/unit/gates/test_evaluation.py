"""Which gates pass: limits of the value, limits of the change against its noise, and doubt, which fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.comparison.compared_runs import STEADY, longer, report_of_steps, run_of_steps
from tracekit.comparison.comparison import SECTIONS_READ
from tracekit.errors import UsageError
from tracekit.gates.evaluation import GateResult, check
from tracekit.gates.gates import Gate, Gates, parse_gates
from tracekit.gates.metrics import METRICS
from tracekit.report.report import Report, analyze

MAIN = report_of_steps(STEADY)


def report_with_slow_rank(by_ms: float) -> Report:
    """Return the report on four ranks, of which rank 2 computes longer."""
    run = run_of_steps(STEADY, ranks=4, slower_ms={2: by_ms})
    return analyze(run, only={*SECTIONS_READ, "stragglers"})


def gates(allow: list[str] | None = None, **tables: Any) -> Gates:
    return parse_gates({"allow": allow or [], **tables}, "here")


def result(found: Gates, report: Report, *baselines: Report) -> GateResult:
    (only,) = check(found, report, baselines).results
    return only


def status(found: Gates, report: Report, *baselines: Report) -> tuple[str, bool]:
    only = result(found, report, *baselines)
    return only.status, only.passes


@pytest.mark.parametrize(("limit", "expected"), [("101ms", "passed"), ("100ms", "passed"), ("99ms", "failed")])
def test_a_limit_of_the_value(limit: str, expected: str) -> None:
    """GIVEN a median step of 100 ms."""
    assert status(gates(step_time={"max": limit}), MAIN)[0] == expected


@pytest.mark.parametrize(
    ("longer_ms", "expected"),
    [(0, "passed"), (1, "passed"), (5, "inconclusive"), (20, "failed")],
)
def test_a_limit_of_the_change_is_tested_with_its_noise(longer_ms: float, expected: str) -> None:
    """GIVEN steps of 100 ms that vary by 0.6 %, runs that may differ by 2 %, and a limit of 5 %."""
    found = result(gates(step_time={"max_increase": "5%"}), report_of_steps(longer(longer_ms)), MAIN)
    assert found.status == expected
    assert found.passes == (expected == "passed")
    assert found.change_share == pytest.approx(longer_ms / 100, abs=0.001)


def test_a_faster_run_passes() -> None:
    assert status(gates(step_time={"max_increase": "5%"}), MAIN, report_of_steps(longer(20))) == ("passed", True)


def test_an_inconclusive_gate_says_how_many_steps_would_decide() -> None:
    noisy = report_of_steps((80, 100, 85, 95, 90, 90, 70, 110, 88, 92))
    found = result(gates(step_time={"max_increase": "5%"}), noisy, noisy)
    assert found.status == "inconclusive"
    assert found.steps_needed is not None
    assert found.steps_needed > 10


def test_few_steps_are_inconclusive() -> None:
    few = report_of_steps(STEADY[:2])
    found = result(gates(step_time={"max_increase": "5%"}), few, MAIN)
    assert (found.status, found.steps_needed) == ("inconclusive", 8)


def test_another_job_is_incomparable() -> None:
    found = check(gates(step_time={"max_increase": "5%", "max": "1s"}), report_of_steps(STEADY, ranks=4), [MAIN])
    assert [each.status for each in found.results] == ["incomparable", "passed"]
    assert found.results[0].reason is not None
    assert "number of ranks differs" in found.results[0].reason
    assert found.comparison is None
    assert not found.passes
    allowed = replace(found.gates, allow=frozenset({"incomparable"}))
    assert check(allowed, report_of_steps(STEADY, ranks=4), [MAIN]).passes


def test_a_metric_that_the_run_lacks_fails_the_gate() -> None:
    assert status(gates(bubble_ratio={"max": "20%"}), MAIN) == ("unavailable", False)
    assert status(gates(["unavailable"], bubble_ratio={"max": "20%"}), MAIN) == ("unavailable", True)


def test_a_run_without_some_ranks_fails_every_gate() -> None:
    report = report_of_steps(STEADY, missing_ranks=(2, 3))
    found = result(gates(step_time={"max": "1s"}), report)
    assert (found.status, found.reason) == ("incomplete", "ranks 2-3 are missing or cannot be used")
    assert status(gates(["incomplete"], step_time={"max": "1s"}), report) == ("passed", True)
    assert status(gates(["incomplete"], step_time={"max": "1ms"}), report) == ("failed", False)


def test_a_limit_of_the_change_without_a_baseline_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"here: step_time.max_increase needs a baseline"):
        check(gates(step_time={"max_increase": "5%"}), MAIN)


def test_a_metric_of_one_number_a_run_is_compared_without_an_interval() -> None:
    """GIVEN a rank that delays the step by 20 %, then by 33 % THEN the share is 1.67 times as large."""
    before, after = (report_with_slow_rank(by) for by in (25.0, 50.0))
    found = result(gates(straggler_share={"max_increase": "50%"}), after, before)
    assert (found.status, found.change) == ("failed", None)
    assert found.change_share == pytest.approx(5 / 3 - 1, rel=0.02)
    assert status(gates(straggler_share={"max_increase": "80%"}), after, before) == ("passed", True)


def test_from_nothing_there_is_no_relative_change() -> None:
    healthy, slow = (report_with_slow_rank(by) for by in (0.0, 50.0))
    assert status(gates(straggler_share={"max_increase": "50%"}), slow, healthy) == ("incomparable", False)
    assert status(gates(straggler_share={"max_increase": "50%"}), healthy, healthy) == ("passed", True)


def test_steps_without_any_of_a_metric_are_no_infinite_change() -> None:
    """GIVEN a share that is 0 in the first steps of the baseline, so that the change of these steps has no end."""
    shares = {"main": np.array([0.0, 0, 0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]), "branch": np.full(10, 0.9)}
    metric = replace(METRICS["exposed_comm_ratio"], by_step=lambda report: shares[report.run.path])
    limit = Gate(metric=metric, kind="max_increase", limit=0.2)
    reports = [report_of_steps(STEADY, path=path) for path in ("branch", "main")]
    found = result(Gates(gates=(limit,), source="here"), *reports)
    assert found.change is not None
    assert found.change.ratio == pytest.approx(9)
    assert found.status == "failed"
