"""What is said of parameters that FSDP gathers twice, against the same simulated GPU job without the second gathers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gpu_jobs import JobSpec, simulate
from benchmarks.gpu_jobs.strategies.fsdp import Unit, train_units
from tracekit.explain.configuration import CONFIGURATION
from tracekit.explain.step_time.tables import MEMORY_USE
from tracekit.explain.whatif.changes import Change
from tracekit.explain.whatif.sections import kept_parameters_findings
from tracekit.explain.whatif.whatif import WhatIf
from tracekit.findings.finding import Finding, held
from tracekit.model.metadata import MemoryUse, Settings, SettingValue
from tracekit.model.run import Run
from tracekit.report.report import Report

UNIT_BYTES = 8 << 20
UNITS = [Unit(name=f"blocks.{i}", size_bytes=UNIT_BYTES, gather_us=900, forward_us=400) for i in range(4)]


def report_of(*, reshards: bool, ahead: int = 0) -> tuple[Report, float]:
    """Return the report on a job that gathers each unit as it needs it, and its mean step in ns."""
    job = simulate(
        JobSpec(family="fsdp", dp=2, steps=4),
        lambda rank: train_units(rank, UNITS, backward_ahead=ahead, waits=True, reshards=reshards),
    )
    return job.report(only=["whatif", "fsdp"]), job.truth.mean_step_ns


def reshard_of(report: Report) -> Change | None:
    result = report.results["whatif"]
    assert isinstance(result, WhatIf)
    return next((change for change in result.changes if change.remedy == "reshard"), None)


@pytest.mark.parametrize("ahead", [0, 1])
def test_keeping_the_parameters_saves_what_the_job_that_keeps_them_shows(ahead: int) -> None:
    """GIVEN units of which each computes less than its gather takes. The copies of what is gathered are not counted."""
    report, step_ns = report_of(reshards=True, ahead=ahead)
    _, kept_ns = report_of(reshards=False)
    change = reshard_of(report)
    assert change is not None
    assert change.saves_ns_per_step == pytest.approx(step_ns - kept_ns, rel=0.1)


@pytest.fixture(scope="module")
def gathering() -> Run:
    return report_of(reshards=True)[0].run


CHANGE = Change(
    what="parameters kept from forward to backward",
    remedy="reshard",
    saves_ns_per_step=1_000_000,
    error_ns=50_000,
    share=0.1,
)


def configured(run: Run, strategy: str, component: str, **values: SettingValue) -> Run:
    settings = (Settings(component=component, values=values),)
    ranks = tuple(replace(s, strategies=(strategy,)).with_part(CONFIGURATION, settings) for s in run.ranks)
    return replace(run, ranks=ranks)


def only(run: Run) -> Finding:
    (finding,) = kept_parameters_findings(run, CHANGE)
    return finding


@pytest.mark.parametrize(
    ("strategy", "setting", "value", "action"),
    [
        ("fsdp2", "reshard_after_forward", True, "set reshard_after_forward=False (now True)"),
        ("fsdp2", "reshard_after_forward", 2, "set reshard_after_forward=False (now 2)"),
        ("fsdp1", "sharding_strategy", "FULL_SHARD", "set sharding_strategy=SHARD_GRAD_OP (now FULL_SHARD)"),
        ("fsdp1", "sharding_strategy", "HYBRID_SHARD", "set sharding_strategy=_HYBRID_SHARD_ZERO2 (now HYBRID_SHARD)"),
    ],
)
def test_the_setting_is_named_with_what_it_is(
    gathering: Run, strategy: str, setting: str, value: SettingValue, action: str
) -> None:
    finding = only(configured(gathering, strategy, strategy, **{setting: value}))
    assert finding.action == f"{action}, for 33.6 MB more a rank"
    assert "parameters of 4 modules" in finding.text
    assert finding.evidence["memory_bytes"] == 4 * UNIT_BYTES
    assert (finding.saving_ns, finding.saving_error_ns) == (1_000_000, 50_000)


@pytest.mark.parametrize(("peak", "advised"), [(900 << 20, True), (1000 << 20, False)])
def test_it_is_not_advised_where_the_memory_would_not_do(gathering: Run, peak: int, advised: bool) -> None:
    use = MemoryUse(
        parameter_bytes=None, gradient_bytes=None, optimizer_bytes=None, peak_bytes=peak, device_bytes=1 << 30
    )
    run = replace(gathering, ranks=tuple(summary.with_part(MEMORY_USE, use) for summary in gathering.ranks))
    assert bool(list(kept_parameters_findings(run, CHANGE))) is advised


def test_a_small_saving_is_no_finding(gathering: Run) -> None:
    assert held(kept_parameters_findings(gathering, replace(CHANGE, share=0.01))) == ()
    assert list(kept_parameters_findings(gathering, None)) == []
