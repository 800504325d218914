"""What a table leaves out and its rows tell: stages, replicas, steps, and microbatches counted from 0."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from tracekit.model.events import Bool, Int32, Int64

__all__ = ["begins", "derive_replicas", "derive_stages", "derive_steps", "number_microbatches", "separate_steps"]


def derive_stages(rank: Int64, replica: Int64 | None, chunk: Int64 | None) -> Int64:
    """Return the stage of each operation, int64 [n]: the place of its rank in its replica, and its chunk.

    The second stages of all ranks follow the first ones, and so on (interleaved 1F1B). replica, chunk: int64 [n], or
    None where there is one.
    """
    replica = np.zeros_like(rank) if replica is None else replica
    chunk = np.zeros_like(rank) if chunk is None else chunk
    pairs, pair = _numbered(replica, rank)
    first = begins(pairs[0])
    ranks = np.diff(first, append=pairs.shape[1])
    of_replica = np.repeat(np.arange(len(first)), ranks)
    place = np.arange(pairs.shape[1]) - first[of_replica]
    return np.asarray(place[pair] + ranks[of_replica[pair]] * chunk)


def derive_replicas(rank: Int64, stage: Int64) -> Int64:
    """Return the replica of each operation, int64 [n]: the n-th of the ranks with equal stages is in the n-th."""
    seen: dict[bytes, int] = defaultdict(int)
    pairs, pair = _numbered(rank, stage)
    first = begins(pairs[0])
    replica = np.empty(pairs.shape[1], dtype=np.int64)
    for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(replica)], strict=True):
        stages = pairs[1, begin:end].tobytes()
        replica[begin:end] = seen[stages]
        seen[stages] += 1
    return replica[pair]


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
    # Of a rank, by start: an operation that computes comes before another one that starts at the same time.
    by_start = np.lexsort((~computes, start_ns, rank))
    first = begins(rank[by_start])
    rank_first = np.repeat(first, np.diff(first, append=len(rank)))
    places = np.where(computes[by_start], np.arange(len(rank)), -1)
    before = np.maximum.accumulate(places)
    after = np.minimum.accumulate(np.where(places < 0, len(rank), places)[::-1])[::-1]
    rank_stop = np.repeat(np.append(first[1:], len(rank)), np.diff(first, append=len(rank)))
    nearest = np.where(before >= rank_first, before, after)
    known = ~computes[by_start] & (nearest < rank_stop)
    step[by_start[known]] = step[by_start[nearest[known]]]
    return step


def number_microbatches(step: Int64, microbatch: Int64) -> tuple[Int64, bool]:
    """Return microbatches numbered from 0 in each step, int64 [n], and whether that changed a number.

    Operations without a microbatch, -1, keep that.
    """
    result = microbatch.copy()
    named = np.flatnonzero(microbatch >= 0)
    pairs, pair = _numbered(step[named], microbatch[named])
    first = begins(pairs[0])
    place = np.arange(pairs.shape[1]) - np.repeat(first, np.diff(first, append=pairs.shape[1]))
    result[named] = place[pair]
    return result, bool((result != microbatch).any())


def separate_steps(rank: Int64, step: Int64, start_ns: Int64, end_ns: Int64) -> Int64:
    """Return by how much to move each operation, int64 [n], so that the steps of a rank do not overlap.

    That is 0, unless the times of each step begin anew: then each step begins where the one before it ended.
    """
    if not len(rank):
        return np.zeros_like(step)
    order = np.lexsort((step, rank))
    first = begins(rank[order], step[order])
    of_rank, of_step = rank[order][first], step[order][first]
    begin_ns = np.minimum.reduceat(start_ns[order], first)
    until_ns = np.maximum.reduceat(end_ns[order], first)
    if not ((begin_ns[1:] < until_ns[:-1]) & (of_rank[1:] == of_rank[:-1])).any():
        return np.zeros_like(step)
    steps, place = np.unique(of_step, return_inverse=True)
    first_ns = np.full(len(steps), np.iinfo(np.int64).max)
    last_ns = ~first_ns  # the smallest integer
    np.minimum.at(first_ns, place, begin_ns)
    np.maximum.at(last_ns, place, until_ns)
    begins_ns = np.concatenate(([0], np.cumsum(last_ns - first_ns)[:-1]))
    return np.asarray((begins_ns - first_ns)[np.searchsorted(steps, step)])


def begins(*columns: Int64 | Int32) -> Int64:
    """Return where the values of any of the columns, [n] each, differ from those before; the first one does."""
    differs = np.ones(len(columns[0]), dtype=np.bool_)
    differs[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return np.flatnonzero(differs)


def _numbered(one: Int64, other: Int64) -> tuple[Int64, Int64]:
    """Return the pairs of values that occur, ascending, int64 [2, p], and which of them each is, int64 [n]."""
    order = np.lexsort((other, one))
    first = begins(one[order], other[order])
    number = np.empty(len(one), dtype=np.int64)
    number[order] = np.repeat(np.arange(len(first)), np.diff(first, append=len(one)))
    return np.stack((one[order][first], other[order][first])), number
