"""What is advised on recordings of users and of a shared GPU, whose cause is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracekit.findings.finding import Finding
from tracekit.report.report import Report, analyze


def finding_of(report: Report, finding_id: str) -> Finding:
    (finding,) = [finding for finding in report.findings if finding.id == finding_id]
    return finding


def test_reductions_of_every_micro_batch_cost_what_the_job_without_them_shows(cases: Path) -> None:
    """GIVEN the same job with and without no_sync: steps of 60.3 and 114.3 ms."""
    report, without = (analyze(cases / "transfers-no-sync" / name) for name in ("every_micro_batch", "no_sync"))
    finding = finding_of(report, "ddp-every-micro-batch")
    assert (finding.evidence["reductions_per_update"], finding.evidence["option"]) == (4, "no_sync()")
    saved_ns = report.run.mean_rank_step_ns() - without.run.mean_rank_step_ns()
    assert finding.saving_ns == pytest.approx(saved_ns, rel=0.01)
    transfers = finding_of(report, "exposed-transfers")
    assert transfers.evidence["exposed_ns"] == pytest.approx(76.7e6, rel=0.01)
    assert (transfers.time_ns or 0) + saved_ns == pytest.approx(76.7e6, rel=0.01)  # the same time is not told twice
    assert "ddp-every-micro-batch" not in [other.id for other in without.findings]


def test_launches_that_block_are_named_and_not_the_transfers_that_they_expose(cases: Path) -> None:
    report = analyze(cases / "launches-that-block/run")
    first = report.findings[0]
    assert first.id == "launches-that-block"
    assert (first.evidence["behind_per_step"], first.evidence["launches_per_step"]) == (43, 43)
    assert first.evidence["idle_share"] == pytest.approx(0.08, abs=0.01)
    assert "exposed-transfers" not in [finding.id for finding in report.findings]


def test_ranks_without_recorded_communication_are_compared_by_what_they_compute(cases: Path) -> None:
    """GIVEN four workers of Horovod, of which worker 2 computes 19.9 ms a step and the others 16.2."""
    report = analyze(cases / "gpu-ranks-without-communication/run")
    assert finding_of(report, "no-communication").evidence["ranks"] == 4
    finding = finding_of(report, "longer-compute")
    assert (finding.rank, finding.evidence["others_idle_ns"]) == (2, pytest.approx(5.3e6, rel=0.01))
    assert finding.evidence["compute_ns"] == pytest.approx(19.9e6, rel=0.01)
    assert finding.evidence["others_compute_ns"] == pytest.approx(16.2e6, rel=0.01)
    assert report.run.strategies == ()


def test_experts_by_hand_are_expert_parallel_beside_data_parallel(real_traces: Path) -> None:
    report = analyze(real_traces / "h200_shared" / "ep2_torch")
    assert report.run.strategies == ("ep", "manual_dp")
    assert finding_of(report, "exposed-transfers").evidence["kind"] == "all_to_all"
