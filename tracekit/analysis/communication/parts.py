"""What is kept of one rank's communication: sums by group, kind and phase, and by group."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

from tracekit.model.communication import GroupKey
from tracekit.model.summary import Part

__all__ = ["COMMUNICATION", "GROUP_TIMES", "CommunicationSum", "GroupTime", "merge_sums"]

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class CommunicationSum:
    """Communication of one rank by group, kind and phase, over its complete steps."""

    group: GroupKey | None
    kind: str
    phase: str | None
    count: int
    size_bytes: int | None
    total_ns: int
    exposed_ns: int


@dataclass(frozen=True, kw_only=True)
class GroupTime:
    """Time of one rank's collectives, or of its messages, in one group (None: not known), over its complete steps."""

    group: GroupKey | None
    messages: bool
    total_ns: int
    exposed_ns: int

    @property
    def key(self) -> tuple[GroupKey | None, bool]:
        return self.group, self.messages


def merge_sums(rows: Iterable[S], key: Callable[[S], Hashable], amounts: Sequence[str]) -> tuple[S, ...]:
    """Return the rows of several recordings of one rank with one row for each `key`.

    The fields `amounts` are added up; the recordings do not overlap. A sum with an unknown value is not known.
    """
    merged: dict[Hashable, Any] = {}
    for row in rows:
        seen = merged.get(key(row))
        if seen is None:
            merged[key(row)] = row
        else:
            values = {name: (getattr(seen, name), getattr(row, name)) for name in amounts}
            added = {name: None if None in pair else sum(pair) for name, pair in values.items()}
            merged[key(row)] = replace(seen, **added)
    return tuple(merged.values())


def _merged_communication(windows: Sequence[tuple[CommunicationSum, ...]]) -> tuple[CommunicationSum, ...]:
    amounts = ("count", "size_bytes", "total_ns", "exposed_ns")
    return merge_sums(chain.from_iterable(windows), lambda row: (row.group, row.kind, row.phase), amounts)


def _merged_groups(windows: Sequence[tuple[GroupTime, ...]]) -> tuple[GroupTime, ...]:
    return merge_sums(chain.from_iterable(windows), lambda row: row.key, ("total_ns", "exposed_ns"))


COMMUNICATION: Part[tuple[CommunicationSum, ...]] = Part(
    name="communication", type=tuple[CommunicationSum, ...], empty=tuple, merge=_merged_communication
)
GROUP_TIMES: Part[tuple[GroupTime, ...]] = Part(
    name="group_times", type=tuple[GroupTime, ...], empty=tuple, merge=_merged_groups
)
