"""The numbers that gates limit, on simulated runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.comparison.compared_runs import STEADY, run_of_steps
from tracekit.explain.section import KnownWork, Unavailable
from tracekit.explain.step_time.tables import MEMORY_USE
from tracekit.gates.metrics import METRICS
from tracekit.model.metadata import MemoryUse
from tracekit.model.run import Run
from tracekit.report.report import Report, analyze

SECTIONS = {name for metric in METRICS.values() for name in metric.sections}


def report(run: Run, work: KnownWork | None = None) -> Report:
    return analyze(run, only=SECTIONS, work=work)


def value(name: str, run: Run, work: KnownWork | None = None) -> float:
    found = METRICS[name].value(report(run, work))
    assert not isinstance(found, Unavailable), found
    return found


def reason(name: str, run: Run) -> str:
    found = METRICS[name].value(report(run))
    assert isinstance(found, Unavailable)
    return found.reason


RUN = run_of_steps(STEADY)


def test_the_step_is_its_typical_length() -> None:
    """GIVEN steps of 100, 101, 105 and 200 ms THEN the median of the means of their pairs is 104 ms."""
    assert value("step_time", run_of_steps((90, 91, 95, 190))) == 104_000_000


def test_exposed_communication_is_a_share_of_all_ranks_time() -> None:
    assert value("exposed_comm_ratio", RUN) == pytest.approx(0.1)
    by_step = METRICS["exposed_comm_ratio"].by_step
    assert by_step is not None
    assert by_step(report(run_of_steps((90, 40, 15)))).tolist() == pytest.approx([0.1, 0.2, 0.4])


def test_a_named_straggler_counts_and_noise_does_not() -> None:
    assert value("straggler_share", RUN) == 0.0
    slow = run_of_steps(STEADY, ranks=4, slower_ms={2: 25})
    assert value("straggler_share", slow) == pytest.approx(25 / 125, rel=0.02)


def test_without_comparable_clocks_no_straggler_is_known() -> None:
    """GIVEN ranks on different machines whose clocks were not measured."""
    ranks = tuple(replace(summary, host=f"node{summary.rank}") for summary in RUN.ranks)
    clocks = tuple(replace(clock, method="none") for clock in RUN.clocks)
    assert "clocks" in reason("straggler_share", replace(RUN, ranks=ranks, clocks=clocks))


def test_utilisation_is_the_mean_over_ranks() -> None:
    work = KnownWork(flops_per_step=1e12, peak_flops_per_s=100e12)
    assert value("mfu", RUN, work) == pytest.approx(0.1, rel=0.001)
    by_step = METRICS["mfu"].by_step
    assert by_step is not None
    utilisation = by_step(report(run_of_steps((90, 190, 90)), work))
    assert utilisation[1] == pytest.approx(utilisation[0] / 2)
    assert np.median(utilisation) == utilisation[0]


def test_memory_is_that_of_the_rank_with_the_most() -> None:
    peaks = (30_000_000_000, 38_000_000_000)
    ranks = tuple(
        summary.with_part(
            MEMORY_USE,
            MemoryUse(parameter_bytes=1, gradient_bytes=1, optimizer_bytes=1, peak_bytes=peaks[summary.rank]),
        )
        for summary in RUN.ranks
    )
    assert value("peak_memory", replace(RUN, ranks=ranks)) == 38e9


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bubble_ratio", "no pipeline"),
        ("peak_memory", "was not recorded"),
        ("mfu", "is not known"),
    ],
)
def test_what_a_run_does_not_have_is_unavailable_with_the_reason(name: str, expected: str) -> None:
    assert expected in reason(name, RUN)


def test_every_metric_has_a_meaning_and_sections_of_a_report() -> None:
    assert all(metric.meaning.endswith(".") and metric.sections for metric in METRICS.values())
    assert all(name == metric.name for name, metric in METRICS.items())
