"""Ranks that are slow in most steps, and operations that last far longer in one step than in the others.

What is usual of an operation is its median over the steps; of few steps, that of its rank and type. What operations of
a rank and type vary by is 1.4826 times the median of their absolute deviations from that, the standard deviation of
normal values. An operation is an outlier

* 6 such deviations above what is usual, half as long again, and longer by 0.5 % of a step;
* *sure* from 12 deviations and twice the usual time on, where 5 steps or more tell what is usual; else *likely*.

A step in which most forwards and backwards are longer is slow as a whole, and has no outliers. The saving is the step
as replayed less the step as replayed with this one operation as usual, and all else as measured.

Outliers of work, and of pauses, are *stalls*. They *wander* if they hit several ranks in several steps, and no rank has
most of them: then no rank is to blame. They *recur* if one rank has most of them, in a quarter of the steps or more.
Where forward and backward of the same microbatch are both longer, nothing stalled: *microbatches* differ.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from tracekit.explain.stragglers.certainty import Evidence, Grading
from tracekit.findings.finding import Certainty
from tracekit.model.events import ABSENT, Bool, Float64, Int64
from tracekit.optables.pipelines import NamedGraph
from tracekit.replay.operation_graph import GraphSteps
from tracekit.replay.replay import synchronised_members
from tracekit.stats.uncertainty import MAD_TO_SIGMA, leave_one_out_medians

_ENOUGH_STEPS = 5
_DEVIATIONS = {"sure": 12.0, "likely": 6.0}
_LONGER = {"sure": 1.0, "likely": 0.5}  # beyond the usual time, as a share of that
_LEAST_SHARE = 0.005  # of a step
_SLOW_STEP = 1.25  # times as long as usual are most operations of a step that is slow as a whole
_MOST_REPLAYED = 1000
_AT_ONCE = 50
_ALIKE = 0.5  # of how much longer an operation is, as a share, so is the other pass of a long microbatch
_MOST = 0.6  # of the time beyond the usual
_MANY_STEPS = 0.25
_FEW = 3
_MOST_LONG = 0.5  # of the outliers


@dataclass(frozen=True, kw_only=True)
class SlowRank:
    """A rank that computes longer than its peers in most steps.

    Attributes:
        beyond_ns: by how much in a step, the median.
        share: that as a share of what its peers compute.
        shown: in how many steps it shows.
        peers: how many peers it has.
    """

    rank: int
    beyond_ns: int
    share: float
    shown: int
    steps: int
    peers: int
    certainty: Certainty


@dataclass(frozen=True)
class Outlier:
    """An operation that lasts far longer in one step than in the others.

    Attributes:
        operation: its type.
        waits_on_others: it is a transfer or a collective, and no work of the rank.
        is_of_long_microbatch: forward and backward of this microbatch are both longer on this rank and in this step.
        duration_ns: how long it lasted; of a transfer without waiting for the sender.
        usual_ns: how long the same operation lasts in other steps.
        saves_ns: by how much its step would be shorter if it lasted as usual.
    """

    step: int
    rank: int
    stage: int | None
    operation: str
    microbatch: int | None
    waits_on_others: bool
    is_of_long_microbatch: bool
    duration_ns: int
    usual_ns: int
    saves_ns: int
    certainty: Certainty


@dataclass(frozen=True, kw_only=True)
class Outliers:
    """The outliers of a job, the largest saving first.

    Attributes:
        outliers: all of them.
        slow_steps: by number how many times as long as usual a step's operations are that is slow as a whole.
        stalls_ns: by how much the mean step would be shorter if all those that are work lasted as usual.
        transfers_ns: by how much if all those that are transfers or collectives did.
    """

    outliers: tuple[Outlier, ...]
    slow_steps: dict[int, float]
    stalls_ns: int
    transfers_ns: int


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """The outliers of work, and of pauses, together.

    Attributes:
        count: how many operations.
        steps: in how many steps.
        ranks: on which ranks, those with the longest stalls first.
        beyond_ns: how long they last beyond the usual, in all.
        pattern: `single`: there are few.
        rank: the rank that has most of them, where they recur or are single.
    """

    count: int
    steps: int
    ranks: tuple[int, ...]
    beyond_ns: int
    pattern: Literal["wandering", "recurring", "single", "microbatches"]
    rank: int | None


def find_outliers(named: NamedGraph) -> Outliers:
    """Return the outliers of all steps, and what removing each of them saves."""
    groups = named.graph.step_groups
    table = pd.concat([_table(named, number) for number in range(len(groups))], ignore_index=True)
    step_ns = float(np.median(np.concatenate([group.measured_ns for group in groups])))
    same = ["rank", "type", "stage"]
    of_rank_ns = table.groupby(same)["duration_ns"].transform("median")
    of_operation_ns = table.groupby(["group", "operation"])["duration_ns"].transform("median")
    table["usual_ns"] = of_operation_ns.where(table["steps"] >= _ENOUGH_STEPS, of_rank_ns)
    table["beyond_ns"] = table["duration_ns"] - table["usual_ns"]
    table["deviation_ns"] = table["beyond_ns"].abs()
    deviation_ns = MAD_TO_SIGMA * table.groupby(same)["deviation_ns"].transform("median")
    table["longer"] = table["beyond_ns"] / table["usual_ns"].where(table["usual_ns"] > 0)
    slowness = 1 + table[table["computes"]].groupby("step")["longer"].median()
    slow_steps = slowness[slowness >= _SLOW_STEP]
    is_above = {
        name: (table["beyond_ns"] >= _DEVIATIONS[name] * deviation_ns)
        & (table["beyond_ns"] >= _LONGER[name] * table["usual_ns"])
        for name in ("sure", "likely")
    }
    enough = sum(len(group.steps) for group in groups) >= _ENOUGH_STEPS
    table["certainty"] = np.where(is_above["sure"] & enough, "sure", "likely")
    is_notable = (table["beyond_ns"] > _LEAST_SHARE * step_ns) & ~table["step"].isin(slow_steps.index)
    table["is_outlier"] = is_notable & is_above["likely"]
    of_microbatch = table[table["computes"] & (table["microbatch"] >= 0)]
    passes = of_microbatch.groupby(["step", "rank", "stage", "microbatch"])["longer"]
    others = passes.transform("sum") - table["longer"]  # of the backward of a forward, and the other way round
    table["is_of_long_microbatch"] = (passes.transform("size") > 1) & (others >= _ALIKE * table["longer"])
    saved = pd.concat([_with_savings(group, table[table["group"] == i]) for i, group in enumerate(groups)])
    saved = saved.sort_values(["saves_ns", "step", "rank", "type"], ascending=[False, True, True, True])
    saved["operation"] = saved["type"].map(named.graph.types.__getitem__)
    saved[["stage", "microbatch"]] = saved[["named_stage", "microbatch"]].astype(object).replace(ABSENT, None)
    times = ["duration_ns", "usual_ns", "saves_ns"]
    saved[times] = saved[times].round().astype(np.int64)
    fields = [field.name for field in dataclasses.fields(Outlier)]
    return Outliers(
        outliers=tuple(Outlier(*row) for row in saved[fields].itertuples(index=False, name=None)),
        slow_steps=dict(zip(slow_steps.index.tolist(), slow_steps.tolist(), strict=True)),
        stalls_ns=_together_ns(groups, table, ~table["waits_on_others"]),
        transfers_ns=_together_ns(groups, table, table["waits_on_others"]),
    )


def _table(named: NamedGraph, number: int) -> pd.DataFrame:
    """Return a row for each operation and step of a group of steps, step by step for each operation."""
    group = named.graph.step_groups[number]
    operations, steps = group.duration_ns.shape
    members = synchronised_members(group.graph)
    together = [int(members[i].min()) if i in members else i for i in range(operations)]
    columns = {
        "operation": np.arange(operations),
        "together": np.array(together),
        "rank": group.rank,
        "type": group.type,
        "stage": group.stage,
        "named_stage": named.names[number]["stage"].to_numpy(),
        "microbatch": named.names[number]["microbatch"].to_numpy(),
        "computes": np.isin(group.type, named.compute_types),
        "waits_on_others": np.isin(group.kind, list(named.graph.communication_kinds)),
    }
    table = pd.DataFrame({name: np.repeat(values, steps) for name, values in columns.items()})
    return table.assign(
        group=number,
        step_index=np.tile(np.arange(steps), operations),
        step=np.tile(group.steps, operations),
        steps=steps,
        duration_ns=group.duration_ns.ravel(),
    )


def _with_savings(group: GraphSteps, table: pd.DataFrame) -> pd.DataFrame:
    """Return the outliers of a group of steps with what their steps are shorter if each alone lasts as usual.

    Operations that synchronise last as long as each other: the one that is longest stands for all.
    """
    shape = group.duration_ns.shape
    is_outlier, usual_ns = (table[name].to_numpy().reshape(shape) for name in ("is_outlier", "usual_ns"))
    found = table[table["is_outlier"]].sort_values("beyond_ns", ascending=False, kind="stable")
    found = found.drop_duplicates(["together", "step_index"]).head(_MOST_REPLAYED)
    together = table["together"].to_numpy().reshape(shape)[:, 0]
    saved_ns = [np.zeros(0)]
    for first in range(0, len(found), _AT_ONCE):
        batch = found.iloc[first : first + _AT_ONCE]
        step_indices = batch["step_index"].to_numpy()
        without = is_outlier[:, step_indices] & (together[:, None] == batch["together"].to_numpy())
        measured_ns = group.duration_ns[:, step_indices]
        saved_ns.append(_saved_ns(group, measured_ns, without, usual_ns[:, step_indices]))
    return found.assign(saves_ns=np.maximum(np.concatenate(saved_ns), 0.0))


def _saved_ns(group: GraphSteps, duration_ns: Float64, without: Bool, usual_ns: Float64) -> Float64:
    """Return by how much each replica is shorter if some operations last as usual, [j] of [n, j] each."""
    return group.step_ns(duration_ns) - group.step_ns(np.where(without, usual_ns, duration_ns))


def _together_ns(groups: Sequence[GraphSteps], table: pd.DataFrame, chosen: pd.Series) -> int:
    """Return by how much the mean step is shorter if all the outliers that are chosen last as usual."""
    is_removed = (table["is_outlier"] & chosen).to_numpy()
    saved_ns = []
    for number, group in enumerate(groups):
        rows = (table["group"] == number).to_numpy()
        without, usual_ns = (
            values[rows].reshape(group.duration_ns.shape) for values in (is_removed, table["usual_ns"].to_numpy())
        )
        saved_ns.append(_saved_ns(group, group.duration_ns, without, usual_ns))
    return round(float(np.concatenate(saved_ns).mean()))


def describe_stalls(outliers: Sequence[Outlier], steps: int) -> Stalls | None:
    """Return the stalls among the outliers of so many steps; None without any."""
    stalls = [outlier for outlier in outliers if not outlier.waits_on_others]
    if not stalls:
        return None
    beyond_ns: Counter[int] = Counter()
    for stall in stalls:
        beyond_ns[stall.rank] += stall.duration_ns - stall.usual_ns
    ranks = tuple(sorted(beyond_ns, key=lambda rank: (-beyond_ns[rank], rank)))
    total_ns, first = sum(beyond_ns.values()), ranks[0]
    has_most = beyond_ns[first] >= _MOST * total_ns
    hit = {stall.step for stall in stalls}
    pattern: Literal["wandering", "recurring", "single", "microbatches"] = "single"
    if sum(stall.is_of_long_microbatch for stall in stalls) > _MOST_LONG * len(stalls):
        pattern = "microbatches"
    elif has_most and len({s.step for s in stalls if s.rank == first}) >= max(_MANY_STEPS * steps, _FEW):
        pattern = "recurring"
    elif not has_most and len(hit) > 1:
        pattern = "wandering"
    return Stalls(
        count=len(stalls),
        steps=len(hit),
        ranks=ranks,
        beyond_ns=total_ns,
        pattern=pattern,
        rank=first if has_most else None,
    )


def find_slow_ranks(named: NamedGraph) -> tuple[SlowRank, ...]:
    """Return the ranks that surely, or likely, compute longer than their peers in most steps, the slowest first.

    Peers are the ranks of the same stages in other replicas. A rank without peers has other layers than the others: its
    stage may be uneven, which the analysis of pipelines tells. How sure a verdict is says `stragglers.certainty`.
    """
    groups = named.graph.step_groups
    stages: dict[int, set[int]] = defaultdict(set)
    work = []
    for group in groups:
        computes = np.isin(group.type, named.compute_types)
        for rank, stage in zip(group.rank[computes].tolist(), group.stage[computes].tolist(), strict=True):
            stages[rank].add(stage)
        durations_ns = pd.DataFrame(group.duration_ns[computes], columns=group.steps)
        work.append(durations_ns.groupby(group.rank[computes]).sum())
    work_ns = pd.concat(work, axis=1).fillna(0).round().astype(np.int64)
    peers: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank in sorted(stages):
        peers[tuple(sorted(stages[rank]))].append(rank)
    compared = [ranks for ranks in peers.values() if len(ranks) > 1]
    grading = Grading(
        step_ns=float(np.mean(np.concatenate([group.measured_ns for group in groups]))),
        candidates=sum(map(len, compared)),
        ranks=len(work_ns),
        steps=work_ns.shape[1],
    )
    found = (_slowest(ranks, work_ns.loc[ranks].to_numpy().T, grading) for ranks in compared)
    return tuple(sorted((slow for slow in found if slow is not None), key=lambda slow: -slow.beyond_ns))


def _slowest(ranks: Sequence[int], work_ns: Int64, grading: Grading) -> SlowRank | None:
    """Return the slowest of some ranks that should take equally long, if it is slow. work_ns: [k, ranks]."""
    known = np.ones_like(work_ns, dtype=np.bool_)
    others_ns = leave_one_out_medians(work_ns, known)
    beyond_ns = work_ns - others_ns
    slowest = int(np.median(beyond_ns, axis=0).argmax())
    rest_ns = np.delete(work_ns, slowest, axis=1)
    noise_ns = rest_ns - leave_one_out_medians(rest_ns, known[:, 1:]) if len(ranks) > 2 else rest_ns[:, :0]
    series_ns = beyond_ns[:, slowest]
    evidence = Evidence(series_ns=series_ns, peers_ns=noise_ns, slow_ns=series_ns[:, None])
    certainty: Certainty | None = grading.grade(evidence)
    if certainty is None:
        return None
    return SlowRank(
        rank=ranks[slowest],
        beyond_ns=round(evidence.size_ns),
        share=evidence.size_ns / max(float(np.median(others_ns[:, slowest])), 1.0),
        shown=round(evidence.persistence * len(series_ns)),
        steps=len(series_ns),
        peers=len(ranks) - 1,
        certainty=certainty,
    )
