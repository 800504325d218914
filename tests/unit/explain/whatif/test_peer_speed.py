"""What the work of a rank takes at the speed of its peers, with medians worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.explain.whatif.hand_made import TaskOf, graph_of
from tracekit.explain.whatif.peer_speed import at_peers_speed, with_limits
from tracekit.replay.operation_graph import DATA, LIMIT, NEVER_NS, SYNCHRONISATION


def at_peers_ns(tasks: Sequence[TaskOf], *ranks: int) -> list[float]:
    """Return how long each task takes in the first replica with these ranks at their peers' speed."""
    (duration_ns,) = at_peers_speed(graph_of(tasks), ranks)
    return [float(time_ns) for time_ns in duration_ns[:, 0]]


def test_a_slow_rank_works_as_long_as_the_median_of_the_others() -> None:
    tasks = [TaskOf(rank=rank, ns=[time_ns]) for rank, time_ns in enumerate((10, 50, 12, 20))]

    assert at_peers_ns(tasks, 1) == [10, 12, 12, 20]
    assert at_peers_ns(tasks, 1, 3) == [10, 11, 12, 11]  # of two others: their mean


def test_data_that_no_other_rank_loads_takes_no_time_and_the_rank_does_not_wait_for_its_device_as_others_do_not() -> (
    None
):
    hosts = [TaskOf(rank=rank, ns=[10], kind="host") for rank in range(3)]
    tasks = [
        *hosts,
        TaskOf(rank=1, ns=[500], kind="data", role=DATA, host=1),
        TaskOf(rank=1, ns=[0], kind="synchronise", role=SYNCHRONISATION, host=1),
    ]

    assert at_peers_ns(tasks, 1) == [10, 10, 10, 0, NEVER_NS]


@pytest.mark.parametrize(
    ("host_ns", "device_ns", "limit_ns"),
    [
        (20, 40, 100),  # as measured
        (10, 40, 75),  # half of the host's half
        (20, 20, 75),  # half of the device's half
        (10, 20, 50),
    ],
)
def test_a_limit_follows_the_host_and_the_device(host_ns: float, device_ns: float, limit_ns: float) -> None:
    """GIVEN a limit of 100, half of it the work of a host of 20 and half that of kernels of 40."""
    tasks = [
        TaskOf(rank=0, ns=[20], kind="host"),
        TaskOf(rank=0, ns=[40], kind="device"),
        TaskOf(rank=0, ns=[100], kind="limit", role=LIMIT, host=0, device=1, host_share=0.5),
    ]
    (group,) = graph_of(tasks).step_groups

    task_ns = with_limits(group, np.array([[host_ns], [device_ns], [100.0]]))

    assert task_ns[:, 0].tolist() == [host_ns, device_ns, limit_ns]
