"""What a late GPU rank did otherwise than its peers: causes that are planted in simulated jobs.

The ranks are compared in the same part of the program. Each job has queues that hide when ranks were ready.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gpu_jobs import JobSpec, simulate
from benchmarks.gpu_jobs.spec import Cause, Defect, Family
from tracekit.explain.stragglers.stragglers import stragglers

RANK, DELAY_US = 2, 900.0
JOBS: dict[Family, JobSpec] = {
    "ddp": JobSpec(family="ddp", dp=4, ranks_per_host=4, layers=6, gradient_us=4000.0, jitter=0.02),
    "fsdp": JobSpec(family="fsdp", dp=4, ranks_per_host=4, layers=6, exchange_us=150.0, prefetch=1, jitter=0.02),
    "tensor": JobSpec(family="tensor", dp=2, tp=2, ranks_per_host=4, layers=6, jitter=0.02),
    "expert": JobSpec(family="expert", dp=4, ep=4, ranks_per_host=4, layers=4, jitter=0.02),
}


@pytest.mark.parametrize("family", JOBS)
@pytest.mark.parametrize("cause", ["compute", "more_work", "host", "data"])
def test_the_cause_of_a_slow_rank(family: Family, cause: Cause) -> None:
    """GIVEN a rank that is late in a job whose communication overlaps with compute THEN it is named with the cause."""
    defect = Defect(cause=cause, ranks=(RANK,), delay_us=DELAY_US)
    spec = replace(JOBS[family], synced=cause == "data", defect=defect)

    verdict = stragglers(simulate(spec).run(only=["collectives", "stragglers"])).verdict

    assert (verdict.rank, verdict.cause) == (RANK, cause)


@pytest.mark.parametrize("family", JOBS)
def test_equal_ranks_are_not_named(family: Family) -> None:
    verdict = stragglers(simulate(JOBS[family]).run(only=["collectives", "stragglers"])).verdict
    assert (verdict.rank, verdict.ranks, verdict.link) == (None, (), None)


def test_the_delay_of_overlapped_reductions_is_what_the_step_is_longer_by() -> None:
    defect = Defect(cause="compute", ranks=(RANK,), delay_us=DELAY_US)
    job = simulate(replace(JOBS["ddp"], defect=defect))
    verdict = stragglers(job.run(only=["collectives", "stragglers"])).verdict
    assert verdict.caused_delay_ns == pytest.approx(job.truth.saving_ns, rel=0.05)
