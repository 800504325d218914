"""Backward passes whose gradients a loop averages by hand, as replays need them.

For each process group: its passes over all ranks on the run's clock, and how long its transfers took.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tracekit.analysis.communication.collectives import group_times
from tracekit.analysis.ddp.bucket_replay import BackwardPass, ManualPass, transfers_at_once
from tracekit.analysis.ddp.bucket_rows import ranks_of_whole_group, rows_of_reductions
from tracekit.analysis.ddp.parts import (
    ACCUMULATED_GRADIENTS,
    MANUAL_REDUCTIONS,
    AccumulatedGradients,
    ManualReductions,
)
from tracekit.analysis.stats.rows_by_pair import rows_by_pair
from tracekit.analysis.stats.transfer_fit import Stretches, stretches_of
from tracekit.model.clocks import ClockModel
from tracekit.model.collectives import MatchedGroup
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

__all__ = ["ManualGroup", "RecordedPass", "recorded_groups"]

_WIDTHS = (1, 2, 4, 8)  # bytes of an element

_Table = TypeVar("_Table", AccumulatedGradients, ManualReductions)
_Key = tuple[int, int]  # a step, and the number of a backward pass in it


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedPass:
    """A backward pass over all ranks of a group.

    Attributes:
        by_hand: with its own reductions.
        bucketed: with none, for a replay with buckets.
        size_bytes: of the reductions, int64 [n].
        parameter_bytes: int64 [p], in the order of the gradients.
        ended_ns: when the last rank had its gradients, as measured, from the origin.
    """

    step: int
    by_hand: ManualPass
    bucketed: BackwardPass
    size_bytes: np.ndarray
    parameter_bytes: np.ndarray
    ended_ns: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ManualGroup:
    """The passes of one process group.

    Attributes:
        stretches: of time in which the group transfers.
        dispatch_ns: median time from the launch to the start of a reduction.
        in_flight: how many transfers run at once.
    """

    passes: tuple[RecordedPass, ...]
    stretches: Stretches
    dispatch_ns: float
    in_flight: int


def recorded_groups(run: Run) -> list[ManualGroup]:
    """Return the process groups with a pass that can be replayed, of those whose ranks were all recorded."""
    return [group for matched in run.collectives if (group := _group(run, matched)) is not None]


def _group(run: Run, matched: MatchedGroup) -> ManualGroup | None:
    summaries = ranks_of_whole_group(run, matched)
    if summaries is None:
        return None
    rows = [rows_of_reductions(summary, summary[MANUAL_REDUCTIONS]) for summary in summaries]
    here = [np.isin(row, matched.row[place]) for place, row in enumerate(rows)]
    reductions = [s[MANUAL_REDUCTIONS].rows(mask) for s, mask in zip(summaries, here, strict=True)]
    if not all(len(of_rank) for of_rank in reductions):
        return None
    times = group_times(run, matched)
    by_hand = np.isin(matched.row[0, times.place], rows[0][here[0]]) & (matched.size_bytes[times.place] > 0)
    begin_ns = times.begin_ns[by_hand]
    in_flight = transfers_at_once(summaries[0].device)
    # By hand they mostly run one at a time. Those that do not are stretches of several.
    stretches = stretches_of(
        begin_ns, begin_ns + times.transfer_ns[by_hand], matched.size_bytes[times.place][by_hand], in_flight
    )
    passes = tuple(_passes(run, summaries, reductions))
    if stretches is None or not passes:
        return None
    return ManualGroup(
        passes=passes,
        stretches=stretches,
        dispatch_ns=statistics.median(
            ns for each in reductions for ns in np.maximum(each.start_ns - each.launch_ns, 0).tolist()
        ),
        in_flight=in_flight,
    )


def _passes(
    run: Run, summaries: Sequence[RankSummary], reductions: Sequence[ManualReductions]
) -> Iterator[RecordedPass]:
    """Yield the passes of steps that all ranks completed, if all ranks have the same gradients and reductions."""
    clocks = {clock.rank: clock for clock in run.clocks}
    of_ranks = [clocks[summary.rank] for summary in summaries]
    gradients = [_by_pass(summary[ACCUMULATED_GRADIENTS]) for summary in summaries]
    reduced = [_by_pass(of_rank) for of_rank in reductions]
    common = run.common_steps()
    for key in sorted(set.intersection(*(set(passes) for passes in (*gradients, *reduced)))):
        if key[0] in common:
            observed = _pass(key[0], of_ranks, [g[key] for g in gradients], [r[key] for r in reduced])
            if observed is not None:
                yield observed


def _by_pass(table: _Table) -> Mapping[_Key, _Table]:
    return {key: table.rows(rows) for key, rows in rows_by_pair(table.step, table.backward_pass).items()}


def _pass(
    step: int,
    clocks: Sequence[ClockModel],
    gradients: Sequence[AccumulatedGradients],
    reductions: Sequence[ManualReductions],
) -> RecordedPass | None:
    """Return a pass; None if ranks differ, or if what is reduced is not all of the gradients."""
    first, sizes = gradients[0].elements, reductions[0].size_bytes
    if any(not np.array_equal(of_rank.elements, first) for of_rank in gradients):
        return None
    if any(not np.array_equal(of_rank.size_bytes, sizes) for of_rank in reductions):
        return None
    width, rest = divmod(int(sizes.sum()), max(int(first.sum()), 1))
    if rest or width not in _WIDTHS:
        return None
    pairs = list(zip(clocks, gradients, strict=True))
    of_reductions = list(zip(clocks, reductions, strict=True))
    ready_ns = np.stack([clock.to_run(of_rank.free_ns) for clock, of_rank in pairs]).astype(float)
    launch_ns = np.stack([clock.to_run(of_rank.free_launch_ns) for clock, of_rank in of_reductions]).astype(float)
    awaited_ns = np.stack(
        [np.where(r.free_end_ns >= 0, clock.to_run(r.free_end_ns).astype(float), np.inf) for clock, r in of_reductions]
    )
    ended_ns = max(float(clock.to_run(of_rank.end_ns).max()) for clock, of_rank in of_reductions)
    origin_ns = float(ready_ns.min())
    last_ready_ns = ready_ns.max(axis=1)
    last_ns = np.maximum(last_ready_ns, np.where(np.isfinite(awaited_ns), awaited_ns, launch_ns).max(axis=1))
    curves = [np.sort(of_rank) - origin_ns for of_rank in ready_ns]
    return RecordedPass(
        step=step,
        by_hand=ManualPass(
            origin_ns=origin_ns,
            launch_ns=launch_ns - origin_ns,
            awaited_ns=awaited_ns - origin_ns,
            last_ns=last_ns - origin_ns,
        ),
        bucketed=BackwardPass(
            origin_ns=origin_ns,
            ready_ns=ready_ns - origin_ns,
            curve_ns=curves,
            compute_ns=[curve - curve[0] for curve in curves],
            back_ns=np.outer(last_ns - last_ready_ns, first / first.sum()),
        ),
        size_bytes=sizes,
        parameter_bytes=first * width,
        ended_ns=ended_ns - origin_ns,
    )
