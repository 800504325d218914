"""What the time of the mean step goes to: on simulated runs whose causes are known, and as a property of every run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.gpu_jobs import simulate
from benchmarks.simulated import Cluster
from benchmarks.studies.gpu_jobs.cases import GROUPS, Case
from tests.builders import TraceBuilder, write_run
from tracekit.explain.diagnosis.critical_path import critical_path
from tracekit.explain.diagnosis.diagnosis import StepCause, step_causes
from tracekit.explain.pipeline.bubbles import Pipeline
from tracekit.explain.stragglers.arrivals import arrivals_of
from tracekit.explain.stragglers.verdict import Verdict
from tracekit.model.run import Run
from tracekit.model.table import rows_of
from tracekit.report.report import Report, analyze

NOBODY = Verdict()
SOME_PIPELINE = Pipeline(
    schedule="1f1b", schedule_inferred=False, stages=2, virtual_stages=1, microbatches=1, steps=6, pipelines=1,
    bubble_ratio=None, ideal_bubble_ratio=None, ideal_basis=None, bubble_to_ideal_ratio=None, causes_ns={},
    replay_error=None, uneven_stage=None, changes=(), findings=(), by_stage=[], by_rank=[], typical_step=[],
)  # fmt: skip


def causes(
    run: Run, verdict: Verdict = NOBODY, pipeline: Pipeline | None = None
) -> Counter[tuple[str, tuple[int, ...]]]:
    """Return the times by cause and ranks; they sum to the step."""
    arrivals = arrivals_of(run, run.common_steps())
    step_ns, found = step_causes(run, arrivals, critical_path(run, arrivals), verdict, pipeline)
    assert sum(found.values()) == step_ns
    result: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for cause, time_ns in found.items():
        result[cause.cause, cause.ranks] += time_ns
    return result


def with_slow_rank(*, by: int, steps: int = 3) -> Run:
    cluster = Cluster(4)
    for _ in cluster.steps(steps):
        for rank in range(4):
            cluster.work(rank, compute=100 + by * (rank == 2), host=10)
        cluster.collective((0, 1, 2, 3), transfer=20)
    return cluster.run()


def test_what_a_named_rank_takes_longer_is_its_delay() -> None:
    verdict = Verdict(rank=2, cause="compute", caused_delay_ns=50)
    found = causes(with_slow_rank(by=50), verdict)
    assert found["slow_compute", (2,)] == 50
    assert found["transfer", ()] == 20
    assert found["variation", ()] == 0
    assert sum(found.values()) == 180


@pytest.mark.parametrize("in_pipeline", [True, False])
def test_what_a_message_of_a_pipeline_takes_beyond_the_usual_is_no_transfer(in_pipeline: bool) -> None:
    """GIVEN messages of 10, one of which takes 70 in one of six steps."""
    cluster = Cluster(2)
    for step in cluster.steps(6):
        cluster.work(0, compute=100)
        cluster.message(0, 1, transfer=70 if step == 3 else 10)
        cluster.message(1, 0, transfer=10)

    found = causes(cluster.run(), pipeline=SOME_PIPELINE if in_pipeline else None)

    assert found["compute", ()] == 100
    assert (found["transfer", ()], found["late_peer", ()]) == ((20, 10) if in_pipeline else (30, 0))


@settings(deadline=None, max_examples=30)
@given(
    durations=st.lists(st.integers(1, 500), min_size=12, max_size=12),
    offsets=st.lists(st.integers(-(10**12), 10**12), min_size=3, max_size=3),
    delay_ns=st.integers(0, 1000),
)
def test_causes_sum_to_the_step_on_any_run(durations: list[int], offsets: list[int], delay_ns: int) -> None:
    """GIVEN any durations, clock offsets and verdict; `causes` checks the sum."""
    cluster = Cluster(3, offsets=offsets)
    for _ in cluster.steps(2):
        for k in range(3):
            for rank in range(3):
                cluster.work(rank, compute=durations[3 * k + rank], host=durations[9 + rank])
            cluster.collective(range(3) if k == 2 else (k, k + 1), transfer=7)
        cluster.message(0, 2, transfer=5)
    found = causes(cluster.run(), Verdict(rank=1, cause="host", caused_delay_ns=delay_ns))
    assert min(found.values()) >= 0


def assert_causes_sum_to_the_step(report: Report) -> None:
    diagnosis = report.diagnosis
    assert diagnosis is not None
    rows = rows_of(diagnosis, "causes")
    assert sum(row["time_ns"] for row in rows) == diagnosis.step_ns
    assert all(row["time_ns"] > 0 for row in rows)
    if diagnosis.steps:
        assert diagnosis.step_ns > 0


@pytest.mark.parametrize("group", sorted(GROUPS)[::2])
def test_causes_sum_to_the_step_on_gpu_jobs(group: str) -> None:
    for seed in (3,):
        assert_causes_sum_to_the_step(simulate(Case(group, seed).spec()).report())


@pytest.mark.parametrize("name", ["dlrm_8xV100", "single_rank/mi300x_resnet_rank0_of_8.json.gz"])
def test_causes_sum_to_the_step_on_public_traces(real_traces: Path, name: str) -> None:
    assert_causes_sum_to_the_step(analyze(str(real_traces / name)))


def test_the_key_of_a_cause_has_what_distinguishes_it() -> None:
    assert StepCause(cause="compute", phase="forward") != StepCause(cause="compute", phase="backward")


def test_a_collective_to_which_several_came_last_is_no_variation_of_the_last_rank(tmp_path: Path) -> None:
    """GIVEN a rank that lacks its first collective, so that there is one less of them than of the other ranks' WHEN
    nobody can be told to have been last THEN the time is that of the rank's activities."""
    traces = []
    for rank in range(9):
        trace = TraceBuilder(rank=rank, world_size=9)
        for step in range(3):
            at_us = 200 * step
            trace.step(step, at_us, 190).op("aten::mm", at_us + 2, 20)
            trace.kernel("gemm", at_us + 10, 60 + rank, launched_at=at_us + 4)
            if rank < 8 or step > 0:
                trace.nccl("all_reduce", at_us + 75, 100, launched_at=at_us + 30, group=list(range(9)))
        traces.append(trace)
    report = analyze(str(write_run(tmp_path, traces)), cache=False)
    assert_causes_sum_to_the_step(report)
