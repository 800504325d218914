"""How much each dimension of the mesh (dp, tp, pp, ...) communicates, and which dimension bounds the step.

The result is empty where fewer than two dimensions communicate. The name of a group's dimension is the first of these
that is known:

* the name that the mesh gives it, or that hybrid sharding has, so that dp_shard and dp_replicate are two;
* what the group is for;
* its description, unless that differs from group to group;
* its shape: groups with equally many ranks, equally far apart.

Messages between the stages of a pipeline belong to pp, whatever group they use.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from tracekit.explain.communication import tables
from tracekit.explain.communication.collectives import group_times
from tracekit.explain.communication.tables import GROUP_TIMES, GroupTime
from tracekit.explain.section import Unavailable
from tracekit.findings.communication import mesh_dimension
from tracekit.findings.finding import Finding
from tracekit.findings.thresholds import NOTABLE_SHARE
from tracekit.model.communication import GroupKey
from tracekit.model.names.mesh import parallelism_of_group
from tracekit.model.notes import Severity
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary
from tracekit.model.table import Frame
from tracekit.stats.grouped import grouped

_AMONG_OTHERS = 0.01  # of all communication: a dimension with less does not count
_ALIKE = 0.8  # of the largest: with at least that much, two are equally large
_EXACT = 0.1  # of transfers: only clocks with a smaller error show whether ranks waited

WITHIN_LAYERS = ("tp", "ep", "cp")
_NAMELESS = ("", "undefined", "default_pg")  # torch's descriptions of groups without one
_MOST_GROUPS = 4096  # that are kept: ranks share most of their groups


@dataclass(frozen=True, kw_only=True)
class MeshDimensions:
    """Communication of all dimensions.

    Attributes:
        by_rank: rows of tables.DIMENSIONS.
        by_name: rows of tables.DIMENSIONS_BY_NAME, the most exposed first.
    """

    by_rank: Frame = Frame(tables.DIMENSIONS)
    by_name: Frame = Frame(tables.DIMENSIONS_BY_NAME)
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class _RankUse:
    """What one rank communicates along one dimension, over its complete steps."""

    rank: int
    steps: int
    groups: tuple[GroupKey, ...]
    total_ns: int
    exposed_ns: int


@dataclass(frozen=True, kw_only=True)
class _DimensionSum:
    """A dimension over all ranks; times are means a step.

    Attributes:
        waiting: the part of the time in its collectives for which ranks wait until the last one arrives.
    """

    dimension: Dimension
    uses: Sequence[_RankUse]
    group_size: int | None
    hosts: int | None
    share: float
    exposed_ns: float
    waiting: float | Unavailable

    @property
    def waiting_ratio(self) -> float | None:
        return None if isinstance(self.waiting, Unavailable) else self.waiting

    @property
    def waiting_unknown(self) -> str | None:
        return self.waiting.reason if isinstance(self.waiting, Unavailable) else None


def mesh_dimensions(run: Run) -> MeshDimensions:
    """Return tables over all ranks that completed a step, and a finding when one dimension holds up the steps."""
    uses = _uses(run)
    total_ns = {dimension: sum(use.total_ns for use in of_dimension) for dimension, of_dimension in uses.items()}
    least_ns = _AMONG_OTHERS * sum(total_ns.values())
    if sum(dimension.name is not None and dimension_ns > least_ns for dimension, dimension_ns in total_ns.items()) < 2:
        uses = {}
    hosts = {summary.rank: summary.machine for summary in run.ranks}
    summed = [_dimension_sum(run, dimension, of_dimension, hosts) for dimension, of_dimension in uses.items()]
    summed.sort(key=lambda one: (-one.share, one.dimension.name or ""))
    number = {group: i for i, group in enumerate(run.groups)}
    rows = [
        tables.DIMENSIONS.row(
            use,
            dimension=one.dimension.name,
            inferred=one.dimension.inferred,
            groups=sorted(number[group] for group in use.groups),
            group_size=_size(use.groups),
            hosts=_hosts(use.groups, hosts),
        )
        for one in summed
        for use in one.uses
    ]
    return MeshDimensions(
        by_rank=sorted(rows, key=lambda row: int(str(row["rank"]))),
        by_name=[_row(one) for one in summed],
        findings=tuple(_bounding(run, summed)),
    )


# ---- by rank --------------------------------------------------------------------------------------------------------
def _uses(run: Run) -> dict[Dimension, list[_RankUse]]:
    result: dict[Dimension, list[_RankUse]] = defaultdict(list)
    for summary, dimensions in zip(run.ranks, dimensions_of(run), strict=True):
        for dimension, rows in grouped((dimension, row) for row, dimension in dimensions).items():
            result[dimension].append(
                _RankUse(
                    rank=summary.rank,
                    steps=sum(step.complete for step in summary.steps),
                    groups=tuple(dict.fromkeys(row.group for row in rows if row.group is not None)),
                    total_ns=sum(row.total_ns for row in rows),
                    exposed_ns=sum(row.exposed_ns for row in rows),
                )
            )
    return result


def _size(groups: Sequence[GroupKey]) -> int | None:
    return max((len(group.ranks) for group in groups if group.ranks), default=None)


def _hosts(groups: Sequence[GroupKey], hosts: Mapping[int, str | None]) -> int | None:
    """Return the most hosts that a group spans; None where that of a member is not known."""
    spans = [{hosts.get(rank) for rank in group.ranks} or {None} for group in groups]
    return None if not spans or any(None in span for span in spans) else max(map(len, spans))


# ---- over ranks -----------------------------------------------------------------------------------------------------
def _dimension_sum(
    run: Run, dimension: Dimension, uses: Sequence[_RankUse], hosts: Mapping[int, str | None]
) -> _DimensionSum:
    groups = tuple({group for use in uses for group in use.groups})
    step_ns = sum(step.step_ns for summary in run.ranks for step in summary.steps if step.complete)
    return _DimensionSum(
        dimension=dimension,
        uses=uses,
        group_size=_size(groups),
        hosts=_hosts(groups, hosts),
        share=sum(use.exposed_ns for use in uses) / step_ns,
        exposed_ns=statistics.fmean(use.exposed_ns / use.steps for use in uses),
        waiting=_waiting(run, frozenset(groups)),
    )


def _row(one: _DimensionSum) -> dict[str, object]:
    worst = max(one.uses, key=lambda use: (use.exposed_ns / use.steps, -use.rank))
    return tables.DIMENSIONS_BY_NAME.row(
        one,
        dimension=one.dimension.name,
        inferred=one.dimension.inferred,
        ranks=len(one.uses),
        total_ns=statistics.fmean(use.total_ns / use.steps for use in one.uses),
        worst_rank=worst.rank,
        worst_exposed_ns=worst.exposed_ns / worst.steps,
    )


def _waiting(run: Run, groups: frozenset[GroupKey]) -> float | Unavailable:
    """Return the part of the time in collectives of these groups for which ranks wait until the last one arrives."""
    wait_ns = transfer_ns = members = error_ns = 0
    missing: set[int] = set()
    for matched in run.collectives:
        group = run.groups[matched.group]
        if group not in groups:
            continue
        missing |= set(group.ranks) - set(matched.ranks.tolist())
        if len(matched.ranks) < 2 or not set(group.ranks) <= set(matched.ranks.tolist()):
            continue
        times = group_times(run, matched)
        if times.error_ns is None:
            return Unavailable(reason="the clocks of different hosts were not measured")
        wait_ns += int(times.spun_ns.sum())
        transfer_ns += int(times.transfer_ns.sum()) * len(matched.ranks)
        error_ns += times.error_ns * times.wait_ns.size
        members += times.wait_ns.size
    if not members:
        return Unavailable(reason="ranks are missing in its groups" if missing else "no collectives to compare")
    if wait_ns <= error_ns and error_ns > _EXACT * transfer_ns:
        return Unavailable(reason=f"below the clocks' uncertainty of {error_ns / members / 1e6:.2f} ms")
    return wait_ns / max(wait_ns + transfer_ns, 1)


# ---- the finding ----------------------------------------------------------------------------------------------------
def _bounding(run: Run, summed: Sequence[_DimensionSum]) -> list[Finding]:
    """Find the dimension with most of the exposed communication."""
    if len(summed) < 2 or summed[0].dimension.name is None:
        return []
    first, second = summed[:2]
    alike = second.share >= _ALIKE * first.share
    waits = first.waiting_ratio is not None and first.waiting_ratio >= 0.5
    if waits or first.dimension.parallelism == "pp":
        return []  # what is waited for is the finding, and others name late ranks and the bubbles of a pipeline
    misplaced = _misplaced(first, summed)
    severity: Severity = "info" if misplaced is None or alike else "warning"
    return [
        mesh_dimension(
            severity=severity,
            cause="communication",
            time_ns=int(first.exposed_ns),
            evidence={
                "dimension": first.dimension.name,
                "inferred": first.dimension.inferred,
                "share": first.share,
                "exposed_ns": int(first.exposed_ns),
                "waiting_ratio": first.waiting_ratio,
                "waiting_unknown": first.waiting_unknown,
                "group_size": first.group_size,
                "hosts": first.hosts,
                "alike": alike,
                "next_dimension": second.dimension.name,
                "next_share": second.share,
                "misplaced": None if misplaced is None else misplaced.dimension.name,
                "no_replay": "no replay leaves out what is sent over one dimension",
            },
            conditions=[NOTABLE_SHARE.reached_by(first.share)],
        )
    ]


def _misplaced(first: _DimensionSum, summed: Sequence[_DimensionSum]) -> _DimensionSum | None:
    """Return a dimension within hosts that should change places with `first`, or None.

    `first` communicates in every layer, and so should be the one within hosts.
    """
    if first.dimension.parallelism not in WITHIN_LAYERS or (first.hosts or 1) < 2:
        return None
    others = [one for one in summed if one.hosts == 1 and one.dimension.parallelism in ("dp", "pp")]
    return max(others, key=lambda one: one.group_size or 0, default=None)


# ---- names of dimensions ---------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Dimension:
    """One dimension of the mesh.

    Attributes:
        parallelism: what its groups are for; None where not known.
        inferred: whether that was concluded from names, members or messages.
    """

    name: str | None
    parallelism: str | None
    inferred: bool


def dimensions_of(run: Run) -> list[list[tuple[GroupTime, Dimension]]]:
    """Return the dimension of each of a rank's group times, in the order of the run's ranks."""
    known: dict[GroupKey, str] = {}
    for group in (group for summary in run.ranks for group in summary.groups):
        if group.parallelism is not None:
            known.setdefault(group, group.parallelism)
    several = _of_several_shapes(run, known)
    return [
        [(row, _dimension_of(row, known, several, summary)) for row in summary[GROUP_TIMES]] for summary in run.ranks
    ]


def _of_several_shapes(run: Run, known: Mapping[GroupKey, str]) -> frozenset[str]:
    """Return the uses for which a rank has groups of different shapes.

    These are two dimensions, such as shards and replicas without a mesh.
    """
    shapes: dict[tuple[int, str], set[str | None]] = defaultdict(set)
    for summary in run.ranks:
        for group in {row.group for row in summary[GROUP_TIMES] if not row.messages}:
            if group is not None and group in known:
                shapes[summary.rank, known[group]].add(_shape(group.ranks))
    return frozenset(use for (_, use), different in shapes.items() if len(different) > 1)


def _dimension_of(
    row: GroupTime, known: Mapping[GroupKey, str], several: frozenset[str], summary: RankSummary
) -> Dimension:
    group = row.group
    use = None if group is None else known.get(group)
    if row.messages and summary.pipeline is not None and use not in WITHIN_LAYERS:
        return Dimension(name="pp", parallelism="pp", inferred=summary.run_id is None)
    if group is None:
        return Dimension(name=None, parallelism=None, inferred=False)
    description = group.description.partition("#")[0]
    if group.dimension is not None:
        return Dimension(name=group.dimension, parallelism=parallelism_of_group(description) or use, inferred=False)
    if use is not None:
        shape = _shape(group.ranks) if use in several else None
        name = f"{use} ({shape})" if shape is not None else use
        return Dimension(name=name, parallelism=use, inferred=summary.run_id is None)
    # A description with a number names one group of a dimension, not the dimension.
    shape = _shape(group.ranks) if description in _NAMELESS or re.search(r"\d", description) else None
    return Dimension(name=shape or description or group.name or None, parallelism=None, inferred=shape is not None)


@lru_cache(_MOST_GROUPS)
def _shape(ranks: tuple[int, ...]) -> str | None:
    """Return a name for groups along one dimension of a grid: equally many ranks, equally far apart."""
    strides = {after - before for before, after in pairwise(ranks)}
    return f"{len(ranks)} ranks, stride {strides.pop()}" if len(strides) == 1 else None
