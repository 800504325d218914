"""What the what-if says a planted defect costs, against the same simulated GPU job without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gpu_jobs import Defect, JobSpec, simulate
from tracekit.explain.whatif.whatif import WhatIf

DDP = JobSpec(family="ddp", dp=4, synced=True)
FSDP = JobSpec(family="fsdp", dp=4)
TENSOR = JobSpec(family="tensor", dp=2, tp=2)
PIPELINE = JobSpec(family="pipeline", pp=4, microbatches=4)


def replayed(spec: JobSpec) -> tuple[WhatIf, float, float]:
    """Return the what-if of a job, how much shorter its step is without the defect, and its step, in ns."""
    job = simulate(spec)
    result = job.report(only=["whatif"]).results["whatif"]
    assert isinstance(result, WhatIf)
    return result, job.truth.saving_ns, job.truth.mean_step_ns


def test_balancing_an_uneven_stage_saves_what_the_job_with_layers_moved_shows() -> None:
    """THEN no change lets the stage be as fast as others: its layers have to go somewhere."""
    defect = Defect(cause="uneven_stage", ranks=(2,), stage=2, delay_us=3000)
    result, _, step_ns = replayed(replace(PIPELINE, defect=defect, jitter=0.05))
    more = defect.delay_us / (PIPELINE.layers / PIPELINE.pp * PIPELINE.microbatches * 3 * PIPELINE.layer_us)
    balanced = simulate(replace(PIPELINE, layer_us=PIPELINE.layer_us * (1 + more / PIPELINE.pp), jitter=0.05))
    saving_ns = step_ns - balanced.truth.mean_step_ns

    assert {change.remedy for change in result.changes} <= {"stages", "communication", "network", "together", "host"}
    (change,) = [change for change in result.changes if change.remedy == "stages"]
    assert saving_ns > 0.04 * step_ns
    assert change.saves_ns_per_step == pytest.approx(saving_ns, abs=max(0.1 * saving_ns, 0.01 * step_ns))


@pytest.mark.parametrize("spec", [replace(DDP, launch_us=400), replace(TENSOR, launch_us=400)], ids=["ddp", "tensor"])
def test_closing_host_bound_gaps_saves_what_the_job_with_fast_launches_shows(spec: JobSpec) -> None:
    """GIVEN launches that take longer than kernels THEN the saving is that of launches that take 1 us."""
    result, _, step_ns = replayed(spec)
    saving_ns = step_ns - simulate(replace(spec, launch_us=1)).truth.mean_step_ns

    (change,) = [change for change in result.changes if change.remedy == "host"]
    assert saving_ns > 0.2 * step_ns
    assert change.saves_ns_per_step == pytest.approx(saving_ns, abs=max(0.1 * saving_ns, 0.01 * step_ns))


def test_parameters_that_are_gathered_early_hide_under_compute() -> None:
    """GIVEN FSDP whose host waits for each unit WHEN gathers wait for the step before alone THEN a part is hidden: no
    more than if the next units are gathered ahead, as reductions are still in their way.
    """
    spec = replace(FSDP, prefetch=0, exchange_us=300)
    result, _, step_ns = replayed(spec)
    ahead_ns = simulate(replace(spec, prefetch=None)).truth.mean_step_ns

    (change,) = [change for change in result.changes if change.remedy == "communication"]
    (free,) = [change for change in result.changes if change.remedy == "network"]
    assert 0.1 * step_ns < change.saves_ns_per_step < step_ns - ahead_ns
    assert change.saves_ns_per_step < free.saves_ns_per_step
    assert abs(result.replay_error) < 0.01


def test_several_changes_at_once_save_what_the_job_without_the_defects_shows() -> None:
    """GIVEN a slow rank in a job that its hosts hold up."""
    spec = replace(DDP, launch_us=150, defect=Defect(cause="compute", ranks=(2,), delay_us=4000))
    result, _, step_ns = replayed(spec)
    saving_ns = step_ns - simulate(replace(spec, launch_us=1, defect=None)).truth.mean_step_ns

    (change,) = [change for change in result.changes if change.remedy == "together"]
    assert change.saves_ns_per_step > max(c.saves_ns_per_step for c in result.changes if c.remedy in ("host", "ranks"))
    assert change.saves_ns_per_step == pytest.approx(saving_ns, rel=0.1)


def test_a_loader_that_a_host_running_ahead_hides_saves_nothing() -> None:
    """GIVEN a host that never waits for its device WHEN it loads data for 2 ms a step THEN the device has work."""
    defect = Defect(cause="data", ranks=(1,), delay_us=2000)
    result, saving_ns, step_ns = replayed(replace(DDP, synced=False, defect=defect))

    assert saving_ns == pytest.approx(0, abs=0.01 * step_ns)
    assert {change.remedy for change in result.changes} == {"network"}
