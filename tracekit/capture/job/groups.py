"""Which process groups this rank is in, and which device mesh describes the job.

Groups are read from the tables of torch.distributed, without communication. The mesh is a `DeviceMesh` that covers all
ranks. Without one, process groups that form a grid make a mesh.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tracekit.model.metadata import Group, Mesh, RankSlice
from tracekit.model.names.mesh import parallelism_of_dimension, parallelism_of_group

_GLOO_THREAD_NAME = "pt_gloo_runloop"
_GLOO_THREADS = 2  # of each group
_TASKS = Path("/proc/self/task")
_START_TIME = 19  # proc(5): field 22 of `stat`, of which the first two are the id and the name
DESTROYED_GROUP = -1  # the id of a group that no longer exists

# Without "ep": expert groups usually overlap with the others, so they form no dimension.
_GRID = ("pp", "dp_replicate", "dp", "dp_shard", "cp", "tp")


class GroupTable:
    """The groups of this rank, in order of creation; a group's id is its position."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.world_size: int | None = None
        self._ids: dict[int, int] = {}
        self._by_name: dict[str, int] = {}

    @classmethod
    def of_this_rank(cls) -> GroupTable:
        """Return every group in torch.distributed's table; an empty table without a process group."""
        table = cls()
        c10d = getattr(sys.modules.get("torch.distributed"), "distributed_c10d", None)
        if c10d is None or not c10d.is_initialized():
            return table
        world, world_size = c10d._world, c10d.get_world_size()
        table.world_size = world_size
        for process_group, (backend, _) in world.pg_map.items():
            config = world.pg_backend_config.get(process_group, "")
            ranks = c10d.get_process_group_ranks(process_group)
            name = str(world.pg_names.get(process_group, ""))
            desc = str(getattr(process_group, "group_desc", ""))
            table._add(process_group, name, desc, backend_name(config, backend), compact_ranks(ranks, world_size))
        table._find_threads()
        return table

    def id_of(self, process_group: Any) -> int | None:
        number = self._ids.get(id(process_group))
        # A mesh may return another Python object for the same group.
        return self.id_named(str(getattr(process_group, "group_name", ""))) if number is None else number

    def id_named(self, name: str) -> int | None:
        return self._by_name.get(name)

    def set_parallelism(self, process_group: Any, parallelism: str) -> None:
        """Set the parallelism that a group is for, unless it is known already."""
        number = self.id_of(process_group)
        if number is not None:
            self.set_parallelism_of(number, parallelism)

    def set_parallelism_of(self, number: int, parallelism: str) -> None:
        """Do the same for the group of this id; does nothing if there is none."""
        if 0 <= number < len(self.groups) and self.groups[number].parallelism is None:
            self.groups[number] = replace(self.groups[number], parallelism=parallelism)

    def set_dimensions_of_hsdp(self, shard_group: Any, replicate_group: Any) -> None:
        """Name the two dimensions of hybrid sharding, both of which are data parallel."""
        for process_group, dimension in ((shard_group, "dp_shard"), (replicate_group, "dp_replicate")):
            number = self.id_of(process_group)
            if number is not None:
                self.groups[number] = replace(self.groups[number], dimension=dimension)

    def multi_rank_groups(self) -> list[Group]:
        """Return the groups of more than one rank."""
        return [
            group
            for group in self.groups
            if (
                self.world_size != 1 if group.ranks == "world" else not isinstance(group.ranks, list) or group.ranks[1:]
            )
        ]

    def extend_to_job(self, job_size: int) -> None:
        """Adapt to a job with more processes than torch's world: RPC workers outside of all process groups."""
        world_size = self.world_size
        if world_size is None or world_size >= job_size:
            return
        self.world_size = job_size
        self.groups = [
            replace(group, ranks=compact_ranks(range(world_size), job_size)) if group.ranks == "world" else group
            for group in self.groups
        ]

    def _add(
        self, process_group: Any, name: str, desc: str, backend: str, ranks: list[int] | Literal["world"] | RankSlice
    ) -> None:
        number = len(self.groups)
        self._ids[id(process_group)] = number
        self._by_name[name] = number
        parallelism = parallelism_of_group(desc)
        # Ranks are compared by a group's description and members, and create groups in the same order.
        duplicates = sum(group.desc.partition("#")[0] == desc and group.ranks == ranks for group in self.groups)
        desc = f"{desc}#{duplicates + 1}" if duplicates else desc
        self.groups.append(
            Group(id=number, name=name, desc=desc, backend=backend, parallelism=parallelism, ranks=ranks)
        )

    def _find_threads(self) -> None:
        """Assign Gloo's threads to groups: they start and end with their group, so both are in the same order."""
        gloo = [number for number, group in enumerate(self.groups) if "gloo" in group.backend]
        threads = gloo_threads()
        if gloo and len(threads) == len(gloo) * _GLOO_THREADS:
            for index, number in enumerate(gloo):
                group_threads = threads[index * _GLOO_THREADS : (index + 1) * _GLOO_THREADS]
                self.groups[number] = replace(self.groups[number], threads=group_threads)


def gloo_threads(tasks: Path = _TASKS) -> list[int]:
    """Return this process's threads that run Gloo's collectives, in order of creation; empty without /proc.

    Ids of threads start again from small ones when the largest is taken. So the order is that of their start times, in
    ticks of 10 ms, and within a tick that of the kernel's list, to which it appends new threads.
    """
    started: list[tuple[int, int]] = []
    with suppress(OSError):
        for name in os.listdir(tasks):  # noqa: PTH208 - in the kernel's order
            try:
                if (tasks / name / "comm").read_text(encoding="ascii").strip() == _GLOO_THREAD_NAME:
                    behind_name = (tasks / name / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
                    started.append((int(behind_name[_START_TIME]), int(name)))
            except (OSError, ValueError, IndexError):  # it has just ended
                continue
    return [thread for _, thread in sorted(started, key=lambda each: each[0])]


def backend_name(config: object, named: object) -> str:
    """Return the backend of a group: `nccl`, or `cpu:gloo,cuda:nccl` where devices have different ones.

    `config` is torch's table of devices and backends as text. `named` is what the program asked for, which is
    "undefined" if it left the choice to torch.
    """
    backends = {entry.partition(":")[2] for entry in str(config).split(",") if ":" in entry}
    return str(config) if len(backends) > 1 else next(iter(backends), str(named))


def compact_ranks(ranks: Iterable[int], world_size: int) -> list[int] | Literal["world"] | RankSlice:
    """Return `"world"` for all ranks, a slice for four or more evenly spaced ranks, else the list."""
    members = [int(rank) for rank in ranks]
    if members == list(range(world_size)):
        return "world"
    if len(members) >= 4:
        stride = members[1] - members[0]
        if stride > 0 and members == list(range(members[0], members[-1] + 1, stride)):
            return RankSlice(slice=(members[0], members[-1] + 1, stride))
    return members


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
