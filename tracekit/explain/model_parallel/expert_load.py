"""How evenly expert parallelism distributes its tokens, over the ranks of each group.

The load of a rank is what all-to-alls bring to its experts. Kernels of other libraries name no sizes. There it is
estimated from how long the experts compute (`expert_compute`).

Findings name ranks whose experts have far more load than those of others. There is none where the load differs as much
from step to step as from rank to rank.

A rank that computes longer may have experts with more tokens, or be slow. What its experts' load explains is compared
with what its pace explains (`expert_compute`): the larger is the reason.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.explain.model_parallel import tables
from tracekit.explain.model_parallel.expert_compute import ExpertCompute, expert_computes
from tracekit.explain.model_parallel.tables import EXPERT_EXCHANGES
from tracekit.findings.finding import Finding
from tracekit.findings.stragglers import expert_load as finding_of_load
from tracekit.findings.thresholds import EXPERT_RATIO, NOTABLE_SAVING
from tracekit.model.communication import GroupKey
from tracekit.model.run import Run
from tracekit.model.table import Frame
from tracekit.stats.uncertainty import least_significant

LEAST_OVERLOAD = 1.03  # times the load of the others, of a rank that is named for it
HIGHEST_RATIO = 100.0  # times the others', or more: a router that has collapsed
_PERSISTENT = 0.8  # of the steps

Load = dict[int, dict[int, int]]
"""By rank and step: bytes, or ns of compute."""

_OVERLOADED = 1.2  # times the load of the others, where it is not known what the experts compute
_EXPLAINED = 0.5  # of how much longer the experts compute: received bytes explain as much, or something else does


@dataclass(frozen=True, kw_only=True)
class ExpertLoad:
    """The load of all ranks.

    Attributes:
        ranks: rows of tables.EXPERT_LOAD, by group and module; empty without exchanges of tokens.
    """

    ranks: Frame = Frame(tables.EXPERT_LOAD)
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class _Group:
    """The loads of a group.

    Attributes:
        modules: the load of each module.
        uncovered_ns: of its exchanges, by rank and step.
        estimated: the load is ns of compute, not bytes.
    """

    key: GroupKey | None
    modules: Mapping[str | None, Load]
    uncovered_ns: Load
    estimated: bool


def expert_load(run: Run) -> ExpertLoad:
    """Return the table, and a finding for each group in which one rank's experts have far more load than others'."""
    uncovered_ns: dict[GroupKey | None, Load] = {}
    for summary in run.ranks:
        for row in summary[EXPERT_EXCHANGES]:
            waits = uncovered_ns.setdefault(row.group, {}).setdefault(summary.rank, {})
            waits[row.step] = waits.get(row.step, 0) + row.uncovered_ns
    groups = [
        _Group(key=key, modules=modules, uncovered_ns=uncovered_ns[key], estimated=False)
        for key, modules in received_bytes(run).items()
    ]
    groups += [
        _Group(
            key=run.groups[compute.group],
            modules={None: compute.by_rank_and_step(compute.load_ns)},
            uncovered_ns=compute.by_rank_and_step(compute.uncovered_ns),
            estimated=True,
        )
        for compute in expert_computes(run)
        if not compute.has_sizes
    ]
    rows = [
        row
        for group in groups
        for module, load in group.modules.items()
        for row in _rows(run.index_of_group[group.key], module, load, estimated=group.estimated)
    ]
    findings = [_finding(run, group) for group in groups]
    return ExpertLoad(ranks=rows, findings=tuple(finding for finding in findings if finding is not None))


def received_bytes(run: Run) -> dict[GroupKey | None, dict[str | None, Load]]:
    """Return what all-to-alls bring to experts, by group and module."""
    loads: dict[GroupKey | None, dict[str | None, Load]] = {}
    for summary in run.ranks:
        for row in summary[EXPERT_EXCHANGES]:
            load = loads.setdefault(row.group, {}).setdefault(row.module, {})
            load.setdefault(summary.rank, {})[row.step] = row.received_bytes
    return loads


def _rows(group: int | None, module: str | None, load: Load, *, estimated: bool) -> list[dict[str, object]]:
    means = {rank: statistics.fmean(steps.values()) for rank, steps in load.items()}
    total = sum(means.values())
    rows: list[dict[str, object]] = []
    for rank, mean in means.items():
        others = (total - mean) / (len(means) - 1) if len(means) > 1 else 0
        rows.append(
            {
                "group": group,
                "module": module,
                "rank": rank,
                "steps": len(load[rank]),
                "received_bytes": None if estimated else mean,
                "compute_ns": mean if estimated else None,
                "received_share": mean / total if total else None,
                "ratio": mean / others if others else None,
            }
        )
    return rows


def _finding(run: Run, group: _Group) -> Finding | None:
    modules, uncovered_ns = group.modules, group.uncovered_ns
    by_module = {module: most_loaded(load, EXPERT_RATIO) for module, load in modules.items()}
    uneven = {
        module: imbalance for module, imbalance in by_module.items() if imbalance is not None and imbalance.significant
    }
    whole = most_loaded(over_modules(list(modules.values())), EXPERT_RATIO)
    module = max(uneven, key=lambda module: uneven[module].ratio, default=None)
    if whole is not None and whole.significant and (len(uneven) != 1 or len(modules) == 1):
        imbalance, where = whole, None
    elif uneven:
        imbalance, where = uneven[module], module or ""
    else:
        return None
    members = max(len(group.key.ranks) if group.key is not None else 0, len(uncovered_ns))
    parallelism = None if group.key is None else group.key.parallelism
    waiting_ns = _waiting_ns(imbalance.rank, uncovered_ns)
    # With even loads the busiest rank has the mean of all: (n - 1) / n of its excess over the others goes away.
    avoidable_ns = 0.0 if waiting_ns is None else waiting_ns * (members - 1) / members
    notable = waiting_ns is not None and round(avoidable_ns) >= NOTABLE_SAVING * run.mean_rank_step_ns()
    return finding_of_load(
        severity="warning" if notable else "info",
        rank=imbalance.rank,
        time_ns=None if waiting_ns is None else round(waiting_ns),
        cause="expert_load",
        remedy="load",
        ranks=(imbalance.rank,),
        evidence={
            "ratio": imbalance.ratio,
            "estimated": group.estimated,
            "noise": imbalance.noise,
            "module": where,
            "parallelism": parallelism,
            "waiting_ns": None if waiting_ns is None else round(waiting_ns),
            "recorded": len(uncovered_ns),
            "members": members,
            "inferred": parallelism is None and not group.estimated,
            "avoidable": notable,
        },
    )


def _waiting_ns(rank: int, uncovered_ns: Mapping[int, Mapping[int, int]]) -> float | None:
    """Return how much longer the other ranks (their median) are exposed to the group's all-to-alls than this rank.

    The mean over steps; None where steps differ as much.
    """
    of_rank = uncovered_ns[rank]
    common = frozenset.intersection(*(frozenset(steps) for steps in uncovered_ns.values()))
    beyond = [
        statistics.median(steps[step] for other, steps in uncovered_ns.items() if other != rank) - of_rank[step]
        for step in sorted(common)
    ]
    if len(beyond) < 2:
        return None
    mean_ns = statistics.fmean(beyond)
    return mean_ns if mean_ns > least_significant(statistics.stdev(beyond), len(beyond)) else None


@dataclass(frozen=True, kw_only=True)
class Imbalance:
    """The rank with the highest load.

    Attributes:
        ratio: its load by the mean of the other ranks, mean over steps.
        noise: standard deviation of the ratio from step to step.
        significant: whether the ratio is as high as asked for, beyond its noise, and in nearly all steps.
    """

    rank: int
    ratio: float
    noise: float
    significant: bool


def most_loaded(load: Load, least: float) -> Imbalance | None:
    """Return the rank with the highest load; None where there is no other rank, or no load.

    least: times the load of the others, for which it is significant.
    """
    common = sorted(frozenset.intersection(*(frozenset(steps) for steps in load.values())))
    if len(load) < 2 or not common:
        return None
    total = {rank: sum(steps[step] for step in common) for rank, steps in load.items()}
    rank = max(total, key=lambda rank: (total[rank], -rank))
    others = {step: sum(load[r][step] for r in load if r != rank) / (len(load) - 1) for step in common}
    some = [step for step in common if load[rank][step] or others[step]]
    ratios = [min(load[rank][step] / others[step], HIGHEST_RATIO) if others[step] else HIGHEST_RATIO for step in some]
    if not ratios:
        return None
    ratio = statistics.fmean(ratios)
    noise = statistics.stdev(ratios) if len(ratios) > 1 else 0.0
    persistence = sum(value > 1 for value in ratios) / len(ratios)
    significant = (
        len(ratios) > 1
        and ratio >= least
        and persistence >= _PERSISTENT
        and ratio - 1 > least_significant(noise, len(ratios))
    )
    return Imbalance(rank=rank, ratio=ratio, noise=noise, significant=significant)


def over_modules(loads: Sequence[Load]) -> Load:
    """Return the sums over modules."""
    total: Load = {}
    for load in loads:
        for rank, steps in load.items():
            of_rank = total.setdefault(rank, {})
            for step, size in steps.items():
                of_rank[step] = of_rank.get(step, 0) + size
    return total


@dataclass(frozen=True, kw_only=True)
class Overload:
    """The load of a rank's experts.

    Attributes:
        ratio: times the mean of the other ranks of its group.
        estimated: whether that is from how long the experts compute, as no sizes are known.
        others: the other ranks of its group: what it gets more, they get less.
        longer_ns: how much longer they compute a step than those of the other ranks; None where that is not known.
    """

    ratio: float
    estimated: bool
    others: tuple[int, ...]
    longer_ns: float | None


def overloaded_ranks(run: Run) -> dict[int, Overload]:
    """Return the rank of each group whose experts have the most load, if that adds more to its compute than its pace.

    A smaller load counts here than in a finding of its own, for it only explains why a rank computes longer.
    """
    result: dict[int, Overload] = {}
    received = {group: over_modules(list(modules.values())) for group, modules in received_bytes(run).items()}
    for compute in expert_computes(run):
        load = received.pop(run.groups[compute.group], None)
        by_time = most_loaded(compute.by_rank_and_step(compute.load_ns), LEAST_OVERLOAD)
        if by_time is None or not by_time.significant:
            continue
        most = by_time if load is None else most_loaded(load, LEAST_OVERLOAD)
        if most is None or not most.significant or most.rank != by_time.rank:
            continue
        by_load_ns, by_pace_ns = _longer_ns(run, compute, most.rank)
        if by_load_ns > by_pace_ns and most.ratio - 1 >= _EXPLAINED * (by_time.ratio - 1):
            others = _without(most.rank, compute.ranks.tolist())
            result[most.rank] = Overload(ratio=most.ratio, estimated=load is None, others=others, longer_ns=by_load_ns)
    for load in received.values():
        most = most_loaded(load, _OVERLOADED)
        if most is not None and most.significant:
            others = _without(most.rank, load)
            result[most.rank] = Overload(ratio=most.ratio, estimated=False, others=others, longer_ns=None)
    return result


def _without(rank: int, ranks: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(other for other in ranks if other != rank))


def _longer_ns(run: Run, compute: ExpertCompute, rank: int) -> tuple[float, float]:
    """Return how much longer a rank computes a step than the others of its group: by its load, and by its pace."""
    others = compute.ranks != rank
    index = int(np.flatnonzero(~others)[0])
    steps = np.unique(compute.step)
    load_ns = compute.load_ns.sum(axis=1) / len(steps)
    counted, members = frozenset(steps.tolist()), frozenset(compute.ranks[others].tolist())
    computed_ns = [
        sum(step.compute_ns for step in summary.steps if step.step in counted) / len(steps)
        for summary in run.ranks
        if summary.rank in members
    ]
    slower = compute.pace[index] / float(np.median(compute.pace[others])) - 1
    return float(load_ns[index] - load_ns[others].mean()), float(slower * np.median(computed_ns))
