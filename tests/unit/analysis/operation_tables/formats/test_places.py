"""What tables leave out: stages, replicas, steps."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.operation_tables.formats.places import (
    derive_replicas,
    derive_stages,
    derive_steps,
    number_microbatches,
    separate_steps,
)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_stages_are_places_in_the_replica_then_chunks() -> None:
    assert derive_stages(ints(3, 7, 3, 7), None, ints(0, 0, 1, 1)).tolist() == [0, 1, 2, 3]
    assert derive_stages(ints(0, 1, 2, 3), ints(0, 1, 0, 1), None).tolist() == [0, 0, 1, 1]


def test_ranks_of_equal_stages_are_replicas_in_order() -> None:
    assert derive_replicas(ints(0, 1, 2, 3), ints(0, 1, 0, 1)).tolist() == [0, 0, 1, 1]


def test_a_repeated_operation_begins_a_step_and_others_belong_to_it() -> None:
    kind = np.array([0, 1, 9, 0, 1, 9], dtype=np.int32)
    rank, zero = ints(*[4] * 6), ints(*[0] * 6)
    computes = kind < 2
    steps = derive_steps(rank, zero, zero, kind, ints(0, 10, 20, 30, 40, 50), computes)
    assert steps.tolist() == [0, 0, 0, 1, 1, 1]


def test_what_computes_nothing_belongs_to_the_operation_before_it_on_its_rank_or_to_the_first() -> None:
    """GIVEN ranks 0 and 1 with two steps each, from 0 and 30, and from 5 and 25, and rank 2 without any."""
    rank, kind = ints(0, 0, 1, 1, 0, 0, 0, 1, 2), np.array([0, 0, 0, 0, 9, 9, 9, 9, 9], dtype=np.int32)
    start_ns, zero = ints(0, 30, 5, 25, -1, 29, 30, 26, 40), ints(*[0] * 9)
    steps = derive_steps(rank, zero, zero, kind, start_ns, kind < 2)
    assert steps.tolist() == [0, 1, 0, 1, 0, 0, 1, 1, 0]


def test_what_is_derived_equals_a_loop_over_ranks_replicas_and_steps() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        rank, replica, chunk, stage, step = rng.integers(0, 5, (5, 40))
        stages, replicas, seen = np.zeros_like(rank), np.zeros_like(rank), []
        for number in range(5):
            here = replica == number
            of_replica = sorted(set(rank[here].tolist()))
            place = np.array([of_replica.index(one) for one in rank[here].tolist()], dtype=np.int64)
            stages[here] = place + len(of_replica) * chunk[here]
            of_rank = set(stage[rank == number].tolist())
            replicas[rank == number] = seen.count(of_rank)
            seen.append(of_rank)
        assert derive_stages(rank, replica, chunk).tolist() == stages.tolist()
        assert derive_replicas(rank, stage).tolist() == replicas.tolist()
        microbatch = rng.integers(-1, 9, 40)
        in_step = [sorted(set(microbatch[(step == number) & (microbatch >= 0)].tolist())) for number in range(5)]
        expected = [
            in_step[s].index(m) if m >= 0 else m for s, m in zip(step.tolist(), microbatch.tolist(), strict=True)
        ]
        assert number_microbatches(step, microbatch)[0].tolist() == expected


def test_microbatches_count_from_0_in_each_step() -> None:
    numbers, changed = number_microbatches(ints(0, 0, 1, 1, 1), ints(1, 2, 3, 4, -1))
    assert (numbers.tolist(), changed) == ([0, 1, 0, 1, -1], True)
    assert not number_microbatches(ints(0, 0), ints(0, 1))[1]


def test_steps_are_moved_apart_only_if_those_of_a_rank_overlap() -> None:
    step, rank = ints(0, 0, 1, 1), ints(0, 1, 0, 1)
    apart = separate_steps(rank, step, ints(0, 5, 10, 15), ints(10, 15, 20, 25))
    assert apart.tolist() == [0] * 4  # rank 0 begins step 1 before rank 1 ends step 0, as ranks of a pipeline do
    assert separate_steps(rank, step, ints(0, 5, 0, 5), ints(10, 15, 10, 15)).tolist() == [0, 0, 15, 15]
