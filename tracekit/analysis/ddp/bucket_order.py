"""Buckets whose gradients are complete, but whose reduction waits for an earlier bucket.

DDP launches its buckets in order of their index, whatever the order in which their gradients come.

    bucket 0   g...............................g     its last gradient comes late,
    bucket 1            g...g  (held up)             and no later bucket may be launched
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.ddp.parts import DDP_MODULES, GRADIENT_TIMES
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

__all__ = ["BlockedBucket", "blocked_buckets"]


@dataclass(frozen=True, kw_only=True)
class BlockedBucket:
    """By how much the launch of a bucket waited for a gradient of an earlier one.

    Attributes:
        held_ns: median over steps, on the rank where that is longest.
        parameter: the one most often waited for.
        behind: the bucket of that parameter.
    """

    module: str
    index: int
    behind: int
    parameter: str
    rank: int
    held_ns: int


def blocked_buckets(run: Run) -> list[BlockedBucket]:
    """Return the buckets that waited in more than half of the steps of some rank, the longest wait first."""
    common = run.common_steps()
    worst: dict[tuple[str, int], BlockedBucket] = {}
    for summary in run.ranks:
        for (module, index), waits in _waits(summary, common).items():
            late = [wait for wait in waits if wait[0] > 0]
            if 2 * len(late) <= len(waits):
                continue
            (behind, parameter), _ = Counter((b, p) for _, b, p in late).most_common(1)[0]
            held = BlockedBucket(
                module=summary[DDP_MODULES].modules[module].module,
                index=index,
                behind=behind,
                parameter=parameter,
                rank=summary.rank,
                held_ns=round(statistics.median(ns for ns, _, _ in waits)),
            )
            key = (held.module, index)
            if key not in worst or worst[key].held_ns < held.held_ns:
                worst[key] = held
    return sorted(worst.values(), key=lambda held: (-held.held_ns, held.module, held.index))


def _waits(summary: RankSummary, common: frozenset[int]) -> dict[tuple[int, int], list[tuple[int, int, str]]]:
    """Return by module and bucket, for each pass, how long it waited, behind which bucket, and for which parameter."""
    times = summary[GRADIENT_TIMES]
    result: dict[tuple[int, int], list[tuple[int, int, str]]] = defaultdict(list)
    if not len(times):
        return result
    passes = np.stack((times.module.astype(np.int64), times.step, times.backward_pass.astype(np.int64)))
    each, which = np.unique(passes, axis=1, return_inverse=True)
    for i, (module, step, _) in enumerate(each.T.tolist()):
        buckets = summary[DDP_MODULES].modules[module].buckets
        names = [name for bucket in buckets for name in bucket.parameters]
        if step not in common or not names:
            continue
        bucket_of = np.repeat(np.arange(len(buckets)), [len(bucket.parameters) for bucket in buckets])
        here = np.flatnonzero(which.reshape(-1) == i)
        place, ready_ns = times.place[here], times.ready_ns[here]
        last_ns = np.full(len(buckets), np.iinfo(np.int64).min)
        np.maximum.at(last_ns, bucket_of[place], ready_ns)
        latest = 0
        for bucket in range(len(buckets)):
            if last_ns[bucket] > last_ns[latest]:
                latest = bucket
            came = last_ns[bucket] > np.iinfo(np.int64).min
            held_ns = int(last_ns[latest] - last_ns[bucket]) if came else 0
            culprit = names[place[np.argmax(np.where(bucket_of[place] == latest, ready_ns, -1))]]
            result[module, bucket].append((held_ns, latest, culprit))
    return result
