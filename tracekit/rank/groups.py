"""Which process group a collective belongs to, as a key that is the same on all ranks.

A group's name differs between ranks; its key is its description and its members. The groups also show which kinds of
parallelism a trace has, as slugs of the JSON contract.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tracekit.model.communication import GroupKey
from tracekit.model.events import ABSENT, DecodedTrace, TraceHeader
from tracekit.model.metadata import CaptureMetadata, Group, RankSlice
from tracekit.model.names.mesh import dimension_of_group, parallelism_of_group

_RANK_DIGITS = 7  # of the most ranks of a job

_LABELS = (
    ("ddp", ("DistributedDataParallel.", "torch.distributed.ddp.reducer::")),
    ("dp", ("DataParallel.",)),
    ("fsdp1", ("FullyShardedDataParallel.",)),
    ("fsdp2", ("FSDP::",)),
    ("tp", ("Redistribute",)),
    ("pp", ("PP:", "tracekit.pp:")),
    ("zero1", ("Optimizer.step#ZeroRedundancyOptimizer.",)),
    ("zero3", ("PreBackwardFunction",)),  # a node of DeepSpeed's, which gathers a module's parameters
)


class GroupResolver:
    """Finds the group that a collective names, as an index into `groups()`."""

    def __init__(self, header: TraceHeader) -> None:
        self._keys: dict[GroupKey, int] = {}
        self._by_name: dict[str, int] = {}
        self._by_id: dict[int, int] = {}
        metadata = header.metadata
        self._own_rank = header.rank if metadata is None else metadata.rank
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
                    parallelism=parallelism_of_group(process_group.description),
                    dimension=dimension_of_group(process_group.description),
                )
                self._by_name[process_group.name] = self._add(key)

    def groups(self) -> tuple[GroupKey, ...]:
        return tuple(self._keys)

    def only_group(self) -> int | None:
        """Return the index of the only group; None when there are several or none."""
        return 0 if len(self._keys) == 1 else None

    def only_group_for(self, parallelism: str) -> int | None:
        """Return the index of this rank's only group for a parallelism; None when there are several or none."""
        found = [
            index
            for key, index in self._keys.items()
            if key.parallelism == parallelism and (self._own_rank is None or self._own_rank in key.ranks)
        ]
        return found[0] if len(found) == 1 else None

    def by_id(self, group_id: int) -> int:
        """Return the index of the group with the id `group_id` in tracekit's metadata, or ABSENT."""
        return self._by_id.get(group_id, ABSENT)

    def with_peer(self, place: int) -> int:
        """Return the index of the only group of this rank in which another rank has this place; ABSENT if not exactly
        one has.
        """
        indexes = [
            index
            for key, index in self._keys.items()
            if self._own_rank in key.ranks and place < len(key.ranks) and key.ranks[place] != self._own_rank
        ]
        return indexes[0] if len(indexes) == 1 else ABSENT

    def members(self, index: int) -> int | None:
        """Return how many ranks the group has; None when they are not known."""
        return None if index == ABSENT else len(tuple(self._keys)[index].ranks) or None

    def index(self, name: str, description: str, ranks: str) -> int:
        """Return the index of the group that a collective's arguments name; ABSENT when they name none."""
        if name and name in self._by_name:
            return self._by_name[name]
        members = _members(ranks)
        if not (name or description or members):
            return ABSENT
        key = GroupKey(
            description=description,
            ranks=members,
            name="" if members else name,
            parallelism=parallelism_of_group(description),
            dimension=dimension_of_group(description),
        )
        return self._add(key)

    def _add(self, key: GroupKey) -> int:
        return self._keys.setdefault(key, len(self._keys))


def _members(ranks: str) -> tuple[int, ...]:
    """Return the ranks in `[0, 1]`; none if the list is shortened or is no list of ranks."""
    numbers = re.findall(r"[0-9]+", ranks)
    return () if "..." in ranks or any(len(n) > _RANK_DIGITS for n in numbers) else tuple(map(int, numbers))


def key_of_recorded_group(group: Group, metadata: CaptureMetadata) -> GroupKey:
    """Return the key of a group that the capture recorded."""
    ranks: Iterable[int]
    if group.ranks == "world":
        ranks = range(metadata.world_size)
    elif isinstance(group.ranks, RankSlice):
        ranks = range(*group.ranks.slice)
    else:
        assert not isinstance(group.ranks, str)
        ranks = group.ranks
    return GroupKey(
        description=group.desc,
        ranks=tuple(ranks),
        parallelism=group.parallelism or parallelism_of_group(group.desc),
        dimension=dimension_of_group(group.desc) or group.dimension,
    )


def strategies_of(trace: DecodedTrace) -> tuple[tuple[str, ...], bool]:
    """Return the strategies, and whether they are inferred.

    They come from tracekit's metadata, but for an optimizer that shards its states, which a label of torch shows.
    Without metadata they are inferred from such labels.
    """
    metadata = trace.header.metadata
    labels_of_any = tuple(label for _, labels in _LABELS for label in labels)
    names = [name for name in trace.events.strings if name.startswith(labels_of_any)]
    labelled = tuple(slug for slug, labels in _LABELS if any(name.startswith(labels) for name in names))
    if metadata is not None and metadata.strategies:
        return tuple(sorted({*metadata.strategies, *({"zero1"} & set(labelled))})), False
    return labelled, True
