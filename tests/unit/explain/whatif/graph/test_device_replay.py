"""What a GPU rank's step takes with other durations: its host, its device and its communication wait for each other.

Times are microseconds; `device_job` draws a step.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.explain.whatif.graph.device_job import steps_of_job
from tracekit.explain.whatif.peer_speed import with_limits
from tracekit.replay.operation_graph import DATA, NEVER_NS, SYNCHRONISATION, GraphSteps, OperationGraph

Job = tuple[OperationGraph, GraphSteps]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Two ranks whose matrix products take 100 and 140: a step takes 240."""
    return steps_of_job(tmp_path, (100, 140))


def tasks_of(job: Job, rank: int, name: str, place: int | None = None) -> np.ndarray:
    """Return the tasks of a rank with operations of a type: all of them, or the first or second of two in each step."""
    graph, steps = job
    operations = np.flatnonzero((steps.rank == rank) & (steps.type == graph.types.index(name)))
    tasks = np.unique(steps.task[operations])
    return tasks if place is None else tasks[place::2]


def step_us(job: Job, *changes: tuple[np.ndarray, float]) -> list[float]:
    """Return how long each step takes if some tasks take longer or shorter by microseconds; limits follow."""
    _, steps = job
    task_ns = steps.task_ns.copy()
    for tasks, change_us in changes:
        task_ns[tasks, 0] += np.where(task_ns[tasks, 0] > 0, 1000 * change_us, 0)
    return list((steps.step_ns(steps.with_task_times(with_limits(steps, task_ns))) / 1000).tolist())


def test_with_the_measured_durations_steps_last_as_measured(job: Job) -> None:
    assert step_us(job) == pytest.approx([240] * 3)


@pytest.mark.parametrize(("longer_us", "expected_us"), [(-40, 200), (-90, 200), (30, 270)])
def test_the_kernels_of_the_rank_that_arrives_last_decide(job: Job, longer_us: float, expected_us: float) -> None:
    """THEN a step gets shorter until rank 0 arrives last."""
    assert step_us(job, (tasks_of(job, 1, "compute", 0), longer_us)) == pytest.approx([expected_us] * 3, abs=1)


@pytest.mark.parametrize(("longer_us", "expected_us"), [(-50, 240), (40, 240), (60, 260)])
def test_a_rank_that_arrives_first_has_time(job: Job, longer_us: float, expected_us: float) -> None:
    assert step_us(job, (tasks_of(job, 0, "compute", 0), longer_us)) == pytest.approx([expected_us] * 3, abs=1)


def test_a_host_that_did_not_wait_for_its_device_would_run_ahead(job: Job) -> None:
    """THEN the work of the host, 38 after it waited, is hidden: a step takes as long as 141 + 20 + 22 on the device."""
    _, steps = job
    waits = steps.role == SYNCHRONISATION
    duration_ns = np.where(waits[steps.task][:, None], NEVER_NS, steps.duration_ns)

    assert float(steps.step_ns(duration_ns)[1]) / 1000 == pytest.approx(183, abs=2)


@pytest.mark.parametrize("load_at", [0, 2])
def test_a_step_is_shorter_without_the_loading_of_data(tmp_path: Path, load_at: int) -> None:
    """GIVEN loads of 4, which may begin at the same time as the step."""
    _, steps = job = steps_of_job(tmp_path, (100, 100), load_at=load_at)
    loads = np.flatnonzero(steps.role == DATA)

    assert steps.task_ns[loads].sum() == 2 * 3 * 4000
    assert step_us(job, (loads, -4)) == pytest.approx([196] * 3, abs=0.5)
