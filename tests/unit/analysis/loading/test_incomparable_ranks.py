"""Which ranks cannot be compared with most others, and why? Lengths are nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.analysis.exchanges import rank as summary_of
from tests.unit.analysis.exchanges import run_of, send
from tests.unit.analysis.simulated import Cluster
from tracekit.analysis.loading.incomparable_ranks import incomparable_in_run, without_incomparable_times
from tracekit.analysis.per_rank.summarize import RankFailure
from tracekit.model.events import ABSENT
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary


def ranks_of(*steps: Sequence[int], lengths: Sequence[int] = (), **others: Any) -> list[RankSummary]:
    """Return ranks with these steps, on GPUs; each rank's steps take the same time."""
    ranks = [summary_of(number, steps=numbers, **({"device": "gpu"} | others)) for number, numbers in enumerate(steps)]
    return [
        replace(summary, steps=tuple(replace(step, step_ns=length_ns) for step in summary.steps))
        for summary, length_ns in zip(ranks, [*lengths, *[100] * len(ranks)], strict=False)
    ]


def reasons(ranks: Sequence[RankSummary | RankFailure]) -> dict[int, str]:
    outcomes = without_incomparable_times(ranks)
    assert without_incomparable_times(outcomes) == outcomes
    return {s.rank: s.unmeasured for s in outcomes if isinstance(s, RankSummary) and s.unmeasured is not None}


def test_ranks_that_agree_keep_their_times() -> None:
    ranks = ranks_of((1, 2, 3), (1, 2, 3), (2, 3, 4))
    assert without_incomparable_times([*ranks, RankFailure(rank=3, notes=())])[:3] == ranks


def test_a_rank_without_kernels_among_gpu_ranks() -> None:
    ranks = ranks_of((1, 2), (1, 2), (1, 2))
    cpu = summary_of(3, steps=(1, 2))
    assert reasons([*ranks, cpu]) == {3: "it has no kernels, though most ranks have some"}
    talking = summary_of(3, [send(0, 5)], steps=(1, 2))
    assert reasons([*ranks, talking]) == {}, "a rank of a mixed job exchanges messages with the others"
    assert reasons([*ranks, replace(cpu, strategies=("rpc",))]) == {}
    assert reasons([ranks[0], cpu]) == {}, "no majority"


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((100, 100, 100_000), {2: "its steps take 1,000 times as long as those of the other ranks"}),
        ((90_000, 100), {0: "its steps take 900 times as long as those of the other ranks"}),
        ((100_000, 100_000, 100), {2: "its steps take 0.001 of the time of those of the other ranks"}),
        ((100, 100, 4000), {}),
        ((100, 100, 0), {}),
    ],
)
def test_a_rank_in_another_unit(lengths: tuple[int, ...], expected: dict[int, str]) -> None:
    actual = reasons(ranks_of(*[(1, 2)] * len(lengths), lengths=lengths))
    assert {rank: reason.partition(", as if")[0] for rank, reason in actual.items()} == expected


@pytest.mark.parametrize(
    ("mean_kernels_ns", "expected"),
    [
        ((80_000, 100_000, 100), {2: "its kernels take 0.1 us on average"}),
        ((100_000, 0), {1: "its kernels take 0 us on average"}),
        ((100_000, 100_000, 2000), {}),  # small kernels
        ((50_000, 50_000, 900), {}),  # they are not far shorter
        ((900, 900, 100_000), {}),  # no majority
        ((0, 0), {}),
    ],
)
def test_kernels_shorter_than_any(mean_kernels_ns: tuple[int, ...], expected: dict[int, str]) -> None:
    ranks = ranks_of(*[(1, 2)] * len(mean_kernels_ns))
    ranks = [
        replace(summary, kernel_count=50, kernels_ns=50 * mean_ns)
        for summary, mean_ns in zip(ranks, mean_kernels_ns, strict=True)
    ]
    actual = reasons(ranks)
    assert {rank: reason.partition(", which")[0] for rank, reason in actual.items()} == expected


@pytest.mark.parametrize(
    ("without_launch", "expected"),
    [
        ((0, 0, 26), [2]),
        ((25, 0, 50), [2]),
        ((0, 0, 25), []),  # half of them
        ((0, 50), []),  # no majority
        ((50, 50, 50), []),  # steps of all are known as well as they can be
    ],
)
def test_a_rank_whose_kernels_have_no_launch(without_launch: tuple[int, ...], expected: list[int]) -> None:
    ranks = ranks_of(*[(1, 2)] * len(without_launch))
    ranks = [
        replace(summary, kernel_count=50, kernels_ns=5_000_000, kernels_without_launch=count)
        for summary, count in zip(ranks, without_launch, strict=True)
    ]
    assert [*reasons(ranks)] == expected


