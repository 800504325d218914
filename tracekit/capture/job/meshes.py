"""Finds the device mesh that describes a training run, and this rank's coordinate in it.

Without a `DeviceMesh` that covers all ranks, process groups that form a grid make one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tracekit.capture.job.groups import GroupTable
from tracekit.model.metadata import Group, Mesh, RankSlice
from tracekit.model.names.mesh import parallelism_of_dimension

__all__ = ["Dimension", "Layout", "choose_mesh", "find_layouts"]

# Without "ep": expert groups usually overlap with the others, so they form no dimension.
_GRID = ("pp", "dp_replicate", "dp", "dp_shard", "cp", "tp")


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """One dimension of a mesh.

    Attributes:
        name: of the dimension, if it has one.
        size: number of ranks along it.
        position: of this rank along it.
        group: id of the process group along it.
    """

    name: str | None
    size: int
    position: int
    group: int | None


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The dimensions of a mesh that contains this rank, the outermost first."""

    dimensions: tuple[Dimension, ...]

    @property
    def ranks(self) -> int:
        return math.prod(dimension.size for dimension in self.dimensions)

    @property
    def rating(self) -> tuple[int, int, int, bool]:
        """A sort key: more ranks, then more dimensions, then names describe the run better."""
        wide = sum(dimension.size > 1 for dimension in self.dimensions)
        return self.ranks, wide, len(self.dimensions), all(d.name is not None for d in self.dimensions)


def find_layouts(meshes: Iterable[Any], groups: GroupTable) -> list[Layout]:
    """Return the layouts of the meshes that contain this rank, in the given order.

    Sets the parallelism of groups along named dimensions in `groups`.
    """
    layouts = []
    for mesh in meshes:
        coordinate = mesh.get_coordinate()
        if coordinate is None:
            continue
        names = mesh.mesh_dim_names or (None,) * mesh.ndim
        dimensions = []
        for number, (name, size, position) in enumerate(zip(names, mesh.shape, coordinate, strict=True)):
            process_group = _group_along(mesh, number)
            parallelism = None if name is None else parallelism_of_dimension(str(name))
            if process_group is not None and parallelism is not None:
                groups.set_parallelism(process_group, parallelism)
            dimensions.append(
                Dimension(
                    name=None if name is None else str(name),
                    size=int(size),
                    position=int(position),
                    group=None if process_group is None else groups.id_of(process_group),
                )
            )
        layouts.append(Layout(dimensions=tuple(dimensions)))
    return layouts


def choose_mesh(layouts: Sequence[Layout], groups: Sequence[Group], rank: int, world_size: int) -> Mesh | None:
    """Return the mesh that describes the run best, or None; the parallelism of `groups` must be known."""
    grid = _grid_of_groups(groups, rank, world_size)
    best = max([*layouts, *grid], key=lambda layout: layout.rating, default=None)
    if best is None:
        return None
    names: list[str] = []
    for number, dimension in enumerate(best.dimensions):
        use = None if dimension.group is None else _dimension_of(groups[dimension.group])
        name = dimension.name or use or f"dim{number}"
        names.append(f"{name}_{number}" if name in names else name)
    return Mesh(
        names=names,
        shape=[dimension.size for dimension in best.dimensions],
        coordinate=[dimension.position for dimension in best.dimensions],
    )


def _group_along(mesh: Any, number: int) -> Any | None:
    """Return the process group of a dimension; None for a mesh without groups."""
    try:
        return mesh.get_group(number)
    except (RuntimeError, ValueError, KeyError, AttributeError):
        return None


def _grid_of_groups(groups: Sequence[Group], rank: int, world_size: int) -> list[Layout]:
    """Return the grid that groups of different parallelism form around this rank, as a list of one, or none.

    They form one if together they span the whole world, and any two have only this rank in common. Such groups come
    from several meshes of one dimension, or are created by hand.
    """
    members: dict[str, dict[tuple[int, ...], int]] = {}
    for group in groups:
        ranks = _members(group, world_size)
        use = _dimension_of(group)
        if use in _GRID and 1 < len(ranks) < world_size:
            members.setdefault(use, {}).setdefault(ranks, group.id)
    if len(members) < 2:
        return []
    for combination in itertools.product(*(members[use].items() for use in _GRID if use in members)):
        together = set[int]().union(*(ranks for ranks, _ in combination))
        apart = len(together) - 1 == sum(len(ranks) - 1 for ranks, _ in combination)
        if apart and math.prod(len(ranks) for ranks, _ in combination) == world_size:
            # Along the outermost dimension ranks are furthest apart.
            outermost_first = sorted(combination, key=lambda item: item[0][0] - item[0][1])
            return [
                Layout(
                    dimensions=tuple(
                        Dimension(name=None, size=len(ranks), position=ranks.index(rank), group=group)
                        for ranks, group in outermost_first
                    )
                )
            ]
    return []


def _dimension_of(group: Group) -> str | None:
    return group.dimension or group.parallelism


def _members(group: Group, world_size: int) -> tuple[int, ...]:
    if group.ranks == "world":
        return tuple(range(world_size))
    if isinstance(group.ranks, RankSlice):
        return tuple(range(*group.ranks.slice))
    assert not isinstance(group.ranks, str)
    return tuple(group.ranks)
