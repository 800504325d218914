"""Point-to-point messages: the sends and receives of one rank, and which send met which receive."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.events import Bool, Int32, Int64

__all__ = [
    "MatchedMessages",
    "Messages",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Messages(Columnar):
    """n sends and receives of one rank in order of issue. Times are on its wall clock; -1 means not known.

    Attributes:
        step: -1 if issued outside of the recorded steps, int64 [n].
        group: index into the rank's groups, int32 [n].
        peer: global rank, int32 [n]; -1 where the trace does not name it.
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
