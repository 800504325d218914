"""The study of comparisons: its runs have the noise that it says, and its marks are right."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.studies.compare_runs import JobPair, Noise, Planted, Varying, report_of, step_lengths_of


def test_step_lengths_have_the_noise_and_the_correlation() -> None:
    noise = Noise(steps=0.02, runs=0.0, correlation=0.4)
    lengths = step_lengths_of(np.random.default_rng(1), 20_000, noise)
    assert lengths.std() / lengths.mean() == pytest.approx(0.02, rel=0.05)
    assert np.corrcoef(lengths[1:], lengths[:-1])[0, 1] == pytest.approx(0.4, abs=0.03)


def test_stalled_steps_are_a_fifth_longer() -> None:
    lengths = step_lengths_of(np.random.default_rng(1), 20_000, Noise(steps=0.001, runs=0.0, stalls=0.1))
    is_stalled = lengths > 1.1 * np.median(lengths)
    assert is_stalled.mean() == pytest.approx(0.1, abs=0.01)
    assert lengths[is_stalled].mean() / lengths[~is_stalled].mean() == pytest.approx(1.2, abs=0.001)


def test_runs_differ_as_they_should() -> None:
    rng = np.random.default_rng(2)
    medians = [np.median(step_lengths_of(rng, 3, Noise(steps=0.0))) for _ in range(2000)]
    assert np.std(medians) / np.mean(medians) == pytest.approx(0.005, rel=0.05)


@pytest.mark.parametrize(("varying", "expected"), [("job", 0.02), ("ranks", 0.014)])
def test_steps_of_jobs_vary_as_the_study_says(varying: Varying, expected: float) -> None:
    reports = [report_of(str(seed), steps=20, varying=varying) for seed in range(20)]
    lengths = [np.array(list(report.run.step_lengths_ns.values())) for report in reports]
    deviations = [each.std(ddof=1) / each.mean() for each in lengths]
    assert math.sqrt(np.mean(np.square(deviations))) == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("planted", ["compute", "transfer", "data", "host", "slow rank"])
def test_what_is_planted_makes_the_step_5_percent_longer(planted: Planted) -> None:
    def mean_ns(side: str, planted: Planted | None) -> float:
        reports = [report_of(f"{seed} {side}", steps=20, varying="ranks", planted=planted) for seed in range(8)]
        return float(np.mean([list(report.run.step_lengths_ns.values()) for report in reports]))

    assert mean_ns("a", planted) / mean_ns("a", None) == pytest.approx(1.05, abs=0.006)


def pair(planted: Planted | None, judgement: str, cause: str) -> JobPair:
    return JobPair(planted=planted, judgement=judgement, cause=cause, adds_up=True, passes=False)  # type: ignore[arg-type]


def test_only_the_planted_cause_of_a_slower_run_is_right() -> None:
    assert pair("data", "slower", "data").is_right
    assert not pair("data", "slower", "compute").is_right
    assert not pair("data", "inconclusive", "data").is_right
    assert pair("slow rank", "slower", "slow_compute").is_right


def test_of_two_runs_of_one_kind_no_call_is_right() -> None:
    assert pair(None, "equivalent", "compute").is_right
    assert not pair(None, "faster", "compute").is_right
