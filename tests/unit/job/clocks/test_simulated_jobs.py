"""Clocks of simulated GPU jobs on several machines are within their stated errors, by collectives or by messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gpu_jobs import Clocks, Family, simulate, spec_of
from benchmarks.gpu_jobs.kineto import BASE_NS, ORIGIN_NS


@pytest.mark.parametrize("seed", [2])
@pytest.mark.parametrize("family", ["tensor", "expert"])
@pytest.mark.parametrize("named", [False, True])
def test_a_machine_whose_clock_jumps(family: Family, seed: int, named: bool) -> None:
    """GIVEN two machines with one collective of all gradients a step, and that the second one's clock is set ahead by
    1.3 ms in the middle THEN no clock is known, or the stated errors hold before and after."""
    clocks = Clocks(offset_us=(0.0, 900.0), drift_ppm=(0.0, -30.0), jump_us=(0.0, 1300.0))
    spec = spec_of(family, seed)
    half = spec.ranks // 2
    spec = replace(spec, ranks_per_host=half, clocks=clocks, buckets=1, steps=5, sequence_numbers=named)
    job = simulate(spec)
    models = job.run("collectives").clocks
    if {model.method for model in models} == {"none"}:
        return
    ends_ns = sorted({step.end_ns for step in job.truth.steps})
    for true_ns in (ends_ns[0], ends_ns[-1]):
        shown_ns = [
            BASE_NS + ORIGIN_NS + true_ns + round(clocks.error_ns(host, true_ns, job.finished.duration_ns))
            for host in (spec.host_of(model.rank) for model in models)
        ]
        on_run_ns = [model.moment_to_run(ns) for model, ns in zip(models, shown_ns, strict=True)]
        for model, ns in zip(models, on_run_ns, strict=True):
            assert model.error_ns is not None
            assert abs(ns - on_run_ns[0]) <= model.error_ns + (models[0].error_ns or 0)
