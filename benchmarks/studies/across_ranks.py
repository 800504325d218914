"""What matching, clocks, stragglers and the what-if cost for many ranks, in CPU time and memory.

    python -m benchmarks.studies.across_ranks [--ranks 1024] [--collectives 5000] [--steps 10]

Summaries of ranks are generated as workers return them, in two layouts. In the first one, nine of ten collectives are
of tensor-parallel groups of 8, the others of data-parallel groups of every eighth rank. In the second one all ranks are
one group. Rank 3 computes longer.

The table has a row a size: a quarter and half of the ranks, a quarter and half of the collectives, then all. Each size
is a fresh process. Its peak memory includes the summaries.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.exchanges import rank as summary_of
from benchmarks.exchanges import run_of
from tracekit.explain.stragglers.stragglers import stragglers
from tracekit.explain.whatif.whatif import WhatIf, what_if_of_run
from tracekit.job.clocks.align import align
from tracekit.job.collectives import groups_of_run, match_collectives
from tracekit.model.communication import Collectives, GroupKey
from tracekit.model.summary import RankSummary, StepParts

PAIRED = 8
BEGIN_NS = 1_790_857_026_000_000_000
TRANSFER_NS, WORK_NS, JITTER_NS, DELAY_NS = 100_000, 900_000, 100_000, 200_000
SLOW_RANK = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--collectives", type=int, default=5000, help="of each rank")
    parser.add_argument("--steps", type=int, default=10, help="over which they are spread")
    options = parser.parse_args()
    most, whole = options.ranks, options.collectives
    sizes = [(most // 4, whole), (most // 2, whole), (most, whole // 4), (most, whole // 2), (most, whole)]
    parts = f"{'match':>7} {'clocks':>7} {'stragglers':>11} {'what-if':>8}"
    print(f"{'groups':14} {'ranks':>6} {'collectives':>12} {parts} CPU s  peak GB")
    for layout in ("tp 8 x dp", "all"):
        for ranks, collectives in sizes:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                *spent_s, peak_gb, named = pool.apply(measure, (ranks, collectives, layout, options.steps))
            assert named == SLOW_RANK, named
            match_s, clocks_s, stragglers_s, whatif_s = spent_s
            cost = f"{match_s:7.2f} {clocks_s:7.2f} {stragglers_s:11.2f} {whatif_s:8.2f}"
            cost += f" {sum(spent_s):5.2f} {peak_gb:8.2f}"
            print(f"{layout:14} {ranks:6} {collectives:12} {cost}", flush=True)


def measure(ranks: int, collectives: int, layout: str, steps: int) -> tuple[Any, ...]:
    """Return CPU seconds of matching, clocks, stragglers and what-if, peak GB, and the rank that the verdict names."""
    summaries = list(generate_summaries(ranks, collectives, layout, steps))
    begun_s = time.process_time()
    groups = groups_of_run(summaries, ranks)
    matched, _ = match_collectives(summaries, groups, ranks)
    matched_s = time.process_time()
    clocks, _ = align(summaries, matched)
    aligned_s = time.process_time()
    run = run_of(summaries, groups=groups, collectives=matched, clocks=clocks)
    found = stragglers(run)
    found_s = time.process_time()
    assert isinstance(what_if_of_run(run), WhatIf)
    ended_s = time.process_time()
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return (
        matched_s - begun_s,
        aligned_s - matched_s,
        found_s - aligned_s,
        ended_s - found_s,
        peak_gb,
        found.verdict.rank,
    )


def generate_summaries(ranks: int, collectives: int, layout: str, steps: int) -> Iterator[RankSummary]:
    """Yield summaries of ranks that compute and then run a collective with their group, `collectives` times."""
    rng = np.random.default_rng(0)
    in_all = np.zeros(collectives, dtype=np.int32)
    group = in_all if layout == "all" else (np.arange(collectives) % 10 == 9).astype(np.int32)
    since, start, end = (np.empty((ranks, collectives), dtype=np.int64) for _ in range(3))
    now_ns = np.full(ranks, BEGIN_NS, dtype=np.int64)
    for number in range(collectives):
        arrived_ns = now_ns + rng.integers(WORK_NS, WORK_NS + JITTER_NS, ranks)
        arrived_ns[SLOW_RANK] += DELAY_NS
        since[:, number], start[:, number] = now_ns, arrived_ns
        if layout == "all":
            now_ns = np.full(ranks, arrived_ns.max())
        elif group[number] == 0:
            now_ns = np.repeat(arrived_ns.reshape(-1, PAIRED).max(axis=1), PAIRED)
        else:
            now_ns = np.tile(arrived_ns.reshape(-1, PAIRED).max(axis=0), ranks // PAIRED)
        now_ns = now_ns + TRANSFER_NS
        end[:, number] = now_ns
    sequence = np.empty(collectives, dtype=np.int64)
    for index in (0, 1):
        sequence[group == index] = np.arange((group == index).sum())
    of_step = collectives // steps
    step = np.repeat(np.arange(steps), of_step)
    for rank in range(ranks):
        first = rank // PAIRED * PAIRED
        tensor = GroupKey(description="tp", ranks=tuple(range(first, first + PAIRED)))
        data = GroupKey(description="dp", ranks=tuple(range(rank % PAIRED, ranks, PAIRED)))
        groups = (GroupKey(description="all", ranks=tuple(range(ranks))),) if layout == "all" else (tensor, data)
        own = Collectives(
            group=group,
            kind=np.zeros(collectives, dtype=np.int32),
            sequence=sequence,
            step=step,
            size_bytes=np.full(collectives, 1 << 20),
            dtype=np.zeros(collectives, dtype=np.int32),
            launch_ns=start[rank],
            ready_ns=start[rank],
            start_ns=start[rank],
            end_ns=end[rank],
            waited_ns=end[rank] - start[rank],
            released_ns=since[rank],
            queued_ns=np.full(collectives, -1),
            compute_ns=start[rank] - since[rank],
            data_ns=np.zeros(collectives, dtype=np.int64),
            operations=np.arange(10, 10 * collectives + 1, 10),
            work_ns=np.cumsum(start[rank] - since[rank]),
            work=np.arange(7, 7 * collectives + 1, 7),
        )
        edges = zip(since[rank, ::of_step].tolist(), end[rank, of_step - 1 :: of_step].tolist(), strict=True)
        parts = tuple(_step(number, begin_ns, end_ns) for number, (begin_ns, end_ns) in enumerate(edges))
        summary = summary_of(rank, groups=groups, world_size=ranks, collectives=own, steps=range(steps))
        yield replace(summary, steps=parts)


def _step(number: int, begin_ns: int, end_ns: int) -> StepParts:
    whole_ns = end_ns - begin_ns
    waiting_ns = whole_ns // 10
    return StepParts(
        step=number,
        start_ns=begin_ns,
        complete=True,
        data_ns=0,
        step_ns=whole_ns,
        compute_ns=whole_ns - waiting_ns,
        comm_ns=waiting_ns,
        overlapped_comm_ns=0,
        exposed_comm_ns=waiting_ns,
        exposed_copy_ns=0,
        idle_ns=0,
    )


if __name__ == "__main__":
    main()
