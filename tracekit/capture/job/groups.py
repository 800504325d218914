"""Lists the process groups of this rank from torch.distributed's tables, without communication."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from tracekit.model.metadata import Group, RankSlice
from tracekit.model.names.mesh import parallelism_of_group

_GLOO_THREAD_NAME = "pt_gloo_runloop"
_GLOO_THREADS = 2  # of each group
_TASKS = Path("/proc/self/task")
_START_TIME = 19  # proc(5): field 22 of `stat`, of which the first two are the id and the name
DESTROYED_GROUP = -1  # the id of a group that no longer exists

__all__ = ["DESTROYED_GROUP", "GroupTable", "backend_name", "compact_ranks", "gloo_threads"]


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
            self.groups[number] = msgspec.structs.replace(self.groups[number], parallelism=parallelism)

    def set_dimensions_of_hsdp(self, shard_group: Any, replicate_group: Any) -> None:
        """Name the two dimensions of hybrid sharding, both of which are data parallel."""
        for process_group, dimension in ((shard_group, "dp_shard"), (replicate_group, "dp_replicate")):
            number = self.id_of(process_group)
            if number is not None:
                self.groups[number] = msgspec.structs.replace(self.groups[number], dimension=dimension)

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
            msgspec.structs.replace(group, ranks=compact_ranks(range(world_size), job_size))
            if group.ranks == "world"
            else group
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
            for place, number in enumerate(gloo):
                group_threads = threads[place * _GLOO_THREADS : (place + 1) * _GLOO_THREADS]
                self.groups[number] = msgspec.structs.replace(self.groups[number], threads=group_threads)


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
