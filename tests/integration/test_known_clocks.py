"""Eight ranks of one host with one clock: known figures of their collectives, with and without clock offsets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tracekit.explain.communication.collectives import collective_times, group_times
from tracekit.job.clocks.align import align
from tracekit.loading.load import load
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary


def test_dlrm_collectives_over_ranks(real_traces: Path) -> None:
    """GIVEN five all-to-all and three all-reduce kernels a rank THEN rank 7 is the last to arrive at five of them."""
    run = load(real_traces / "dlrm_8xV100")
    (group,) = run.collectives
    assert (group.matched_by, group.row.shape) == ("order", (8, 8))
    is_all_reduce = group.kind == KINDS.index("all_reduce")
    assert (group.size_bytes[is_all_reduce] // 4).tolist() == [394241, 112, 226960]
    assert last_arrivals(run) == {4: 1, 5: 2, 7: 5}
    assert [abs(clock.offset_ns) <= 7000 for clock in run.clocks] == [True] * 8


@pytest.mark.parametrize("seed", range(4))
def test_dlrm_offsets_of_any_ranks_are_recovered(real_traces: Path, seed: int) -> None:
    """GIVEN clocks of some ranks off by up to 10 s THEN offsets are found to 7 us, and no figure over ranks changes.

    Nothing says that these ranks ran on one host, and that of rank 7 is a second ahead: else wall clocks would be one.
    """
    rng = np.random.default_rng(seed)
    recorded = load(real_traces / "dlrm_8xV100")
    apart = tuple(map(ahead, recorded.ranks, [0] * 7 + [10**9]))
    run = replace(recorded, ranks=apart, clocks=align(apart, recorded.collectives)[0])
    ahead_ns = np.where(rng.random(8) < 0.5, rng.integers(-(10**10), 10**10, 8), 0).tolist()
    ranks = tuple(map(ahead, run.ranks, ahead_ns))

    clocks, notes = align(ranks, run.collectives)

    assert notes == []
    found = np.array([clock.offset_ns for clock in clocks])
    ahead_ns[7] += 10**9
    assert np.abs(found - (np.array(ahead_ns) - ahead_ns[0])).max() <= 7000
    shifted = replace(run, ranks=ranks, clocks=clocks)
    assert collective_times(shifted).table.equals(collective_times(run).table)
    assert last_arrivals(shifted) == last_arrivals(run)


def ahead(summary: RankSummary, by_ns: int) -> RankSummary:
    """Return the same rank with a clock that is ahead."""
    collectives = summary.collectives
    names = ("launch_ns", "ready_ns", "start_ns", "end_ns", "released_ns")
    times = {name: getattr(collectives, name) + by_ns for name in names}
    times["queued_ns"] = np.where(collectives.queued_ns == ABSENT, ABSENT, collectives.queued_ns + by_ns)
    return replace(summary, process_id=None, collectives=replace(collectives, **times))


def last_arrivals(run: Run) -> dict[int, int]:
    (group,) = run.collectives
    last = group_times(run, group).wait_ns.argmin(axis=0)
    return {
        int(rank): int(count) for rank, count in zip(*np.unique(group.ranks[last], return_counts=True), strict=True)
    }
