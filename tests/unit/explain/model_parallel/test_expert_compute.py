"""What experts compute between dispatch and combine, on ranks whose load and pace are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.explain.model_parallel.experts import EXPERTS_NS, LAYERS, STEPS, exchange_tokens
from tracekit.explain.model_parallel.expert_compute import ExpertCompute, expert_computes
from tracekit.explain.model_parallel.tables import COUNT_DTYPES, EXPERT_EXCHANGES, ExpertExchangeSum
from tracekit.model.run import Run

HOT = (0.8, 0.8, 1.6, 0.8)


def compute_of(run: Run) -> ExpertCompute:
    (compute,) = expert_computes(run)
    return compute


def with_sizes(run: Run) -> Run:
    """Return the run as if its all-to-alls told what they bring to experts."""
    (group,) = run.groups
    row = ExpertExchangeSum(group=group, module=None, step=0, received_bytes=1, uncovered_ns=0)
    return replace(run, ranks=tuple(summary.with_part(EXPERT_EXCHANGES, (row,)) for summary in run.ranks))


@pytest.mark.parametrize("notified", [False, True])
def test_experts_compute_between_dispatch_and_combine(notified: bool) -> None:
    """THEN notifications, which are kernels of their own, belong to the exchange that follows them."""
    compute = compute_of(exchange_tokens(HOT, notified=notified).run())

    assert compute.step.tolist() == [step for step in range(STEPS) for _ in range(LAYERS)]
    np.testing.assert_allclose(compute.load_ns, np.outer(HOT, np.full(STEPS * LAYERS, EXPERTS_NS)))
    assert compute.pace.tolist() == [1.0] * 4
    assert len(compute.exchanges) == (4 if notified else 2) * STEPS * LAYERS
    assert np.bincount(compute.pair).tolist() == [4 if notified else 2] * STEPS * LAYERS
    assert np.bincount(compute.pair, compute.takes_back).tolist() == [2 if notified else 1] * STEPS * LAYERS


def test_more_work_in_one_place_makes_no_rank_slow() -> None:
    assert compute_of(exchange_tokens(more_work_ns={3: 900}).run()).pace.tolist() == [1.0] * 4


def test_without_compute_elsewhere_nothing_is_known() -> None:
    """GIVEN ranks that compute nothing between a combine and the next dispatch THEN a slow one would look loaded."""
    assert expert_computes(exchange_tokens(HOT, attention_ns=50).run()) == []


def test_all_to_alls_of_other_sizes_may_lie_between_a_dispatch_and_its_combine() -> None:
    """GIVEN weights of the tokens, smaller by far, that are dispatched behind the tokens and need not come back."""
    cluster = exchange_tokens(HOT, kinds=("all_to_all", "all_to_all"), weights=True)
    compute = compute_of(with_sizes(cluster.run()))

    np.testing.assert_allclose(compute.load_ns, np.outer(HOT, np.full(STEPS * LAYERS, EXPERTS_NS)))


def test_all_to_alls_of_counts_are_no_exchange_of_tokens() -> None:
    """GIVEN that the all-to-alls carry whole numbers, as those that tell how many tokens will come."""
    run = with_sizes(exchange_tokens(HOT, kinds=("all_to_all", "all_to_all")).run())
    counts = [np.full(len(s.collectives), COUNT_DTYPES[0], dtype=np.int32) for s in run.ranks]
    ranks = [
        replace(s, collectives=replace(s.collectives, dtype=dtype)) for s, dtype in zip(run.ranks, counts, strict=True)
    ]

    assert expert_computes(replace(run, ranks=tuple(ranks))) == []


def test_all_to_alls_of_unknown_purpose_are_left_alone() -> None:
    assert expert_computes(exchange_tokens(HOT, kinds=("all_to_all", "all_to_all")).run()) == []


def test_waits_in_exchanges_are_summed_by_rank_and_step() -> None:
    """GIVEN experts of rank 2 that take 3.2 us beside 1.6 us THEN the others wait for the difference."""
    compute = compute_of(exchange_tokens(HOT).run())
    waits = compute.by_rank_and_step(compute.uncovered_ns)

    assert [waits[rank][0] - waits[2][0] for rank in range(4)] == [LAYERS * 1600, LAYERS * 1600, 0, LAYERS * 1600]
