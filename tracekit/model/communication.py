"""The communication events of one rank, on any device.

A communication event is a kernel on a GPU rank and a `gloo:*` span on a CPU rank. Kind, group and size come from the
operator that issued it, if that is known. `bus_factor` makes the bandwidths of different collectives comparable.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tracekit.model.events import ABSENT, Bool, Int32, Int64

__all__ = [
    "DTYPES",
    "KINDS",
    "SYNCHRONISING",
    "CommunicationEvents",
    "FlightRecorderMatch",
    "GroupKey",
    "Unjoined",
    "bus_factor",
]

KINDS = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send",
    "recv",
    "send_recv",
    "barrier",
    "dispatch",
    "combine",
    "peer_copy",
    "unknown",  # certainly communication, but of no known kind
    "unclassified",  # looks like communication, but no rule matches
)

SYNCHRONISING: Bool = np.isin(KINDS, ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier"))
"""Whether no rank leaves a collective of a kind before all others have entered it, bool [KINDS]."""

DTYPES = (
    *("bool", "int8", "uint8", "float8", "int16", "uint16", "float16", "bfloat16", "int32", "uint32", "float32"),
    *("int64", "uint64", "float64", "complex64", "complex128"),
)


@dataclass(frozen=True, kw_only=True, order=True)
class GroupKey:
    """A process group, named alike on all ranks: by its description and members.

    Attributes:
        ranks: empty when the members are not known.
        name: of groups with unknown members, to tell them apart; it differs between ranks for one dimension of a mesh.
        parallelism: dp, tp, pp, ep or cp, if known.
        dimension: what the mesh calls its dimension, such as dp_shard; of hybrid sharding without names of a mesh
            dp_shard or dp_replicate; None where no name is known.
    """

    description: str
    ranks: tuple[int, ...]
    name: str = ""  # set where the members are not known
    parallelism: str | None = field(default=None, compare=False)
    dimension: str | None = field(default=None, compare=False)

    @property
    def label(self) -> str | None:
        """Return what to call the group: its dimension, else its parallelism, its description or its name; None without
        any of them.
        """
        return self.dimension or self.parallelism or self.description or self.name or None


@dataclass(frozen=True, kw_only=True, eq=False)
class CommunicationEvents:
    """n events in the order of the event table.

    Attributes:
        groups: the groups that `group` refers to.
        row: in the event table, int64 [n].
        start_ns: int64 [n].
        end_ns: int64 [n].
        kind: index into `KINDS`, int32 [n].
        group: index into `groups`, or -1, int32 [n].
        sequence: the sequence id in the group, or -1, int64 [n].
        size_bytes: or -1, int64 [n].
        dtype: index into `DTYPES`, or -1, int32 [n].
        launch_ns: when the host issued it; its start if that is not known, int64 [n].
        launch_track: the thread that issued it, or -1, int32 [n].
        linked: whether the issuing operator was found, bool [n].
    """

    groups: tuple[GroupKey, ...]
    row: Int64
    start_ns: Int64
    end_ns: Int64
    kind: Int32
    group: Int32
    sequence: Int64
    size_bytes: Int64
    dtype: Int32
    launch_ns: Int64
    launch_track: Int32
    linked: Bool

    def __len__(self) -> int:
        return len(self.row)

    def total_size_bytes(self, which: Int64 | Bool) -> int | None:
        """Return the sum over some events, given as a mask [n] or positions int64 [k].

        None if a size is not known, or there are no events.
        """
        size_bytes = self.size_bytes[which]
        return int(size_bytes.sum()) if len(size_bytes) and (size_bytes != ABSENT).all() else None


@dataclass(frozen=True, kw_only=True)
class Unjoined:
    """Collectives of one kind that were not joined to an event, for one reason.

    Attributes:
        expected: the reason lies in how the job was recorded, and nothing is wrong.
    """

    kind: str
    reason: str
    count: int
    expected: bool


@dataclass(frozen=True, kw_only=True)
class FlightRecorderMatch:
    """How the collectives that the flight recorder lists were joined to their operators and spans.

    Attributes:
        recorded: how many the flight recorder lists.
        unjoined: those without operator or span.
    """

    recorded: int
    unjoined: tuple[Unjoined, ...] = ()

    @property
    def joined(self) -> int:
        return self.recorded - sum(unjoined.count for unjoined in self.unjoined)


def bus_factor(kind: str, ranks: int) -> float:
    """Return busbw / algbw in a group of `ranks` (NVIDIA nccl-tests, PERFORMANCE.md)."""
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if kind in {"reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"}:
        return (ranks - 1) / ranks
    return 1.0
