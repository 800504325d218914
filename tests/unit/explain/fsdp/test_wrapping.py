"""Units that are too large or too small for FSDP, simulated, with the effect of another wrapping."""

from __future__ import annotations

import pytest

from benchmarks.gpu_jobs import JobSpec, simulate
from benchmarks.gpu_jobs.strategies.fsdp import Unit, train_units
from tracekit.findings.finding import Finding
from tracekit.model.table import records
from tracekit.report.report import Report

LATENCY_US, US_PER_MB = 40.0, 30.0


def unit(name: str, size_kb: int, forward_us: float) -> Unit:
    gather_us = LATENCY_US + US_PER_MB * size_kb / 1000
    return Unit(name=name, size_bytes=size_kb * 1000, gather_us=gather_us, forward_us=forward_us)


def layers(count: int, size_kb: int, forward_us: float) -> list[Unit]:
    return [unit("embed", 4000, 100), *(unit(f"layers.{i}", size_kb, forward_us) for i in range(count))]


def report_of(units: list[Unit]) -> Report:
    """Return the report on a run whose host runs ahead, and asks for one module ahead, as FSDP2 does backward."""
    job = simulate(
        JobSpec(family="fsdp", dp=2),
        lambda rank: train_units(rank, units, forward_ahead=1, backward_ahead=1, waits=False),
    )
    return job.report()


def wrapping(report: Report) -> list[Finding]:
    assert report.fsdp is not None
    return [finding for finding in report.fsdp.findings if "phase" not in finding.evidence]


def step_ns(report: Report) -> float:
    assert report.breakdown is not None
    return max(row["step_ns"] / row["steps"] for row in records(report.breakdown.ranks))


def test_one_giant_unit_is_named_with_the_time_that_it_holds_up() -> None:
    giant = report_of([unit("", 48_000, 3000)])
    (finding,) = wrapping(giant)
    assert finding.id == "fsdp-giant-unit"
    assert finding.evidence["share"] == 1.0
    in_blocks = report_of([unit(f"blocks.{i}", 8000, 500) for i in range(6)])
    saved_ns = step_ns(giant) - step_ns(in_blocks)
    assert finding.saving_ns is None
    assert finding.time_ns is not None
    assert 0 < saved_ns <= finding.time_ns


def test_a_large_embedding_beside_blocks_is_no_giant() -> None:
    units = [unit("embed", 60_000, 100), *(unit(f"blocks.{i}", 1000, 500) for i in range(6))]
    assert wrapping(report_of(units)) == []


def test_many_tiny_units_are_mostly_latency() -> None:
    """GIVEN 48 units of 64 kB whose all-gathers take 42 us, 40 of them latency, and 15 us of compute each."""
    tiny = report_of(layers(48, 64, 15))
    assert tiny.fsdp is not None
    (finding,) = tiny.fsdp.findings  # and nothing about prefetching these units
    assert (finding.id, finding.evidence["units"]) == ("fsdp-tiny-units", 48)
    assert finding.evidence["latency_ns"] == pytest.approx(40_000, rel=0.02)
    assert {"fsdp-tiny-units", "fsdp-gathered-twice"} <= {each.id for each in tiny.findings}  # they share no time
    together = finding.evidence["together"]
    assert together == 12
    larger = report_of(layers(48 // together, 64 * together, 15 * together))
    saved_ns = step_ns(tiny) - step_ns(larger)
    assert finding.saving_ns is None
    assert 0 < saved_ns < step_ns(tiny)
    assert wrapping(larger) == []


def test_small_units_that_compute_covers_are_no_finding() -> None:
    assert wrapping(report_of(layers(48, 64, 200))) == []


def test_units_of_one_size_do_not_show_the_latency() -> None:
    assert wrapping(report_of(layers(48, 64, 15)[1:])) == []


@pytest.mark.parametrize("size_kb", [8000, 2000])
def test_blocks_of_a_usual_size_are_no_finding(size_kb: int) -> None:
    assert wrapping(report_of(layers(12, size_kb, 500))) == []
