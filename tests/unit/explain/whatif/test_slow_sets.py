"""Sets of ranks that are slow together, and what they are called."""

from __future__ import annotations

import pytest

from tests.unit.explain.whatif.hand_made import TaskOf, graph_of
from tracekit.explain.whatif.candidates import name_of_set, slow_sets
from tracekit.replay.operation_graph import OperationGraph

TWO_MACHINES = {0: "a", 1: "a", 2: "b", 3: "b"}


def ranks(*work_ns: float, kind: str = "work", role: int = 0) -> OperationGraph:
    return graph_of([TaskOf(rank=rank, ns=[time_ns], kind=kind, role=role) for rank, time_ns in enumerate(work_ns)])


def test_a_set_is_what_is_above_the_largest_gap() -> None:
    assert slow_sets(ranks(10, 11, 30, 31, 10, 10)) == [(2, 3)]
    assert slow_sets(ranks(31, 10, 10, 33, 10, 32)) == [(0, 3, 5)]


@pytest.mark.parametrize(
    "work_ns",
    [
        (10, 10, 10, 50),  # one rank is no set
        (10, 30, 30, 30),  # more than half of them: one rank is fast
        (10,),
    ],
)
def test_a_set_has_two_ranks_at_least_and_half_of_them_at_most(work_ns: tuple[float, ...]) -> None:
    assert slow_sets(ranks(*work_ns)) == []


def test_a_slow_stage_is_found_by_its_kind_where_each_stage_is_a_class_of_its_own() -> None:
    """GIVEN ranks 2 and 3 in a stage with more work: within their class no rank is slower than another."""
    tasks = [
        TaskOf(rank=rank, ns=[time_ns], kind="F", comparison_class=f"F{stage}", stage=stage)
        for rank, stage, time_ns in ((0, 0, 10), (1, 0, 10), (2, 1, 40), (3, 1, 40), (4, 2, 10), (5, 2, 10))
    ]

    assert slow_sets(graph_of(tasks)) == [(2, 3)]


def test_a_set_is_called_by_its_machine() -> None:
    tasks = [TaskOf(rank=rank, ns=[10], stage=0) for rank in range(4)]
    graph = graph_of(tasks, machines=TWO_MACHINES)

    assert name_of_set(graph, (2, 3)) == "host b (ranks 2-3)"
    assert name_of_set(graph, (1, 2)) == "ranks 1-2"  # of two machines
    assert name_of_set(graph_of(tasks, machines=dict.fromkeys(range(4))), (2, 3)) == "ranks 2-3"  # not known


def test_a_set_is_called_by_its_stage() -> None:
    """GIVEN stage 1 on both machines THEN it is called by the stage, and by its ranks if it has others too."""
    tasks = [TaskOf(rank=rank, ns=[10], stage=rank % 2) for rank in range(4)]
    graph = graph_of(tasks, machines=TWO_MACHINES)

    assert name_of_set(graph, (1, 3)) == "stage 1 (ranks 1,3)"
    three_stages = graph_of([*tasks, TaskOf(rank=5, ns=[10], stage=1)], machines=TWO_MACHINES)
    assert name_of_set(three_stages, (1, 3)) == "ranks 1,3"
