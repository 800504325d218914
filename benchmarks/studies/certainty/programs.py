"""Training steps of four strategies, run on simulated ranks that work, meet in collectives and send messages.

The simulation (`benchmarks.simulated`) makes summaries of ranks without traces, so that a
thousand runs take a minute. A rank's work of a step is divided into pieces, and each piece carries its share of noise.
What is planted is in the pieces of the slow ranks: all of them (compute, more work), one (host, data), or none, but
after the last collective of the step (between).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from benchmarks.simulated import Cluster
from benchmarks.studies.certainty.cases import Case
from benchmarks.studies.certainty.noise import noise_of
from tracekit.model.run import Run

_STEP_NS = 100_000_000
_TRANSFER_NS = 500_000
_OPERATIONS = 20  # of a piece


class _Work:
    """What the ranks of a case do in the pieces of a step."""

    def __init__(self, case: Case, cluster: Cluster, pieces: int) -> None:
        self.case = case
        self.cluster = cluster
        self.pieces = pieces
        self._rng = random.Random(f"noise {case.seed} {case.noise} {case.where} {case.steps}")
        self._noise = noise_of(self._rng, case.ranks, case.steps, case.noise)
        self._burst_in = [self._rng.randrange(pieces) for _ in range(case.ranks)]

    def piece(self, rank: int, step: int, number: int) -> None:
        """Let a rank do a piece of its step's work."""
        case, cluster = self.case, self.cluster
        variation, burst = self._noise[rank][step]
        piece_ns = _STEP_NS / self.pieces
        own = 1 + variation + self._rng.gauss(0.0, 0.01 * case.noise)
        delay_ns = round(case.delay * _STEP_NS) if rank in case.slow else 0
        if delay_ns and case.planted == "data" and number == 0:
            cluster.work(rank, data=delay_ns)
        share_ns = delay_ns // self.pieces
        additional = share_ns if case.planted in ("compute", "more_work") else 0
        more = max(round(_OPERATIONS * share_ns / piece_ns), 2) if additional and case.planted == "more_work" else 0
        cluster.work(rank, compute=round(piece_ns * own) + additional, operations=_OPERATIONS + more)
        if burst and number == self._burst_in[rank]:
            half_ns = round(burst * _STEP_NS / 2)
            cluster.work(rank, compute=half_ns, host=half_ns, operations=0)
        if delay_ns and case.planted == "host" and number == self.pieces // 2:
            cluster.work(rank, host=delay_ns)

    def after_step(self, rank: int) -> None:
        if rank in self.case.slow and self.case.planted == "between":
            self.cluster.work(rank, host=round(self.case.delay * _STEP_NS))


def run_of(case: Case) -> Run:
    """Return what tracekit loads of the case's recording."""
    cluster = Cluster(case.ranks)
    pieces, step_of = _PROGRAMS[case.strategy]
    work = _Work(case, cluster, pieces)
    for number in cluster.steps(case.steps):
        for _ in step_of(case, work, number):
            pass
        for rank in range(case.ranks):
            work.after_step(rank)
    run = cluster.run(world_size=case.ranks)
    summaries = tuple(
        replace(summary, host=f"node{summary.rank // case.ranks_per_host}", world_size=case.ranks)
        for summary in run.ranks
    )
    return _without(replace(run, ranks=summaries), case.missing)


def _ddp(case: Case, work: _Work, step: int) -> Iterator[None]:
    for number in range(work.pieces):
        for rank in range(case.ranks):
            work.piece(rank, step, number)
        if number >= 4:  # gradients, as soon as they are there
            work.cluster.collective(range(case.ranks), transfer=_TRANSFER_NS, size_bytes=1 << 20)
        yield


def _fsdp(case: Case, work: _Work, step: int) -> Iterator[None]:
    for number in range(work.pieces):
        work.cluster.collective(range(case.ranks), kind="all_gather", transfer=_TRANSFER_NS, size_bytes=1 << 20)
        for rank in range(case.ranks):
            work.piece(rank, step, number)
        if number >= work.pieces // 2:
            work.cluster.collective(range(case.ranks), kind="reduce_scatter", transfer=_TRANSFER_NS)
        yield


def _tensor(case: Case, work: _Work, step: int) -> Iterator[None]:
    """Tensor parallelism over two or four neighbours, and data parallelism over the rest."""
    width = 2 if case.ranks < 16 else 4
    for number in range(work.pieces):
        for first in range(0, case.ranks, width):
            members = range(first, first + width)
            for rank in members:
                work.piece(rank, step, number)
            work.cluster.collective(members, transfer=_TRANSFER_NS)
        yield
    for place in range(width):
        work.cluster.collective(range(place, case.ranks, width), transfer=_TRANSFER_NS, size_bytes=1 << 20)


def _pipeline(case: Case, work: _Work, step: int) -> Iterator[None]:
    """Two stages in each replica; stages reduce their gradients over the replicas at the end."""
    for number in range(work.pieces):
        for first in range(0, case.ranks, 2):
            work.piece(first, step, number)
            work.cluster.message(first, first + 1, transfer=_TRANSFER_NS // 10)
            work.piece(first + 1, step, number)
        yield
    for first in range(0, case.ranks, 2):
        work.cluster.message(first + 1, first, transfer=_TRANSFER_NS // 10)
    for stage in (0, 1):
        work.cluster.collective(range(stage, case.ranks, 2), transfer=_TRANSFER_NS)


_PROGRAMS: dict[str, tuple[int, Callable[[Case, _Work, int], Iterator[None]]]] = {
    "ddp": (8, _ddp),
    "fsdp": (6, _fsdp),
    "tensor": (6, _tensor),
    "pipeline": (4, _pipeline),
}


def _without(run: Run, missing: tuple[int, ...]) -> Run:
    """Return a run whose files of these ranks are missing."""
    if not missing:
        return run
    stay = [i for i, summary in enumerate(run.ranks) if summary.rank not in missing]
    collectives = []
    for matched in run.collectives:
        rows = np.flatnonzero(~np.isin(matched.ranks, missing))
        if len(rows):
            collectives.append(replace(matched, ranks=matched.ranks[rows], row=matched.row[rows]))
    messages = run.messages
    known = ~(np.isin(messages.source, missing) | np.isin(messages.destination, missing))
    return replace(
        run,
        ranks=tuple(run.ranks[i] for i in stay),
        clocks=tuple(run.clocks[i] for i in stay),
        missing_ranks=missing,
        collectives=tuple(collectives),
        messages=messages.rows(np.flatnonzero(known)),
    )
