"""How evenly expert parallelism distributes its tokens: what all-to-alls bring to the experts of each rank.

Findings name ranks whose experts get far more tokens than those of others. There is none where the load differs as much
from step to step as from rank to rank.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracekit.analysis.model_parallel import columns
from tracekit.analysis.model_parallel.parts import EXPERT_EXCHANGES
from tracekit.analysis.table import Frame
from tracekit.model.communication import GroupKey
from tracekit.model.run import Finding, Run

__all__ = ["ExpertLoad", "expert_load"]

_UNEVEN = 1.5  # times the load of the others; less is usual while a router learns
_SIGNIFICANT = 4.0  # standard errors of the mean over steps, and never less than a standard deviation
_PERSISTENT = 0.8  # of the steps
_ALL = 100.0  # times the others', or more: a router that has collapsed
_NOTABLE = 0.02  # of a step

Load = dict[int, dict[int, int]]  # rank -> step -> what, bytes or ns


@dataclass(frozen=True, kw_only=True)
class ExpertLoad:
    """The load of all ranks.

    Attributes:
        ranks: rows of columns.EXPERT_LOAD, by group and module; empty without all-to-alls for experts.
    """

    ranks: Frame = Frame(columns.EXPERT_LOAD)
    findings: tuple[Finding, ...]


def expert_load(run: Run) -> ExpertLoad:
    """Return the table, and a finding for each group in which one rank's experts get far more tokens than others'."""
    loads: dict[GroupKey | None, dict[str | None, Load]] = {}
    exposed_ns: dict[GroupKey | None, Load] = {}
    for summary in run.ranks:
        for row in summary[EXPERT_EXCHANGES]:
            load = loads.setdefault(row.group, {}).setdefault(row.module, {})
            load.setdefault(summary.rank, {})[row.step] = row.received_bytes
            waits = exposed_ns.setdefault(row.group, {}).setdefault(summary.rank, {})
            waits[row.step] = waits.get(row.step, 0) + row.exposed_ns
    index = {group: i for i, group in enumerate(run.groups)}
    rows = [
        row
        for group, modules in loads.items()
        for module, load in modules.items()
        for row in _rows(None if group is None else index[group], module, load)
    ]
    findings = [_finding(run, group, modules, exposed_ns[group]) for group, modules in loads.items()]
    return ExpertLoad(ranks=rows, findings=tuple(finding for finding in findings if finding is not None))


def _rows(group: int | None, module: str | None, load: Load) -> list[dict[str, object]]:
    mean_bytes = {rank: statistics.fmean(steps.values()) for rank, steps in load.items()}
    total = sum(mean_bytes.values())
    rows: list[dict[str, object]] = []
    for rank, size in mean_bytes.items():
        others = (total - size) / (len(mean_bytes) - 1) if len(mean_bytes) > 1 else 0
        rows.append(
            {
                "group": group,
                "module": module,
                "rank": rank,
                "steps": len(load[rank]),
                "received_bytes": size,
                "received_share": size / total if total else None,
                "ratio": size / others if others else None,
            }
        )
    return rows


@dataclass(frozen=True, kw_only=True)
class _Imbalance:
    """The rank whose experts get the most.

    Attributes:
        ratio: by the mean of the other ranks.
        noise: standard deviation of the ratio from step to step.
    """

    rank: int
    ratio: float
    noise: float
    significant: bool


def _finding(
    run: Run, group: GroupKey | None, modules: Mapping[str | None, Load], exposed_ns: Mapping[int, Mapping[int, int]]
) -> Finding | None:
    by_module = {module: _most_loaded(load) for module, load in modules.items()}
    uneven = {
        module: imbalance for module, imbalance in by_module.items() if imbalance is not None and imbalance.significant
    }
    whole = _most_loaded(_over_modules(list(modules.values())))
    module = max(uneven, key=lambda module: uneven[module].ratio, default=None)
    if whole is not None and whole.significant and (len(uneven) != 1 or len(modules) == 1):
        imbalance, where = whole, ""
    elif uneven:
        imbalance, where = uneven[module], f" in {module or 'the outermost module'}"
    else:
        return None
    amount = f"{imbalance.ratio:.1f}x the mean of the others" if imbalance.ratio < _ALL else "nearly all tokens"
    text = f"the experts of rank {imbalance.rank} receive {amount}{where}"
    members = max(len(group.ranks) if group is not None else 0, len(exposed_ns))
    parallelism = None if group is None else group.parallelism
    if len(exposed_ns) < members:
        text += f" ({len(exposed_ns)} of the group's {members} ranks are there)"
    if parallelism is None:
        text += " (inferred: all-to-alls of uneven sizes)"
    waiting_ns = _waiting_ns(imbalance.rank, exposed_ns)
    # With even loads the busiest rank has the mean of all: (n - 1) / n of its excess over the others goes away.
    saving_ns = None if waiting_ns is None else round(waiting_ns * (members - 1) / members)
    if saving_ns is not None and saving_ns < _NOTABLE * run.mean_step_ns():
        saving_ns = None
    if saving_ns is not None and waiting_ns is not None:
        text += (
            f", which wait {waiting_ns / 1e6:.1f} ms a step longer in its all-to-alls: with even loads a step would be "
            f"up to {saving_ns / 1e6:.1f} ms shorter"
        )
    return Finding(
        severity="info" if saving_ns is None else "warning",
        rank=imbalance.rank,
        text=text,
        saving_ns=saving_ns,
        evidence={
            "ratio": imbalance.ratio,
            "noise": imbalance.noise,
            "module": module if where else None,
            "parallelism": parallelism,
            "waiting_ns": None if waiting_ns is None else round(waiting_ns),
        },
    )


def _over_modules(loads: Sequence[Load]) -> Load:
    """Return the sums over modules."""
    total: Load = {}
    for load in loads:
        for rank, steps in load.items():
            of_rank = total.setdefault(rank, {})
            for step, size in steps.items():
                of_rank[step] = of_rank.get(step, 0) + size
    return total


def _most_loaded(load: Load) -> _Imbalance | None:
    """Return the rank with the highest load; None where there is no other rank, or nothing is received."""
    common = sorted(frozenset.intersection(*(frozenset(steps) for steps in load.values())))
    if len(load) < 2 or not common:
        return None
    total = {rank: sum(steps[step] for step in common) for rank, steps in load.items()}
    rank = max(total, key=lambda rank: (total[rank], -rank))
    others = {step: sum(load[r][step] for r in load if r != rank) / (len(load) - 1) for step in common}
    some = [step for step in common if load[rank][step] or others[step]]
    ratios = [min(load[rank][step] / others[step], _ALL) if others[step] else _ALL for step in some]
    if not ratios:
        return None
    ratio = statistics.fmean(ratios)
    noise = statistics.stdev(ratios) if len(ratios) > 1 else 0.0
    persistence = sum(value > 1 for value in ratios) / len(ratios)
    significant = (
        len(ratios) > 1
        and ratio >= _UNEVEN
        and persistence >= _PERSISTENT
        and ratio - 1 > noise * max(1.0, _SIGNIFICANT / math.sqrt(len(ratios)))
    )
    return _Imbalance(rank=rank, ratio=ratio, noise=noise, significant=significant)


def _waiting_ns(rank: int, exposed_ns: Mapping[int, Mapping[int, int]]) -> float | None:
    """Return how much longer the other ranks (their median) are exposed to the group's all-to-alls than this rank.

    The mean over steps; None where steps differ as much.
    """
    of_rank = exposed_ns[rank]
    common = frozenset.intersection(*(frozenset(steps) for steps in exposed_ns.values()))
    beyond = [
        statistics.median(steps[step] for other, steps in exposed_ns.items() if other != rank) - of_rank[step]
        for step in sorted(common)
    ]
    if len(beyond) < 2:
        return None
    mean_ns = statistics.fmean(beyond)
    noise_ns = statistics.stdev(beyond) * max(1.0, _SIGNIFICANT / math.sqrt(len(beyond)))
    return mean_ns if mean_ns > noise_ns else None
