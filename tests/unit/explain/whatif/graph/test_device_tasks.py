"""What the work of GPU ranks is compared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu_jobs import JobSpec, simulate
from tests.unit.explain.whatif.graph.device_job import steps_of_job
from tracekit.explain.whatif.graph.run_graph import build_run_graph
from tracekit.replay.operation_graph import GraphSteps, OperationGraph


def classes(job: tuple[OperationGraph, GraphSteps], rank: int, name: str) -> list[int]:
    """Return the comparison classes of a rank's operations of a type, in order of time."""
    graph, steps = job
    operations = np.flatnonzero((steps.rank == rank) & (steps.type == graph.types.index(name)))
    return [int(number) for number in steps.comparison_class[steps.task[operations]]]


def test_work_at_the_same_place_of_a_step_is_compared_over_ranks_and_steps(tmp_path: Path) -> None:
    job = steps_of_job(tmp_path, (100, 140))
    gemm, adam = classes(job, 0, "compute")[:2]

    assert gemm != adam
    assert classes(job, 0, "compute") == classes(job, 1, "compute") == [gemm, adam] * 3
    assert classes(job, 0, "all_reduce") == classes(job, 1, "all_reduce")
    assert len(set(classes(job, 0, "all_reduce"))) == 1


@pytest.mark.parametrize("dp", [1, 2])
def test_actions_of_a_pipeline_are_compared_with_those_of_the_same_stage(dp: int) -> None:
    """THEN the forwards of both stages are one kind, and have a class for each stage."""
    spec = JobSpec(family="pipeline", pp=2, dp=dp, layers=4, microbatches=2, labels="action")
    graph = build_run_graph(simulate(spec).run(only=["whatif"]))

    forwards = [
        (int(steps.kind[task]), int(steps.comparison_class[task]))
        for steps in graph.step_groups
        for task in steps.task[steps.type == graph.types.index("forward")]
    ]
    assert len({kind for kind, _ in forwards}) == 1
    assert len({label for _, label in forwards}) == 2
    assert {kind for kind, _ in forwards} <= graph.stage_kinds
