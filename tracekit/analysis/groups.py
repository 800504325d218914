"""Process groups as a rank names them, to keys that are the same on all ranks.

Comes in: what a trace's header and metadata say about groups, and the names at single collectives. Goes out: indexes
into a list of `GroupKey`. A group is (description, members): its name differs between ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tracekit.model.communication import GroupKey
from tracekit.model.events import ABSENT, TraceHeader
from tracekit.model.metadata import CaptureMetadata, Group, RankSlice

__all__ = ["GroupResolver", "key_of_recorded_group"]

_MESH_DIMENSION = {
    "dp": "dp",
    "tp": "tp",
    "pp": "pp",
    "ep": "ep",
    "cp": "cp",
    "fsdp": "dp",
    "data": "dp",
    "tensor": "tp",
}
_MESH_DIMENSION |= {
    "pipeline": "pp",
    "pipe": "pp",
    "expert": "ep",
    "context": "cp",
    "dp_shard": "dp",
    "dp_replicate": "dp",
}


class GroupResolver:
    """Turns the ways a collective names its group into an index into `groups()`."""

    def __init__(self, header: TraceHeader) -> None:
        self._keys: dict[GroupKey, int] = {}
        self._by_name: dict[str, int] = {}
        self._by_id: dict[int, int] = {}
        metadata = header.metadata
        if metadata is not None:
            for group in metadata.groups:
                index = self._add(key_of_recorded_group(group, metadata))
                self._by_name[group.name] = self._by_id[group.id] = index
        for process_group in header.process_groups:
            ranks = process_group.ranks
            if process_group.name not in self._by_name:
                key = GroupKey(
                    description=process_group.description,
                    ranks=ranks,
                    parallelism=_parallelism(process_group.description),
                )
                self._by_name[process_group.name] = self._add(key)

    def groups(self) -> tuple[GroupKey, ...]:
        return tuple(self._keys)

    def only_group(self) -> int | None:
        """The one group there is; None when a collective could belong to several."""
        return 0 if len(self._keys) == 1 else None

    def by_id(self, group_id: int) -> int:
        """Index of the group that tracekit's metadata calls `group_id`, or ABSENT."""
        return self._by_id.get(group_id, ABSENT)

    def index(self, name: str, description: str, ranks: str) -> int:
        """Index of the group that a collective's arguments name, or ABSENT when they name none."""
        if name and name in self._by_name:
            return self._by_name[name]
        members = tuple(int(r) for r in re.findall(r"\d+", ranks)) if "..." not in ranks else ()
        if not (name or description or members):
            return ABSENT
        key = GroupKey(
            description=description, ranks=members, name="" if members else name, parallelism=_parallelism(description)
        )
        return self._add(key)

    def _add(self, key: GroupKey) -> int:
        return self._keys.setdefault(key, len(self._keys))


def key_of_recorded_group(group: Group, metadata: CaptureMetadata) -> GroupKey:
    ranks: Iterable[int]
    if group.ranks == "world":
        ranks = range(metadata.world_size)
    elif isinstance(group.ranks, RankSlice):
        ranks = range(*group.ranks.slice)
    else:
        assert not isinstance(group.ranks, str)
        ranks = group.ranks
    return GroupKey(
        description=group.desc, ranks=tuple(ranks), parallelism=group.parallelism or _parallelism(group.desc)
    )


def _parallelism(description: str) -> str | None:
    """The dimension of a device mesh that a group's description names (`mesh_tp`), if it is one of the usual."""
    return _MESH_DIMENSION.get(description.removeprefix("mesh_")) if description.startswith("mesh_") else None
