"""A rank that computes longer: because of its experts' load, or because it is slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.unit.explain.model_parallel.experts import exchange_tokens
from tracekit.explain.model_parallel.expert_load import overloaded_ranks
from tracekit.explain.stragglers.stragglers import stragglers

HOT = (0.8, 0.8, 1.6, 0.8)


@pytest.mark.parametrize(
    ("loads", "pace", "hot"),
    [
        ((1, 1, 1, 1), {2: 1.4}, []),  # slow everywhere
        ((0.95, 0.95, 1.15, 0.95), {2: 1.4}, []),  # slow, and a bit more load
        ((0.8, 0.8, 1.6, 0.8), {2: 1.1}, [2]),  # much more load, and a bit slow
        ((1, 1, 1.02, 1), {}, []),  # as good as even
    ],
)
def test_a_slow_rank_is_not_overloaded(loads: Sequence[float], pace: Mapping[int, float], hot: Sequence[int]) -> None:
    assert list(overloaded_ranks(exchange_tokens(loads, pace=pace).run())) == hot


def test_a_rank_that_is_hot_in_one_layer_is_told_so() -> None:
    """GIVEN a rank with twice the load in one of four layers THEN it has (3 * 1 + 1.6) / (3 * 1 + 0.8) times that of
    the others, and is named for it.
    """
    run = exchange_tokens(HOT, hot_layers=[1]).run()
    (finding,) = stragglers(run).findings

    assert (finding.rank, finding.remedy, finding.evidence["cause"]) == (2, "load", "more_work")
    assert finding.evidence["expert_load"] == pytest.approx(4.6 / 3.8)
    assert finding.evidence["expert_load_estimated"] is True


def test_a_load_that_explains_little_of_a_delay_is_not_its_reason() -> None:
    """GIVEN a rank with much more work elsewhere, whose experts have slightly more load."""
    (finding,) = stragglers(exchange_tokens((1, 1, 1.05, 1), more_work_ns={2: 3000}).run()).findings

    assert (finding.rank, finding.remedy) == (2, "ranks")
