"""What even loads of experts save, in jobs that are small enough to work out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tracekit.explain.model_parallel.expert_load import HIGHEST_RATIO
from tracekit.explain.whatif.candidates import even_load
from tracekit.explain.whatif.whatif import what_if
from tracekit.replay.operation_graph import Exchanges, GraphSteps, OperationGraph
from tracekit.replay.replay import build_graph

STEPS = 3
REDUCE_NS = 10


def experts(
    received: Sequence[int], work_ns: Sequence[int], *, estimated: bool = False, groups: Sequence[int] | None = None
) -> OperationGraph:
    """Return a job whose ranks exchange tokens, work on them and all reduce. An exchange takes 1 ns a byte received by
    its busiest rank. estimated: whether no sizes are known. groups: within which each rank exchanges, one by default.
    """
    ranks = len(received)
    dispatch, work = np.arange(0, 3 * ranks, 3), np.arange(1, 3 * ranks, 3)
    place = np.arange(3 * ranks) % 3
    duration_ns = np.zeros((3 * ranks, STEPS))
    duration_ns[place == 0] = max(received)
    duration_ns[place == 1] = np.array(work_ns, dtype=np.float64)[:, None]
    duration_ns[place == 2] = REDUCE_NS
    unknown = np.full(3 * ranks, -1)
    steps = GraphSteps(
        graph=build_graph(
            3 * ranks,
            np.concatenate((dispatch, work)),
            np.concatenate((work, work + 1)),
            np.array([0, -1, 1] * ranks),
        ),
        duration_ns=duration_ns,
        task=np.arange(3 * ranks),
        kind=place,
        comparison_class=place,
        type=place,
        rank=np.arange(3 * ranks) // 3,
        stage=unknown,
        replica=unknown,
        steps=np.arange(STEPS),
        measured_ns=np.full(STEPS, float(max(received) + max(work_ns) + REDUCE_NS)),
        exchanges=Exchanges(
            operation=dispatch,
            task=work,
            group=np.array(groups or [0] * ranks),
            sent=np.full(ranks, min(received)),
            received=np.array(received),
            estimated=np.full(ranks, estimated),
        ),
    )
    return OperationGraph(
        step_groups=(steps,), types=("dispatch", "work", "all_reduce"), communication_kinds=frozenset({0, 2})
    )


def test_work_and_exchange_last_as_with_the_mean_of_the_tokens() -> None:
    """GIVEN 160 bytes for rank 2 and 100 for the others, 10 ns of work a byte. THEN each would have 115."""
    even = even_load(experts([100, 100, 160, 100], [1000, 1000, 1600, 1000]))

    assert even is not None
    assert (even.rank, even.ratio) == (2, 1.6)
    np.testing.assert_allclose(even.durations[0][:, 0].reshape(4, 3), [[115, 1150, REDUCE_NS]] * 4)


def test_the_rank_with_a_hot_expert_is_no_slow_rank() -> None:
    """THEN even load is the change that is shown, not the rank at its peers' median, which would lose its tokens."""
    (change,) = [
        change
        for change in what_if(experts([100, 100, 160, 100], [1000, 1000, 1600, 1000])).changes
        if change.remedy in {"ranks", "load", "link"}
    ]

    assert (change.remedy, change.ranks, change.saves_ns_per_step) == ("load", (2,), (160 - 115) + (1600 - 1150))


@pytest.mark.parametrize(
    ("received", "work_ns"),
    [
        ([100, 100, 100, 100], [1000, 1000, 1600, 1000]),  # slow, with as many tokens as the others
        ([100, 100, 160, 100], [1000, 1000, 1000, 1000]),  # the work does not grow with the tokens
    ],
)
def test_without_work_that_depends_on_its_tokens_there_is_no_even_load(
    received: Sequence[int], work_ns: Sequence[int]
) -> None:
    assert even_load(experts(received, work_ns)) is None


def test_a_rank_that_gets_all_tokens_is_named_with_the_highest_ratio() -> None:
    """GIVEN a router that has collapsed. THEN the rank's peers' median is no change, as it would lose its tokens."""
    job = experts([0, 0, 4000, 0], [100, 100, 40_100, 100])

    even = even_load(job)

    assert even is not None
    assert (even.rank, even.ratio) == (2, HIGHEST_RATIO)
    changes = [change for change in what_if(job).changes if change.remedy in {"ranks", "load", "link"}]
    assert [(change.remedy, change.ranks) for change in changes] == [("load", (2,))]
    assert changes[0].what == "even expert load (rank 2 has nearly all tokens)"


def test_the_ratio_of_a_rank_with_hardly_all_tokens_is_capped() -> None:
    even = even_load(experts([1, 0, 4000, 0], [110, 100, 40_100, 100]))

    assert even is not None
    assert (even.rank, even.ratio) == (2, HIGHEST_RATIO)


def test_of_ranks_that_get_all_tokens_of_their_groups_the_one_with_most_is_named() -> None:
    even = even_load(experts([2000, 0, 0, 4000, 0, 0], [20_100, 100, 100, 40_100, 100, 100], groups=[0, 0, 0, 1, 1, 1]))

    assert even is not None
    assert (even.rank, even.ratio) == (3, HIGHEST_RATIO)


def test_a_rank_whose_group_is_missing_does_not_get_all_tokens() -> None:
    even = even_load(experts([100, 100, 160, 900], [1000, 1000, 1600, 9000], groups=[0, 0, 0, 1]))

    assert even is not None
    assert (even.rank, even.ratio) == (2, 1.6)
