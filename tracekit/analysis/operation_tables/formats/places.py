"""What a table leaves out and its rows tell: stages, replicas, steps, and microbatches counted from 0."""

from __future__ import annotations

import numpy as np

from tracekit.model.events import Bool, Int32, Int64

__all__ = ["derive_replicas", "derive_stages", "derive_steps", "number_microbatches", "separate_steps"]


def derive_stages(rank: Int64, replica: Int64 | None, chunk: Int64 | None) -> Int64:
    """Return the stage of each operation, int64 [n]: the place of its rank in its replica, and its chunk.

    The second stages of all ranks follow the first ones, and so on (interleaved 1F1B). replica, chunk: int64 [n], or
    None where there is one.
    """
    replica = np.zeros_like(rank) if replica is None else replica
    chunk = np.zeros_like(rank) if chunk is None else chunk
    stage = np.zeros_like(rank)
    for number in np.unique(replica).tolist():
        here = replica == number
        ranks, place = np.unique(rank[here], return_inverse=True)
        stage[here] = place.reshape(-1) + len(ranks) * chunk[here]
    return stage


def derive_replicas(rank: Int64, stage: Int64) -> Int64:
    """Return the replica of each operation, int64 [n]: the n-th of the ranks with equal stages is in the n-th."""
    seen: dict[tuple[int, ...], int] = {}
    replica = np.zeros_like(rank)
    for number in np.unique(rank).tolist():
        here = rank == number
        stages = tuple(np.unique(stage[here]).tolist())
        replica[here] = seen.get(stages, 0)
        seen[stages] = seen.get(stages, 0) + 1
    return replica


def derive_steps(rank: Int64, stage: Int64, microbatch: Int64, kind: Int32, start_ns: Int64, computes: Bool) -> Int64:
    """Return the step of each operation, int64 [n]: how often its rank ran the same before.

    An operation that computes no microbatch belongs to the step of the last one before it that does.
    """
    step = np.zeros_like(rank)
    rows = np.flatnonzero(computes)
    order = rows[np.lexsort((start_ns[rows], microbatch[rows], kind[rows], stage[rows], rank[rows]))]
    identity = np.stack((rank, stage, kind, microbatch))[:, order]
    first = np.flatnonzero((np.diff(identity, axis=1, prepend=-2) != 0).any(axis=0))
    opened = np.zeros(len(order), dtype=np.int64)
    opened[first] = first
    step[order] = np.arange(len(order)) - np.maximum.accumulate(opened)
    for number in np.unique(rank[~computes]).tolist():
        of_rank = np.flatnonzero((rank == number) & computes)
        of_rank = of_rank[np.argsort(start_ns[of_rank], kind="stable")]
        others = np.flatnonzero((rank == number) & ~computes)
        before = np.searchsorted(start_ns[of_rank], start_ns[others], side="right") - 1
        if len(of_rank):
            step[others] = step[of_rank[np.maximum(before, 0)]]
    return step


def number_microbatches(step: Int64, microbatch: Int64) -> tuple[Int64, bool]:
    """Return microbatches numbered from 0 in each step, int64 [n], and whether that changed a number.

    Operations without a microbatch, -1, keep that.
    """
    result = microbatch.copy()
    for number in np.unique(step).tolist():
        here = (step == number) & (microbatch >= 0)
        result[here] = np.unique(microbatch[here], return_inverse=True)[1].reshape(-1)
    return result, bool((result != microbatch).any())


def separate_steps(rank: Int64, step: Int64, start_ns: Int64, end_ns: Int64) -> Int64:
    """Return by how much to move each operation, int64 [n], so that the steps of a rank do not overlap.

    That is 0, unless the times of each step begin anew: then each step begins where the one before it ended.
    """
    steps, place = np.unique(step, return_inverse=True)
    place = place.reshape(-1)
    largest = np.full(len(steps), np.iinfo(np.int64).max)
    first_ns, last_ns = largest, ~largest  # `~largest` is the smallest integer
    overlap = False
    for number in np.unique(rank).tolist():
        here = rank == number
        begin_ns, until_ns = largest.copy(), ~largest
        np.minimum.at(begin_ns, place[here], start_ns[here])
        np.maximum.at(until_ns, place[here], end_ns[here])
        present = until_ns >= begin_ns
        overlap |= bool((begin_ns[present][1:] < until_ns[present][:-1]).any())
        first_ns, last_ns = np.minimum(first_ns, begin_ns), np.maximum(last_ns, until_ns)
    if not overlap:
        return np.zeros_like(step)
    begins_ns = np.concatenate(([0], np.cumsum(last_ns - first_ns)[:-1]))
    return np.asarray((begins_ns - first_ns)[place])
