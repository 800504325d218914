"""Backward passes over the ranks that reduce together, as a replay with other buckets needs them.

For each process group: its parameters, how long its transfers took, and each pass with its gradients on the run's
clock.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from tracekit.explain.communication.collectives import group_times
from tracekit.explain.ddp.bucket_replay import BackwardPass, Parameters, copies_back, parameters_of, transfers_at_once
from tracekit.explain.ddp.tables import (
    BUCKET_REDUCTIONS,
    DDP_MODULES,
    GRADIENT_TIMES,
    WHOLE,
    BucketReductions,
    GradientTimes,
)
from tracekit.explain.section import Unavailable
from tracekit.model.communication import KINDS, MatchedGroup
from tracekit.model.events import ABSENT, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.run import ClockModel, Run
from tracekit.model.summary import Part, RankSummary
from tracekit.stats.transfer_fit import BusyPeriods, busy_periods_of

Reductions = TypeVar("Reductions", bound=BucketReductions)


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupPass:
    """One backward pass of a process group.

    Attributes:
        modules: which of the group's modules take part.
        measured_ns: exposed time, mean over ranks.
        ended_ns: when the last reduction ended, from the origin.
    """

    step: int
    modules: frozenset[int]
    observed: BackwardPass
    measured_ns: float
    ended_ns: float


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupPasses:
    """What the replays of one process group need. The parameters of its modules form one list.

    Attributes:
        first: where each module begins in the list of parameters; the last entry is the length of the list.
        size_bytes: float64 [p], of each parameter.
        travels_ratio: bytes transferred by bytes of the buckets.
        dispatch_ns: median time from ready to start of the first bucket.
        in_flight: how many transfers run at once.
        busy_periods: of time in which the group transfers.
    """

    ranks: int
    parameters: tuple[Parameters, ...]
    first: tuple[int, ...]
    size_bytes: np.ndarray
    travels_ratio: float
    dispatch_ns: float
    in_flight: int
    busy_periods: BusyPeriods
    passes: tuple[GroupPass, ...]


def passes_of_groups(run: Run) -> list[GroupPasses] | Unavailable:
    """Return the backward passes of each process group that reduces buckets and whose ranks were all recorded."""
    groups: list[GroupPasses] = []
    missing: list[Unavailable] = []
    for matched, summaries, reduced in groups_that_reduce(run, BUCKET_REDUCTIONS):
        if not summaries:
            reason = "not all ranks that reduce together are there, so nobody knows when a transfer could begin"
            missing.append(Unavailable(reason=reason))
            continue
        passes = _group_passes(run, matched, summaries, reduced)
        if isinstance(passes, Unavailable):
            missing.append(passes)
        else:
            groups.append(passes)
    if groups:
        return groups
    return missing[0] if missing else Unavailable(reason="the reductions could not be matched over ranks")


def groups_that_reduce(
    run: Run, part: Part[Reductions]
) -> Iterator[tuple[MatchedGroup, list[RankSummary], list[Reductions]]]:
    """Yield the groups of whose collectives some are reductions of gradients, their ranks, and the reductions of each.

    The ranks are none unless all of the group, several, were recorded.
    """
    for matched in run.collectives:
        present = matched.ranks.tolist()
        summaries = [run.ranks[run.index_of_rank[rank]] for rank in present]
        reduced = []
        for summary, row in zip(summaries, matched.row, strict=True):
            reductions = summary[part]
            reduced.append(reductions.rows(np.isin(rows_of_reductions(summary, reductions), row)))
        if any(len(of_rank) for of_rank in reduced):
            whole = 1 < len(present) >= (len(run.groups[matched.group].ranks) or run.world_size or 0)
            yield matched, summaries if whole else [], reduced


def rows_of_reductions(summary: RankSummary, reductions: BucketReductions) -> Int64:
    """Return the position in the rank's `Collectives` of each of its reductions, int64 [n]; ABSENT if there is none."""
    collectives = summary.collectives
    if not len(collectives):
        return np.full(len(reductions), ABSENT, dtype=np.int64)
    row = np.minimum(np.searchsorted(collectives.launch_ns, reductions.launch_ns), len(collectives) - 1)
    same = (collectives.launch_ns[row] == reductions.launch_ns) & (collectives.end_ns[row] == reductions.end_ns)
    return np.where(same, row, ABSENT)


def _group_passes(
    run: Run, matched: MatchedGroup, summaries: Sequence[RankSummary], reduced: Sequence[BucketReductions]
) -> GroupPasses | Unavailable:
    """Return the passes of one group of DDP. reduced: the reductions of each rank."""
    modules = sorted({int(m) for of_rank in reduced for m in of_rank.module})
    gradients = [s[GRADIENT_TIMES].rows(np.isin(s[GRADIENT_TIMES].module, modules)) for s in summaries]
    if not all(len(times) for times in gradients):
        return Unavailable(reason="when single gradients came is not recorded (gradient_as_bucket_view, or no shapes)")
    buckets = {m: summaries[0][DDP_MODULES].modules[m] for m in modules}
    parameters = {m: parameters_of(module, elements_of(gradients[0], m)) for m, module in buckets.items()}
    layout = {m: each for m, each in parameters.items() if each is not None}
    if len(layout) < len(modules):
        return Unavailable(reason="the sizes of the parameters are not recorded")
    single = [each.rows(each.index != WHOLE) for each in reduced]
    clocks = {clock.rank: clock for clock in run.clocks}
    copies = [
        _copies_back(clocks[summary.rank], of_rank, times, layout)
        for summary, of_rank, times in zip(summaries, single, gradients, strict=True)
    ]
    sizes = sum(
        buckets[m].buckets[i].size_bytes for each in single for m, i in zip(each.module, each.index, strict=True)
    )
    ratio = sum(int(each.size_bytes.sum()) for each in single) / max(sizes, 1)
    return joined_passes(run, matched, reduced, gradients, layout, copies=copies, travels_ratio=ratio)


