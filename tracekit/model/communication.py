"""What is known of one rank's communication: events, collectives and messages, and how they are matched over ranks.

A communication event is a kernel on a GPU rank and a `gloo:*` span on a CPU rank. Kind, group and size come from the
operator that issued it, if that is known. `bus_factor` makes the bandwidths of different collectives comparable.

`MatchedGroup` is dense, so that questions about instances are array operations. A rank arrives at an instance when it
is ready for it. On the run's clock, the wait of rank r is `max arrival - arrival_r`. The transfer is from the last
start to the last end. From the last arrival to the last start the collective is queued.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.events import ABSENT, Bool, Int32, Int64

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


FIRST_PLACE = -2


@dataclass(frozen=True, kw_only=True, eq=False)
class Messages(Columnar):
    """n sends and receives of one rank in order of issue. Times are on its wall clock; -1 means not known.

    Attributes:
        step: -1 if issued outside of the recorded steps, int64 [n].
        group: index into the rank's groups, int32 [n].
        peer: global rank, int32 [n]; -1 where the trace does not name it. Below, it is `FIRST_PLACE` less the peer's
            place in a group, which the trace does not name.
        tag: int64 [n], or -1 where the backend has none (NCCL).
        is_send: bool [n].
        issue_ns: int64 [n].
        ready_ns: when the rank reached it, int64 [n]: on a GPU rank the launch, or the end of the compute that its
            kernel waits for. The kernel may begin later, because it is queued behind other communication.
        start_ns: of the communication event, int64 [n].
        end_ns: of the communication event, int64 [n]. A batch of messages has one event. On a CPU rank it is when the
            call that waited for the message returned, which may be long after the message was over.
        awaited_ns: since when the rank had waited for it then, int64 [n], or -1 where it had not waited. -1 on a GPU
            rank, whose kernels wait.
        size_bytes: int64 [n].
        after: the kind of the pass or action in or after which it was issued in its step, int32 [n], index into
            `ACTION_KINDS`, or -1. If its peer is not named: the kind of the one that it is the result of.
        before: the kind of the pass or action in or before which it was issued in its step, int32 [n], or -1. If its
            peer is not named: the kind of the one that it is the input of.
    """

    step: Int64
    group: Int32
    peer: Int32
    tag: Int64
    is_send: Bool
    issue_ns: Int64
    ready_ns: Int64
    start_ns: Int64
    end_ns: Int64
    awaited_ns: Int64
    size_bytes: Int64
    after: Int32
    before: Int32

    @property
    def arrival_ns(self) -> Int64:
        """Return when the rank came to each message, int64 [n]: to a receive on a CPU when it waited for it."""
        return np.where(self.is_send, self.ready_ns, np.maximum(self.ready_ns, self.awaited_ns))


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedMessages(Columnar):
    """m messages over ranks, each a send and its receive.

    Attributes:
        source: global rank, int32 [m].
        destination: global rank, int32 [m].
        send: row in the source's `RankSummary.messages`, int64 [m].
        recv: row in the destination's `RankSummary.messages`, int64 [m].
        step: of the send, int64 [m].
    """

    source: Int32
    destination: Int32
    send: Int64
    recv: Int64
    step: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class Collectives(Columnar):
    """n collectives of one rank, in order of launch; sends and receives are in `Messages`. -1 means not known.

    Before each collective lies a segment, from the last release of the rank until it is ready. A release is the end of
    a collective or receive that the rank waited for; before the first one it is the recording's beginning. Loading data
    between two steps lies inside a segment.

    Attributes:
        group: index into the rank's groups, int32 [n].
        kind: index into `KINDS`, int32 [n].
        sequence: the sequence id in the group, int64 [n].
        step: int64 [n].
        size_bytes: int64 [n].
        dtype: index into `DTYPES`, int32 [n].
        launch_ns: on the rank's wall clock, as all times, int64 [n].
        ready_ns: when the rank was ready: a GPU rank when the kernel was launched and what it depends on had ended; a
            CPU rank at the start. int64 [n].
        start_ns: int64 [n].
        end_ns: int64 [n].
        waited_ns: for how long the rank waited since it was ready, int64 [n]; 0 if a device computed at the end.
        released_ns: when the segment began, int64 [n].
        queued_ns: the end of earlier communication that it queued behind, or -1, int64 [n]. A GPU rank was ready before
            that end; a CPU rank had launched it before that end, and computed on.
        compute_ns: how long the rank computed in the segment, int64 [n].
        data_ns: how long the rank loaded data in the segment, int64 [n].
        operations: how many compute operations or kernels the host had begun or launched in the recording before it,
            int64 [n]. Differences between collectives count what a part of the program consists of.
        work_ns: how long these take: of kernels the sum, of operators the time that they cover. int64 [n].
        work: a hash of their names and shapes that does not depend on their order, int64 [n]; differences likewise.
    """

    group: Int32
    kind: Int32
    sequence: Int64
    step: Int64
    size_bytes: Int64
    dtype: Int32
    launch_ns: Int64
    ready_ns: Int64
    start_ns: Int64
    end_ns: Int64
    waited_ns: Int64
    released_ns: Int64
    queued_ns: Int64
    compute_ns: Int64
    data_ns: Int64
    operations: Int64
    work_ns: Int64
    work: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedGroup:
    """m instances of one process group's collectives, with k ranks present.

    Attributes:
        group: index into the run's groups.
        matched_by: by sequence id or by order.
        ranks: ascending, int32 [k].
        row: in each rank's `Collectives`, or -1 where the rank lacks the instance, int64 [k, m].
        kind: index into `KINDS`, int32 [m].
        step: int64 [m].
        size_bytes: or -1, int64 [m].
    """

    group: int
    matched_by: Literal["seq", "order"]
    ranks: Int32
    row: Int64
    kind: Int32
    step: Int64
    size_bytes: Int64
