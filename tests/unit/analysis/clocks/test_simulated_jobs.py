"""Clocks of simulated GPU jobs on several machines are within their stated errors, by collectives or by messages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.gpu_jobs import Clocks, Family, simulate, spec_of
from benchmarks.gpu_jobs.kineto import BASE_NS, ORIGIN_NS

CLOCKS = Clocks(offset_us=(0.0, 2500.0, -40.0, 700.0), drift_ppm=(0.0, -30.0, 25.0, 12.0))


@pytest.mark.parametrize(
    ("family", "batched", "methods", "useful_us"),
    [
        ("ddp", False, {"collectives", "host"}, 10),
        ("expert", False, {"collectives", "host"}, 20),
        ("pipeline", False, {"messages", "host"}, 50),
        ("pipeline", True, {"messages", "host"}, 200),
    ],
)
def test_clocks_of_several_machines(family: Family, batched: bool, methods: set[str], useful_us: float) -> None:
    """GIVEN machines of two ranks with clocks up to 2.5 ms off that drift THEN each error holds, and is small.

    A kernel of several messages may wait for others, so batches bound clocks less closely than single messages.
    """
    spec = replace(spec_of(family, 2), ranks_per_host=2, clocks=CLOCKS, batched_messages=batched)
    job = simulate(spec)
    clocks = job.run("collectives").clocks
    assert spec.hosts > 1
    assert {clock.method for clock in clocks} <= methods
    first_ns, last_ns = min(s.start_ns for s in job.truth.steps), max(s.end_ns for s in job.truth.steps)
    for true_ns in np.linspace(first_ns, last_ns, 9).astype(np.int64).tolist():
        ahead_ns = [CLOCKS.error_ns(spec.host_of(clock.rank), true_ns, job.finished.duration_ns) for clock in clocks]
        on_run_ns = [
            clock.moment_to_run(BASE_NS + ORIGIN_NS + true_ns + round(ahead))
            for clock, ahead in zip(clocks, ahead_ns, strict=True)
        ]
        for clock, shown_ns in zip(clocks, on_run_ns, strict=True):
            assert clock.error_ns is not None
            assert abs(shown_ns - on_run_ns[0]) <= clock.error_ns + (clocks[0].error_ns or 0)
            assert clock.error_ns <= useful_us * 1000


@pytest.mark.parametrize("seed", [2, 4, 6])
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
