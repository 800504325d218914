"""Process groups of this rank, the device mesh, and what the flight recorder remembers of their collectives.

Comes in: torch.distributed's own tables. Goes out: records of the metadata. Nothing here communicates.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any, Literal

from tracekit.model.mesh import parallelism_of_group
from tracekit.model.metadata import CollectiveRecord, Group, Mesh, RankSlice

__all__ = ["GroupTable", "compact_ranks", "describe_mesh", "flight_recorder_dump", "flight_records"]


class GroupTable:
    """The groups this rank belongs to, in order of creation; ids are their positions."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self._ids: dict[int, int] = {}
        self._by_name: dict[str, int] = {}

    @classmethod
    def of_this_rank(cls) -> GroupTable:
        """Every group in torch.distributed's table; empty without a process group."""
        table = cls()
        c10d = getattr(sys.modules.get("torch.distributed"), "distributed_c10d", None)
        if c10d is None or not c10d.is_initialized():
            return table
        world, world_size = c10d._world, c10d.get_world_size()
        for process_group, (backend, _) in world.pg_map.items():
            ranks = c10d.get_process_group_ranks(process_group)
            name = str(world.pg_names.get(process_group, ""))
            desc = str(getattr(process_group, "group_desc", ""))
            table._add(process_group, name, desc, str(backend), compact_ranks(ranks, world_size))
        return table

    def id_of(self, process_group: Any) -> int | None:
        return self._ids.get(id(process_group))

    def id_named(self, name: str) -> int | None:
        return self._by_name.get(name)

    def set_parallelism(self, process_group: Any, parallelism: str) -> None:
        """Say what a group is for, unless its mesh dimension has said so."""
        number = self.id_of(process_group)
        if number is not None and self.groups[number].parallelism is None:
            old = self.groups[number]
            self.groups[number] = Group(
                id=old.id, name=old.name, desc=old.desc, backend=old.backend, parallelism=parallelism, ranks=old.ranks
            )

    def _add(
        self, process_group: Any, name: str, desc: str, backend: str, ranks: list[int] | Literal["world"] | RankSlice
    ) -> None:
        number = len(self.groups)
        self._ids[id(process_group)] = number
        self._by_name[name] = number
        parallelism = parallelism_of_group(desc)
        self.groups.append(
            Group(id=number, name=name, desc=desc, backend=backend, parallelism=parallelism, ranks=ranks)
        )


def compact_ranks(ranks: Iterable[int], world_size: int) -> list[int] | Literal["world"] | RankSlice:
    """`"world"` for all ranks, a slice for an even spacing of four or more, else the list."""
    members = [int(rank) for rank in ranks]
    if members == list(range(world_size)):
        return "world"
    if len(members) >= 4:
        stride = members[1] - members[0]
        if stride > 0 and members == list(range(members[0], members[-1] + 1, stride)):
            return RankSlice(slice=(members[0], members[-1] + 1, stride))
    return members


def describe_mesh(meshes: Iterable[Any]) -> Mesh | None:
    """The mesh with the most dimensions among the program's `DeviceMesh` objects; None if none has names."""
    named = [mesh for mesh in meshes if mesh.mesh_dim_names and mesh.get_coordinate() is not None]
    if not named:
        return None
    mesh = max(named, key=lambda candidate: candidate.ndim)
    return Mesh(
        names=[str(name) for name in mesh.mesh_dim_names],
        shape=[int(size) for size in mesh.shape],
        coordinate=[int(position) for position in mesh.get_coordinate()],
    )


def flight_recorder_dump() -> list[dict[str, Any]]:
    """All entries of torch's flight recorders, of the CPU backends and of NCCL; empty where they are off or absent."""
    bindings = getattr(getattr(sys.modules.get("torch"), "_C", None), "_distributed_c10d", None)
    entries: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):
        dump = getattr(bindings, name, None)
        if dump is None:
            continue
        for entry in json.loads(dump()).get("entries") or ():
            # NCCL's recorder answers to both names in some versions.
            key = (*entry["process_group"], entry.get("op_id"), entry["profiling_name"], entry["time_created_ns"])
            entries[key] = entry
    return list(entries.values())


def flight_records(
    entries: Iterable[dict[str, Any]], groups: GroupTable, start_ns: int, end_ns: int
) -> list[CollectiveRecord]:
    """The collectives created in `[start_ns, end_ns)` on groups that are known, in order of creation."""
    records = []
    for entry in entries:
        group = groups.id_named(str(entry["process_group"][0]))
        created_ns = int(entry["time_created_ns"])
        if group is None or entry.get("is_p2p") or not start_ns <= created_ns < end_ns:
            continue
        records.append(
            CollectiveRecord(
                group=group,
                seq=int(entry["collective_seq_id"]),
                kind=str(entry["profiling_name"]).partition(":")[2] or str(entry["profiling_name"]),
                dtypes=[str(dtype) for dtype in entry.get("input_dtypes") or ()],
                in_shapes=[[int(size) for size in shape] for shape in entry.get("input_sizes") or ()],
                out_shapes=[[int(size) for size in shape] for shape in entry.get("output_sizes") or ()],
                created_ns=created_ns,
            )
        )
    return sorted(records, key=lambda record: record.created_ns)
