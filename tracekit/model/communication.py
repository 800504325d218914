"""One rank's communication events, whatever device they ran on.

A communication event is a kernel on a GPU rank, a `gloo:*` span on a CPU rank. Its kind, group and size come from the
operator that issued it where that is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tracekit.model.events import ABSENT, Bool, Int32, Int64

__all__ = ["DTYPES", "KINDS", "CommunicationEvents", "FlightRecorderMatch", "GroupKey", "Unjoined"]

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
    "unknown",  # communication for certain, but of no known kind
    "unclassified",  # looks like communication, and no rule claims it
)

DTYPES = (
    *("bool", "int8", "uint8", "float8", "int16", "uint16", "float16", "bfloat16", "int32", "uint32", "float32"),
    *("int64", "uint64", "float64", "complex64", "complex128"),
)


@dataclass(frozen=True, kw_only=True, order=True)
class GroupKey:
    """A process group over ranks: its description and its members; `ranks` is empty when they are not known."""

    description: str
    ranks: tuple[int, ...]
    name: str = ""  # differs between ranks for the same dimension of a mesh; tells apart groups of unknown members
    parallelism: str | None = field(default=None, compare=False)

    @property
    def label(self) -> str | None:
        """What people call it: what it is for, else its description, else its name; None if it has none of them."""
        return self.parallelism or self.description or self.name or None


@dataclass(frozen=True, kw_only=True)
class CommunicationEvents:
    """n events in the order of the event table.

    row: int64 [n], into the event table. kind: int32 [n], index into `KINDS`. group: int32 [n], index into `groups`
    or -1. sequence, size_bytes: int64 [n] or -1. dtype: int32 [n], index into `DTYPES` or -1. launch_ns: int64 [n],
    when the host issued it (its own start when that is not known), and launch_track: int32 [n], on which thread, or -1.
    linked: bool [n], whether the issuing operator was found.
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
        """Return the sum over some events, a mask [n] or positions int64 [k].

        None if one is unknown, or there are none.
        """
        size_bytes = self.size_bytes[which]
        return int(size_bytes.sum()) if len(size_bytes) and (size_bytes != ABSENT).all() else None


@dataclass(frozen=True, kw_only=True)
class Unjoined:
    """`count` collectives of one kind that were not joined for one reason. `expected`: a reason that lies in how the
    job was recorded, nothing is wrong.
    """

    kind: str
    reason: str
    count: int
    expected: bool


@dataclass(frozen=True, kw_only=True)
class FlightRecorderMatch:
    """How many collectives the flight recorder lists in a recording, and which of them were not joined to their
    operator and to a span.
    """

    recorded: int
    unjoined: tuple[Unjoined, ...] = ()

    @property
    def joined(self) -> int:
        return self.recorded - sum(unjoined.count for unjoined in self.unjoined)
