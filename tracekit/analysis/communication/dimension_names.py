"""Which dimension of the mesh (dp, tp, pp, ...) the communication of a rank belongs to.

The name of a group's dimension is the first of these that is known:

* the name that the mesh gives it, or that hybrid sharding has, so that dp_shard and dp_replicate are two;
* what the group is for;
* its description, unless that differs from group to group;
* its shape: groups with equally many ranks, equally far apart.

Messages between the stages of a pipeline belong to pp, whatever group they use.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from tracekit.analysis.communication.parts import GROUP_TIMES, GroupTime
from tracekit.model.communication import GroupKey
from tracekit.model.names.mesh import parallelism_of_group
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

WITHIN_LAYERS = ("tp", "ep", "cp")
_NAMELESS = ("", "undefined", "default_pg")  # torch's descriptions of groups without one
_MOST_GROUPS = 4096  # that are kept: ranks share most of their groups

__all__ = ["WITHIN_LAYERS", "Dimension", "dimensions_of"]


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
