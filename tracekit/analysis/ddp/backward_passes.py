"""Backward passes of DDP over the ranks that reduce together, as a replay with other buckets needs them.

For each process group: its parameters, how long its transfers took, and each pass with its gradients on the run's
clock.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tracekit.analysis.communication.collectives import group_times
from tracekit.analysis.ddp.bucket_assignment import Parameters, parameters_of
from tracekit.analysis.ddp.bucket_replay import BackwardPass, copies_back, transfers_at_once
from tracekit.analysis.ddp.bucket_rows import ranks_of_whole_group, rows_of_reductions
from tracekit.analysis.ddp.parts import (
    BUCKET_REDUCTIONS,
    DDP_MODULES,
    GRADIENT_TIMES,
    WHOLE,
    BucketReductions,
    GradientTimes,
)
from tracekit.analysis.section import Unavailable
from tracekit.analysis.stats.transfer_fit import Stretches, stretches_of
from tracekit.model.clocks import ClockModel
from tracekit.model.collectives import MatchedGroup
from tracekit.model.communication import KINDS
from tracekit.model.events import Int64
from tracekit.model.intervals import Intervals
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

__all__ = ["GroupPass", "GroupPasses", "passes_of_groups"]


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupPass:
    """One backward pass of a process group.

    Attributes:
        modules: which of the group's modules take part.
        measured_ns: exposed time, mean over ranks.
    """

    step: int
    modules: frozenset[int]
    observed: BackwardPass
    measured_ns: float


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupPasses:
    """What the replays of one process group need. The parameters of its modules form one list.

    Attributes:
        first: where each module begins in the list of parameters; the last entry is the length of the list.
        size_bytes: float64 [p], of each parameter.
        travels_ratio: bytes transferred by bytes of the buckets.
        dispatch_ns: median time from ready to start of the first bucket.
        in_flight: how many transfers run at once.
        stretches: of time in which the group transfers.
    """

    ranks: int
    parameters: tuple[Parameters, ...]
    first: tuple[int, ...]
    size_bytes: np.ndarray
    travels_ratio: float
    dispatch_ns: float
    in_flight: int
    stretches: Stretches
    passes: tuple[GroupPass, ...]


def passes_of_groups(run: Run) -> list[GroupPasses] | Unavailable:
    """Return the backward passes of each process group that reduces buckets and whose ranks were all recorded."""
    groups: list[GroupPasses] = []
    missing: list[Unavailable] = []
    for matched in run.collectives:
        present = set(matched.ranks.tolist())
        if not any(len(_rows_in(matched, summary)) for summary in run.ranks if summary.rank in present):
            continue
        summaries = ranks_of_whole_group(run, matched)
        if summaries is None:
            reason = "not all ranks that reduce together are there, so nobody knows when a transfer could begin"
            missing.append(Unavailable(reason=reason))
            continue
        rows = [_rows_in(matched, summary) for summary in summaries]
        passes = _group_passes(run, matched, summaries, rows)
        if isinstance(passes, Unavailable):
            missing.append(passes)
        else:
            groups.append(passes)
    if groups:
        return groups
    return missing[0] if missing else Unavailable(reason="the reductions could not be matched over ranks")


def _rows_in(matched: MatchedGroup, summary: RankSummary) -> Int64:
    """Return the positions of the rank's bucket reductions that belong to this group."""
    place = int(np.flatnonzero(matched.ranks == summary.rank)[0])
    return np.flatnonzero(np.isin(rows_of_reductions(summary, summary[BUCKET_REDUCTIONS]), matched.row[place]))


def _group_passes(
    run: Run, matched: MatchedGroup, summaries: Sequence[RankSummary], rows: Sequence[Int64]
) -> GroupPasses | Unavailable:
    """Return the passes of one group. `rows`: for each rank, the positions of its reductions in this group."""
    modules = sorted(
        {
            int(m)
            for summary, of_rank in zip(summaries, rows, strict=True)
            for m in summary[BUCKET_REDUCTIONS].module[of_rank]
        }
    )
    gradients = [s[GRADIENT_TIMES].rows(np.isin(s[GRADIENT_TIMES].module, modules)) for s in summaries]
    if not all(len(times) for times in gradients):
        return Unavailable(reason="when single gradients came is not recorded (gradient_as_bucket_view, or no shapes)")
    parameters = [parameters_of(summaries[0][DDP_MODULES].modules[m], _elements(gradients[0], m)) for m in modules]
    if any(each is None for each in parameters):
        return Unavailable(reason="the sizes of the parameters are not recorded")
    known = tuple(each for each in parameters if each is not None)
    times = group_times(run, matched)
    reduces = (matched.kind[times.place] == KINDS.index("all_reduce")) & (matched.size_bytes[times.place] > 0)
    begin_ns = times.begin_ns[reduces]
    in_flight = transfers_at_once(summaries[0].device)
    sizes = matched.size_bytes[times.place][reduces]
    first = tuple(np.cumsum([0, *(len(each.size_bytes) for each in known)]).tolist())
    size_bytes = np.array([size for each in known for size in each.size_bytes], dtype=np.float64)
    offsets = dict(zip(modules, first, strict=False))
    passes = tuple(_passes(run, summaries, rows, gradients, offsets, len(size_bytes)))
    if not passes:
        return Unavailable(reason="no step has all gradients on all ranks")
    runs = [summary[BUCKET_REDUCTIONS].rows(of_rank) for summary, of_rank in zip(summaries, rows, strict=True)]
    runs = [each.rows(each.index != WHOLE) for each in runs]
    layout = dict(zip(modules, known, strict=True))
    clocks = {clock.rank: clock for clock in run.clocks}
    copies = [
        _copies_back(clocks[summary.rank], reduced, times, layout)
        for summary, reduced, times in zip(summaries, runs, gradients, strict=True)
    ]
    stretches = stretches_of(begin_ns, begin_ns + times.transfer_ns[reduces], sizes, in_flight, copies)
    if stretches is None:
        return Unavailable(reason="no step has all reductions on all ranks")
    travelled = sum(int(each.size_bytes.sum()) for each in runs)
    sizes = sum(
        summaries[0][DDP_MODULES].modules[m].buckets[i].size_bytes
        for each in runs
        for m, i in zip(each.module, each.index, strict=True)
    )
    return GroupPasses(
        ranks=len(summaries),
        parameters=known,
        first=first,
        size_bytes=size_bytes,
        travels_ratio=travelled / max(sizes, 1),
        dispatch_ns=statistics.median(
            ns for each in runs for ns in np.maximum(each.start_ns - each.ready_ns, 0)[each.index == 0].tolist()
        ),
        in_flight=in_flight,
        stretches=stretches,
        passes=passes,
    )


