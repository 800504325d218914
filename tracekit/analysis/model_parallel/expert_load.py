"""How evenly expert parallelism distributes its tokens, over the ranks of each group.

The load of a rank is what all-to-alls bring to its experts. Kernels of other libraries name no sizes. There it is
estimated from how long the experts compute (`expert_compute`).

Findings name ranks whose experts have far more load than those of others. There is none where the load differs as much
from step to step as from rank to rank.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from tracekit.analysis.model_parallel import columns
from tracekit.analysis.model_parallel.expert_compute import expert_computes
from tracekit.analysis.model_parallel.imbalance import (
    Load,
    most_loaded,
    over_modules,
)
from tracekit.analysis.model_parallel.parts import EXPERT_EXCHANGES
from tracekit.analysis.stats.uncertainty import least_significant
from tracekit.analysis.table import Frame
from tracekit.findings.finding import Finding
from tracekit.findings.stragglers import expert_load as finding_of_load
from tracekit.findings.thresholds import EXPERT_RATIO, NOTABLE_SAVING
from tracekit.model.communication import GroupKey
from tracekit.model.run import Run

__all__ = ["ExpertLoad", "expert_load", "received_bytes"]


ESTIMATED = "estimated from how long they compute, not from counts of tokens"
"""Added to every load that is estimated because the trace has no sizes."""


@dataclass(frozen=True, kw_only=True)
class ExpertLoad:
    """The load of all ranks.

    Attributes:
        ranks: rows of columns.EXPERT_LOAD, by group and module; empty without exchanges of tokens.
    """

    ranks: Frame = Frame(columns.EXPERT_LOAD)
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
    index = {group: i for i, group in enumerate(run.groups)}
    rows = [
        row
        for group in groups
        for module, load in group.modules.items()
        for row in _rows(None if group.key is None else index[group.key], module, load, estimated=group.estimated)
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
