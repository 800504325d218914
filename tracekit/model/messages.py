"""Point-to-point messages: what each rank sent and received, and which send met which receive."""

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
    """n sends and receives of one rank in order of issue, on its wall clock.

    step: int64 [n], or -1 for those issued outside of the recorded steps. group: int32 [n], index into the rank's
    groups or -1. peer: int32 [n], global rank. tag: int64 [n]. is_send: bool [n]. issue_ns: int64 [n]; start_ns,
    end_ns: int64 [n], of the event, or -1. size_bytes: int64 [n] or -1. after, before: int32 [n], kind of pass or
    action (index into `ACTION_KINDS`) in or after which it was issued within the step, and in or before which; or -1.
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
        """int64 [n]: when the rank came to each of them, on its own clock."""
        ready_ns: Int64 = np.where(self.start_ns == ABSENT, self.issue_ns, self.start_ns)
        return ready_ns


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedMessages(Columnar):
    """m messages over ranks, each a send and its receive.

    source, destination: int32 [m], global ranks; send, recv: int64 [m], rows of their `RankSummary.messages`. step:
    int64 [m], of the send.
    """

    source: Int32
    destination: Int32
    send: Int64
    recv: Int64
    step: Int64
