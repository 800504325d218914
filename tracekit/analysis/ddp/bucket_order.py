"""The order in which gradients come against the order in which DDP reduces its buckets.

Comes in: a run with the gradients of each rank. Goes out: for each bucket how long it stood complete behind an earlier
one, and the parameter that held it up.

    bucket 0   g...............................g     its last gradient comes late,
    bucket 1            g...g  (held up)             and nothing behind it may be launched
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.ddp.parts import DDP_MODULES, GRADIENT_TIMES
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

__all__ = ["HeldUp", "held_up_buckets"]


@dataclass(frozen=True, kw_only=True)
class HeldUp:
    """By how much the launch of a bucket waited for a gradient of an earlier one: the median over steps of the rank on
    which that is most. `parameter`: the most frequent one, with its bucket `behind`."""

    module: str
    index: int
    behind: int
    parameter: str
    rank: int
    held_ns: int


def held_up_buckets(run: Run) -> list[HeldUp]:
    """Buckets that waited in more than half of the steps of some rank, the longest first."""
    common = run.common_steps()
    worst: dict[tuple[str, int], HeldUp] = {}
    for summary in run.ranks:
        for (module, index), waits in _waits(summary, common).items():
            late = [wait for wait in waits if wait[0] > 0]
            if 2 * len(late) <= len(waits):
                continue
            (behind, parameter), _ = Counter((b, p) for _, b, p in late).most_common(1)[0]
            held = HeldUp(
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
    """By module and bucket, of each pass: how long it stood complete, behind which bucket, for which parameter."""
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
