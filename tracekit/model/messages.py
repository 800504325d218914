"""Point-to-point messages: the sends and receives of one rank, and which send met which receive."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.events import ABSENT, Bool, Int32, Int64

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
        peer: global rank, int32 [n].
        tag: int64 [n].
        is_send: bool [n].
        issue_ns: int64 [n].
        start_ns: of the communication event, int64 [n].
        end_ns: of the communication event, int64 [n].
        size_bytes: int64 [n].
        after: the kind of the pass or action in or after which it was issued in its step, int32 [n], index into
            `ACTION_KINDS`.
        before: the kind of the pass or action in or before which it was issued in its step, int32 [n].
    """

    step: Int64
    group: Int32
    peer: Int32
    tag: Int64
    is_send: Bool
    issue_ns: Int64
    start_ns: Int64
    end_ns: Int64
    size_bytes: Int64
    after: Int32
    before: Int32

    @property
    def ready_ns(self) -> Int64:
        """Return int64 [n]: when the rank reached each message, on the rank's wall clock."""
        ready_ns: Int64 = np.where(self.start_ns == ABSENT, self.issue_ns, self.start_ns)
        return ready_ns


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