def joined_passes(
    run: Run,
    matched: MatchedGroup,
    reduced: Sequence[BucketReductions],
    gradients: Sequence[GradientTimes],
    layout: Mapping[int, Parameters],
    *,
    copies: Sequence[Intervals] = (),
    travels_ratio: float = 1.0,
) -> GroupPasses | Unavailable:
    """Return the passes of a group whose ranks were all recorded.

    reduced, gradients: of each rank. layout: the parameters of each module. copies: when each rank copied gradients
    back.
    """
    members = [run.index_of_rank[rank] for rank in matched.ranks.tolist()]
    known = tuple(layout.values())
    first = tuple(np.cumsum([0, *(len(each.size_bytes) for each in known)]).tolist())
    clocks = [run.clocks[member] for member in members]
    offsets = dict(zip(layout, first, strict=False))
    passes = tuple(_passes(run.common_steps(), clocks, reduced, gradients, offsets, first[-1]))
    if not passes:
        return Unavailable(reason="no step has all gradients on all ranks")
    times, in_flight = group_times(run, matched), transfers_at_once(run.ranks[members[0]].device)
    reduces = (matched.kind[times.instance] == KINDS.index("all_reduce")) & (matched.size_bytes[times.instance] > 0)
    begin_ns, sizes = times.begin_ns[reduces], matched.size_bytes[times.instance][reduces]
    busy_periods = busy_periods_of(begin_ns, begin_ns + times.transfer_ns[reduces], sizes, in_flight, copies)
    if busy_periods is None:
        return Unavailable(reason="no step has all reductions on all ranks")
    return GroupPasses(
        ranks=len(members),
        parameters=known,
        first=first,
        size_bytes=np.array([size for each in known for size in each.size_bytes], dtype=np.float64),
        travels_ratio=travels_ratio,
        dispatch_ns=statistics.median(
            ns for each in reduced for ns in np.maximum(each.start_ns - each.ready_ns, 0)[each.index == 0].tolist()
        ),
        in_flight=in_flight,
        busy_periods=busy_periods,
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
            int(here.back_ns[(here.module == module) & np.isin(here.parameter, layout[module].buckets[index])].sum())
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


def elements_of(gradients: GradientTimes, module: int) -> list[int]:
    """Return the elements of the module's parameters by index; empty unless gradients of all of them were seen."""
    of_module = gradients.rows(gradients.module == module)
    parameters, at = np.unique(of_module.parameter, return_index=True)
    return of_module.elements[at].tolist() if np.array_equal(parameters, np.arange(len(parameters))) else []


def _parameter_indexes(times: GradientTimes, offsets: dict[int, int]) -> Int64:
    """Return the position of each gradient's parameter in the group's list, int64 [n]."""
    lookup = np.zeros(max(offsets) + 1, dtype=np.int64)
    for module, first in offsets.items():
        lookup[module] = first
    return lookup[times.module] + times.parameter


def _passes(
    common: frozenset[int],
    clocks: Sequence[ClockModel],
    reduced: Sequence[BucketReductions],
    gradients: Sequence[GradientTimes],
    offsets: dict[int, int],
    parameters: int,
) -> Iterator[GroupPass]:
    """Yield the passes of steps that all ranks completed, if all ranks have equally many gradients in them."""
    keys = set.intersection(*({*zip(t.step.tolist(), t.backward_pass.tolist(), strict=True)} for t in gradients))
    for step, backward_pass in sorted(key for key in keys if key[0] in common):
        ready_ns, back_ns = np.full((len(clocks), parameters), -np.inf), np.zeros((len(clocks), parameters))
        curves, sums, measured, ended = [], [], [], []
        for r, (clock, times, of_rank) in enumerate(zip(clocks, gradients, reduced, strict=True)):
            here = times.rows((times.step == step) & (times.backward_pass == backward_pass))
            here = here.rows(np.argsort(here.ready_ns, kind="stable"))
            at_ns = clock.to_run(here.ready_ns).astype(float)
            parameter = _parameter_indexes(here, offsets)
            ready_ns[r, parameter], back_ns[r, parameter] = at_ns, here.back_ns
            curves.append(at_ns)
            sums.append(np.maximum.accumulate(here.compute_ns).astype(float))
            of_pass = of_rank.rows((of_rank.step == step) & (of_rank.backward_pass == backward_pass))
            measured.append(int(of_pass.added_ns.sum()))
            ended.append(clock.to_run(of_pass.end_ns).max(initial=0))
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
                ended_ns=float(max(ended)) - origin_ns,
            )


def _taking_part(ready_ns: np.ndarray, bounds: Sequence[int]) -> frozenset[int]:
    """Return the modules with a gradient in the pass. `bounds`: where each begins in the list of parameters."""
    return frozenset(i for i, (first, stop) in enumerate(pairwise(bounds)) if np.isfinite(ready_ns[first:stop]).any())