def _copies_back(
    clock: ClockModel, reduced: BucketReductions, gradients: GradientTimes, layout: Mapping[int, Parameters]
) -> Intervals:
    """Return when one rank copied its buckets back to the gradients, on the run's clock.

    `layout`: the parameters of each of its modules.
    """
    began_ns, ended_ns = [], []
    for step, backward_pass in {*zip(reduced.step.tolist(), reduced.backward_pass.tolist(), strict=True)}:
        here = gradients.rows((gradients.step == step) & (gradients.backward_pass == backward_pass))
        reductions = reduced.rows((reduced.step == step) & (reduced.backward_pass == backward_pass))
        if not len(here):
            continue
        back_ns = [
            int(here.back_ns[(here.module == module) & np.isin(here.place, layout[module].buckets[index])].sum())
            for module, index in zip(reductions.module.tolist(), reductions.index.tolist(), strict=True)
        ]
        last_ns = clock.to_run(here.ready_ns.max(keepdims=True))[0]
        copied_ns = copies_back(float(last_ns), clock.to_run(reductions.end_ns), np.array(back_ns))
        began_ns.append(copied_ns[:, 0])
        ended_ns.append(copied_ns[:, 1])
    none = np.empty(0)
    return Intervals.union_of(
        np.concatenate([none, *began_ns]).astype(np.int64), np.concatenate([none, *ended_ns]).astype(np.int64)
    )


def _elements(gradients: GradientTimes, module: int) -> list[int]:
    """Return the elements of the module's parameters by place; empty unless gradients of all of them were seen."""
    of_module = gradients.rows(gradients.module == module)
    places, at = np.unique(of_module.place, return_index=True)
    return of_module.elements[at].tolist() if np.array_equal(places, np.arange(len(places))) else []


def _places(times: GradientTimes, offsets: dict[int, int]) -> Int64:
    """Return the position of each gradient's parameter in the group's list, int64 [n]."""
    lookup = np.zeros(max(offsets) + 1, dtype=np.int64)
    for module, first in offsets.items():
        lookup[module] = first
    return lookup[times.module] + times.place


def _passes(
    run: Run,
    summaries: Sequence[RankSummary],
    rows: Sequence[Int64],
    gradients: Sequence[GradientTimes],
    offsets: dict[int, int],
    parameters: int,
) -> Iterator[GroupPass]:
    """Yield the passes of steps that all ranks completed, if all ranks have equally many gradients in them."""
    clocks = {clock.rank: clock for clock in run.clocks}
    common = run.common_steps()
    runs = [summary[BUCKET_REDUCTIONS].rows(of_rank) for summary, of_rank in zip(summaries, rows, strict=True)]
    keys = set.intersection(*({*zip(t.step.tolist(), t.backward_pass.tolist(), strict=True)} for t in gradients))
    for step, backward_pass in sorted(key for key in keys if key[0] in common):
        ready_ns, back_ns = np.full((len(summaries), parameters), -np.inf), np.zeros((len(summaries), parameters))
        curves, sums, measured = [], [], []
        for r, (summary, times, reduced) in enumerate(zip(summaries, gradients, runs, strict=True)):
            here = times.rows((times.step == step) & (times.backward_pass == backward_pass))
            here = here.rows(np.argsort(here.ready_ns, kind="stable"))
            at_ns = clocks[summary.rank].to_run(here.ready_ns).astype(float)
            place = _places(here, offsets)
            ready_ns[r, place], back_ns[r, place] = at_ns, here.back_ns
            curves.append(at_ns)
            sums.append(np.maximum.accumulate(here.compute_ns).astype(float))
            measured.append(_exposed_ns(reduced, step, backward_pass))
        if (np.isfinite(ready_ns).sum(axis=1) == np.isfinite(ready_ns[0]).sum()).all():
            origin_ns = min(float(curve[0]) for curve in curves)
            yield GroupPass(
                step=step,
                modules=_taking_part(ready_ns[0], [*offsets.values(), parameters]),
                observed=BackwardPass(
                    origin_ns=origin_ns,
                    ready_ns=ready_ns - origin_ns,
                    curve_ns=[c - origin_ns for c in curves],
                    compute_ns=sums,
                    back_ns=back_ns,
                ),
                measured_ns=statistics.fmean(measured),
            )


def _taking_part(ready_ns: np.ndarray, bounds: Sequence[int]) -> frozenset[int]:
    """Return the modules with a gradient in the pass. `bounds`: where each begins in the list of parameters."""
    return frozenset(i for i, (first, stop) in enumerate(pairwise(bounds)) if np.isfinite(ready_ns[first:stop]).any())


def _exposed_ns(runs: BucketReductions, step: int, backward_pass: int) -> int:
    return int(runs.added_ns[(runs.step == step) & (runs.backward_pass == backward_pass)].sum())
