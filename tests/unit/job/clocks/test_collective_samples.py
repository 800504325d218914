"""Only collectives that all ranks leave together give samples that clocks share."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.job.clocks.planted import BEGIN_NS, Clock, PlantedRanks
from tracekit.job.clocks.collective_samples import CollectiveSamples

MS = 1_000_000


def samples_of(ranks: PlantedRanks) -> list[CollectiveSamples | None]:
    summaries = ranks.summaries()
    return [CollectiveSamples.of(summaries, group) for group in ranks.matched_groups()]


def ranks_with(kind: str, count: int, sizes: int | list[int] = 64) -> PlantedRanks:
    """Return two ranks with `count` collectives of 0.2 ms in which they have `sizes`."""
    ranks = PlantedRanks([Clock(), Clock()], BEGIN_NS, BEGIN_NS + 100 * MS)
    add(ranks, kind, count, sizes)
    return ranks


def add(ranks: PlantedRanks, kind: str, count: int, sizes: int | list[int] = 64) -> None:
    ranks.collectives(
        (0, 1),
        kind=kind,
        end_ns=BEGIN_NS + np.arange(1, count + 1) * MS,
        late_ns=np.zeros((2, count), dtype=np.int64),
        took_ns=200_000,
        size_bytes=np.array(sizes, dtype=np.int64).reshape(-1, 1),
    )


@pytest.mark.parametrize("kind", ["all_reduce", "reduce_scatter", "all_gather", "barrier"])
def test_members_of_these_leave_together(kind: str) -> None:
    (samples,) = samples_of(ranks_with(kind, 5))
    assert samples is not None
    assert (samples.count, samples.uneven, samples.transfer_ns) == (5, False, 200_000)


@pytest.mark.parametrize(
    "kind", ["broadcast", "reduce", "gather", "scatter", "send_recv", "send", "recv", "dispatch", "combine", "unknown"]
)
def test_members_of_these_may_leave_early(kind: str) -> None:
    assert samples_of(ranks_with(kind, 5)) == [None]


@pytest.mark.parametrize(("sizes", "uneven"), [([64, 64], False), ([64, 96], True), ([-1, -1], True)])
def test_an_exchange_of_unequal_or_unknown_shares_is_uneven(sizes: list[int], uneven: bool) -> None:
    (samples,) = samples_of(ranks_with("all_to_all", 5, sizes))
    assert samples is not None
    assert samples.uneven == uneven


def test_uneven_exchanges_serve_only_groups_without_other_collectives() -> None:
    ranks = ranks_with("all_to_all", 5, [64, 96])
    add(ranks, "all_reduce", 5)
    uneven, even = samples_of(ranks)
    assert uneven is not None
    assert even is not None
    assert even.content < uneven.content  # the better samples come first
