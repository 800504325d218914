"""A rank is waited for if others end their steps earlier when it is faster; a message alone is no wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.simulated import Cluster
from tests.unit.explain.whatif.hand_made import TaskOf, graph_of
from tracekit.explain.section import Unavailable
from tracekit.explain.whatif.changes import Change
from tracekit.explain.whatif.whatif import WhatIf, ranks_waited_for, what_if_of_run
from tracekit.model.run import Run
from tracekit.replay.operation_graph import OperationGraph
from tracekit.replay.replay import build_graph

MS = 1_000_000.0


def graph_with(waits: Sequence[tuple[int, int]]) -> OperationGraph:
    """Return a step of three ranks, of which rank 1 works 30 ms and the others 10 ms. waits: (waiting, for) by rank."""
    works = [TaskOf(rank=rank, ns=[30 * MS if rank == 1 else 10 * MS]) for rank in range(3)]
    ends = [TaskOf(rank=rank, ns=[0.0], kind="end") for rank in range(3)]
    graph = graph_of([*works, *ends])
    edges = [(rank, 3 + rank) for rank in range(3)] + [(of, 3 + waiting) for waiting, of in waits]
    before, after = (np.array(column, dtype=np.int64) for column in zip(*edges, strict=True))
    group = replace(
        graph.step_groups[0],
        graph=build_graph(6, before, after, np.full(6, -1)),
        step_ends=np.array([[3, 4, 5]], dtype=np.int64),
    )
    return replace(graph, step_groups=(group,))


def faster(rank: int) -> Change:
    return Change(what="", remedy="ranks", saves_ns_per_step=1, error_ns=0, share=0.1, rank=rank, ranks=(rank,))


def test_a_slow_rank_is_waited_for_if_another_ends_earlier_without_its_delay() -> None:
    assert ranks_waited_for(graph_with([(0, 1)]), [faster(1)]) == {1}


def test_a_slow_rank_that_itself_waits_for_others_is_not_waited_for() -> None:
    assert ranks_waited_for(graph_with([(1, 0), (1, 2)]), [faster(1)]) == frozenset()
    assert ranks_waited_for(graph_with([]), [faster(1)]) == frozenset()


def test_a_rank_that_would_gain_nothing_is_not_waited_for() -> None:
    assert ranks_waited_for(graph_with([(0, 2)]), [faster(2)]) == frozenset()


def ring(*, messages: bool) -> Run:
    """Rank 1 of four computes three times as long; each waits for its left neighbour, or for nobody."""
    cluster = Cluster(4)
    for _ in cluster.steps(5):
        for rank in range(4):
            cluster.work(rank, compute=300_000 if rank == 1 else 100_000)
        for rank in range(4) if messages else ():
            cluster.message(rank, (rank + 1) % 4)
    return cluster.run()


def test_ranks_that_wait_for_messages_have_a_step_to_replay() -> None:
    assert isinstance(what_if_of_run(ring(messages=True)), WhatIf)


def test_ranks_that_do_not_communicate_have_none() -> None:
    result = what_if_of_run(ring(messages=False))

    assert isinstance(result, Unavailable)
    assert result.expected
    assert "none is seen to wait" in result.reason