def test_a_rank_without_a_common_step() -> None:
    ranks = ranks_of((1, 2, 3), (1, 2, 3), (1, 2, 3), (7, 8), ())
    assert reasons(ranks) == {
        3: "it completed step 7-8, the other ranks completed 1-3",
        4: "no step of it is complete, the other ranks completed 1-3",
    }
    assert reasons(ranks_of((1, 2), (7, 8))) == {}, "no majority"
    assert reasons(ranks_of((1, 2), (1, 2), (7, 8), strategies=("rpc",))) == {}, "trainers count each for itself"


def test_a_rank_of_which_no_step_counts() -> None:
    """GIVEN steps whose times are wrong WHEN a rank has no other that most ranks have THEN it is not compared."""
    run = run_of(ranks_of((1, 2, 3), (1, 2, 3), (1, 2, 3)))
    assert [*incomparable_in_run(run, {2: {1, 2, 3}, 0: {1}})] == [2]
    assert incomparable_in_run(run, {2: {1, 2}}) == {}
    assert incomparable_in_run(run, {rank: {1, 2, 3} for rank in range(3)}) == {}, "nothing tells whose clock is wrong"
    assert incomparable_in_run(run, {}) == {}


@pytest.mark.parametrize("by", [-1, 1, 100])
def test_a_rank_that_counts_steps_otherwise(by: int) -> None:
    """GIVEN collectives with sequence ids, and a rank whose numbers of steps are shifted."""
    run = simulated()
    shifted = replace(
        run.ranks[2],
        steps=tuple(replace(step, step=step.step + by) for step in run.ranks[2].steps),
        collectives=replace(run.ranks[2].collectives, step=run.ranks[2].collectives.step + by),
    )
    what = f"its steps are numbered {abs(by)} {'higher' if by > 0 else 'lower'} than those of the other ranks"
    assert reasons([run.ranks[0], run.ranks[1], shifted, run.ranks[3]]) == {2: what}
    assert reasons(run.ranks) == {}


@pytest.mark.parametrize("period", [1, 6, 8])
def test_sequence_ids_that_begin_again_name_no_step(period: int) -> None:
    """GIVEN a rank whose ids are used again in later steps, and one with other steps THEN only the latter is named."""
    run = simulated()
    repeated = with_ids(run.ranks[0], run.ranks[0].collectives.sequence % period)
    assert reasons([repeated, *run.ranks[1:]]) == {}
    later = tuple(replace(step, step=step.step + 100) for step in run.ranks[3].steps)
    odd = replace(with_ids(run.ranks[3], ABSENT), steps=later)
    expected = {3: "it completed step 100-105, the other ranks completed 0-5"}
    assert reasons([repeated, *run.ranks[1:3], odd]) == expected


def test_no_rank_is_shifted_by_an_id_of_two_steps() -> None:
    """GIVEN ids 0-7 in steps 0-3 of all ranks, and ids 0-3 again in steps 4 and 5 of the first

    WHEN one rank has ids of steps 0 and 1 alone THEN it is not shifted by four steps.
    """
    repeated, *others = (with_ids(rank, rank.collectives.sequence % 8) for rank in simulated().ranks)
    of_steps = [(2, 3), (2, 3), (0, 1)]
    ranks = [
        with_ids(rank, np.where(np.isin(rank.collectives.step, steps), rank.collectives.sequence, ABSENT))
        for rank, steps in zip(others, of_steps, strict=True)
    ]
    assert reasons([repeated, *ranks]) == {}


def test_a_note_names_the_file_and_the_reason() -> None:
    ranks = ranks_of((1, 2), (1, 2), (7, 8), files=("/data/run/some.json",))
    *_, odd = without_incomparable_times(ranks)
    assert isinstance(odd, RankSummary)
    (note,) = odd.notes
    assert (note.kind, note.rank, note.file) == ("step_mismatch", 2, "some.json")
    assert note.text == (
        "rank 2: some.json: it completed step 7-8, the other ranks completed 1-2: "
        "its times are n/a and join no comparison"
    )
    assert (odd.steps, len(odd.collectives), odd.is_measured) == ((), 0, False)


def with_ids(summary: RankSummary, ids: Any) -> RankSummary:
    """Return the rank with other sequence ids of its collectives, an array or one for all."""
    sequence = np.broadcast_to(np.asarray(ids, np.int64), len(summary.collectives))
    return replace(summary, collectives=replace(summary.collectives, sequence=sequence))


def simulated() -> Run:
    cluster = Cluster(4)
    for _ in cluster.steps(6):
        for rank in range(4):
            cluster.work(rank, compute=100)
        cluster.collective(range(4))
        cluster.collective(range(4))
    run = cluster.run()
    assert all(np.array_equal(summary.collectives.sequence, np.arange(12)) for summary in run.ranks)
    return run
