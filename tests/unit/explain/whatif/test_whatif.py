"""What-if of jobs that are small enough to work out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tracekit.explain.whatif.whatif import WhatIf, what_if
from tracekit.replay.operation_graph import GraphSteps, OperationGraph
from tracekit.replay.replay import build_graph

TRANSFER = 1


def data_parallel(
    compute_ns: Sequence[Sequence[int]], transfer_ns: int = 10, measured_ns: float | None = None
) -> OperationGraph:
    """Return a job in which each rank computes, then all reduce. compute_ns: by rank and step."""
    ranks, steps = len(compute_ns), len(compute_ns[0])
    count = 2 * ranks
    duration_ns = np.array(
        [row for of_rank in compute_ns for row in (of_rank, [transfer_ns] * steps)], dtype=np.float64
    )
    compute = np.arange(0, count, 2)
    graph = build_graph(count, compute, compute + 1, np.where(np.arange(count) % 2, 0, -1))
    kind, rank = np.arange(count) % 2, np.arange(count) // 2
    unknown = np.full(count, -1)
    longest_ns = duration_ns[::2].max(axis=0) + transfer_ns
    graph_steps = GraphSteps(
        graph=graph,
        duration_ns=duration_ns,
        task=np.arange(count),
        kind=kind,
        comparison_class=kind,
        type=kind,
        rank=rank,
        stage=unknown,
        replica=unknown,
        steps=np.arange(steps),
        measured_ns=longest_ns if measured_ns is None else np.full(steps, measured_ns),
    )
    return OperationGraph(
        step_groups=(graph_steps,), types=("compute", "all_reduce"), communication_kinds=frozenset({TRANSFER})
    )


def changes(result: WhatIf) -> dict[str, tuple[int, int]]:
    return {change.what: (change.saves_ns_per_step, change.error_ns) for change in result.changes}


@pytest.mark.parametrize(("steps", "named"), [(1, set()), (2, {(0, 1)})])
def test_ranks_that_are_slow_together_are_a_change_if_more_than_one_step_shows_it(
    steps: int, named: set[tuple[int, ...]]
) -> None:
    """GIVEN ranks 0 and 1 at twice the time of three others. One of them alone at the others' median saves nothing."""
    result = what_if(data_parallel([[200] * steps] * 2 + [[100] * steps] * 3))

    assert {change.ranks for change in result.changes if change.remedy == "ranks"} == named


def test_a_slow_rank() -> None:
    """
    rank 0  100 |10        T = 150, ideally all compute for (100 + 100 + 100 + 140) / 4 = 110: T_ideal = 120
    rank 3  140 |10        Rank 3 alone as measured: 150 again; each of the others: 120
    """
    result = what_if(data_parallel([[100] * 4, [100] * 4, [100] * 4, [140] * 4]))
    assert (result.replayed_ns, result.ideal_ns, result.steps) == (150, 120, 4)
    assert result.slowdown == pytest.approx(150 / 120)
    assert result.by_rank == pytest.approx({0: 1, 1: 1, 2: 1, 3: 1.25})
    assert result.by_type == pytest.approx({"compute": 1.25, "all_reduce": 1})
    assert result.slowest_ranks_share == pytest.approx(1)  # the slowest 3 % are one rank
    assert (result.last_stage_share, dict(result.by_stage)) == (None, {})
    assert changes(result) == {
        "rank 3 at its peers' median": (40, 0),
        "upper bound, if communication were free": (10, 0),
    }
    assert result.changes[0].share == pytest.approx(40 / 150)
    assert result.changes[0].rank == 3


def test_a_first_step_that_a_rank_begins_late_does_not_lessen_a_saving() -> None:
    """GIVEN rank 0, which begins to record 60 ns after the others: in the first step nobody waits for rank 3."""
    graph = data_parallel([[160, 100, 100], [100] * 3, [100] * 3, [140] * 3])
    (steps,) = graph.step_groups
    result = what_if(replace(graph, step_groups=(replace(steps, begin_ns=60.0),)))
    assert changes(result)["rank 3 at its peers' median"][0] == 40


def test_a_rank_that_is_slow_in_some_steps_has_an_uncertain_saving() -> None:
    """GIVEN savings of 40, 0, 40 and 0 ns a step THEN 20 ± 23.1 / sqrt(4) may be none; over 16 steps it is certain."""
    result = what_if(data_parallel([[100] * 4, [100] * 4, [140, 100, 140, 100]], transfer_ns=1))
    assert changes(result) == {}
    longer = what_if(data_parallel([[100] * 16, [100] * 16, [140, 100] * 8], transfer_ns=1))
    assert changes(longer) == {"rank 2 at its peers' median": (19, 5)}


def test_the_replay_error_is_part_of_every_saving() -> None:
    """GIVEN steps of 160 of which the replay explains 150 THEN a saving of 40 is 2.5 uncertain."""
    result = what_if(data_parallel([[100] * 4, [100] * 4, [140] * 4], measured_ns=160))
    assert result.replay_error == pytest.approx(-1 / 16)
    assert changes(result)["rank 2 at its peers' median"] == (40, 2)


def test_no_saving_exceeds_the_measured_step() -> None:
    """GIVEN a replay of 150 for steps of 110 that transfer for 140 THEN all that can be saved is the step."""
    result = what_if(data_parallel([[10] * 4] * 3, transfer_ns=140, measured_ns=110))
    assert {change.remedy: change.saves_ns_per_step for change in result.changes} == {"network": 110}


def test_of_many_ranks_those_are_replayed_that_can_delay_the_job_most() -> None:
    """GIVEN 70 ranks, of which rank r computes for 1000 - r THEN the 64 slowest have an S, the others a bound."""
    ranks = 70
    graph = data_parallel([[1000 - rank] * 2 for rank in range(ranks)])
    result = what_if(graph)
    mean_ns = sum(1000 - rank for rank in range(ranks)) / ranks

    assert sorted(result.by_rank) == list(range(64))
    # alone as measured, a rank that is slower than the mean makes all wait, a faster one none
    expected = [max(1000 - rank, mean_ns) + 10 for rank in range(64)]
    assert [result.by_rank[rank] * (mean_ns + 10) for rank in range(64)] == pytest.approx(expected)
    assert result.slowest_ranks_share == pytest.approx(
        (1010 - (997 + 10)) / (1010 - (mean_ns + 10))
    )  # 3 % of 70 ranks are 3
    (note,) = [note for note in result.notes if note.startswith("the slowdown of the 64 of 70 ranks")]
    assert note.endswith("is above 1.000")
