"""Records sends and receives: group, peer, tag, direction, size and time of each.

All functions that send or receive (`send`, `isend`, `batch_isend_irecv`, object lists, pipelining) end in a method of
`ProcessGroup`, which is patched. The functions of `torch.distributed` are not, as `P2POp` compares their identity.

NCCL launches one kernel for a batch of messages, when the batch ends and outside of every operator. So a span is
recorded from the batch's begin to its end.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.patching import Patch, PatchSet
from tracekit.capture.hooks.span import span
from tracekit.capture.job.groups import DESTROYED_GROUP
from tracekit.capture.observers import MetadataDraft
from tracekit.model.metadata import PointToPointRecord
from tracekit.model.spans import COALESCED_SPAN


@dataclass(slots=True)
class _Message:
    """A send or a receive.

    Attributes:
        peer: index in the group; None for a receive from any source until its sender is known.
    """

    group: Any
    peer: int | None
    tag: int
    direction: Literal["send", "recv"]
    created_ns: int
    size_bytes: int
    any_source: bool = False


class PointToPointObserver:
    """Holds the messages, and the members of their groups, until `contribute`."""

    def __init__(self) -> None:
        self._messages: list[_Message] = []
        self._members: dict[Any, list[int]] = {}  # global ranks of a group, asked for while it exists
        self._any_source_receives: dict[
            int, _Message
        ] = {}  # by the id of a `Work`, which lives until it is asked for its source
        self._patches = PatchSet()
        self._batches: list[Any] = []  # open spans; batches of several groups may be nested

    def attach(self, objects: LiveObjects) -> None:
        distributed = sys.modules.get("torch.distributed")
        process_group = getattr(distributed, "ProcessGroup", None)
        if process_group is None:
            return
        around: dict[str, Callable[..., Any]] = {
            "send": self._send,
            "recv": self._recv,
            "recv_anysource": self._recv_any_source,
            "_start_coalescing": self._start_batch,
            "_end_coalescing": self._end_batch,
        }
        patches = [Patch(process_group, name, f) for name, f in around.items() if hasattr(process_group, name)]
        work = getattr(distributed, "Work", None)
        if hasattr(work, "_source_rank"):
            patches.append(Patch(work, "_source_rank", self._note_source))
        self._patches.apply(patches)

    def detach(self, objects: LiveObjects) -> None:
        self._patches.remove()
        while self._batches:  # an error in a batch leaves it open
            self._batches.pop().__exit__(None, None, None)

    def contribute(self, draft: MetadataDraft) -> None:
        """Add records in order of issue, without receives from any source whose sender is not known."""
        counts: Counter[tuple[int, int, int, str]] = Counter()
        unmatched = 0
        for message in self._messages:
            members = self._members.get(message.group)
            if message.peer is None or members is None or not 0 <= message.peer < len(members):
                unmatched += 1
                continue
            number = draft.groups.id_of(message.group)
            group, peer = DESTROYED_GROUP if number is None else number, members[message.peer]
            key = (group, peer, message.tag, message.direction)
            draft.p2p.append(
                PointToPointRecord(
                    group=group,
                    peer=peer,
                    tag=message.tag,
                    direction=message.direction,
                    index=counts[key],
                    created_ns=message.created_ns,
                    size_bytes=message.size_bytes,
                    any_source=message.any_source,
                )
            )
            counts[key] += 1
        if unmatched:
            draft.note(f"{unmatched} messages have no known peer and are not matched")
        self._messages, self._members, self._any_source_receives = [], {}, {}

    def _send(self, send: Callable[..., Any], group: Any, tensors: Sequence[Any], peer: int, tag: int) -> Any:
        return self._record("send", send, group, tensors, peer, tag)[0]

    def _recv(self, recv: Callable[..., Any], group: Any, tensors: Sequence[Any], peer: int, tag: int) -> Any:
        return self._record("recv", recv, group, tensors, peer, tag)[0]

    def _recv_any_source(self, recv: Callable[..., Any], group: Any, tensors: Sequence[Any], tag: int) -> Any:
        work, message = self._record("recv", recv, group, tensors, None, tag)
        message.any_source = True
        self._any_source_receives[id(work)] = message
        return work

    def _start_batch(self, start: Callable[..., Any], *args: Any) -> Any:
        batch = span(COALESCED_SPAN)
        batch.__enter__()
        self._batches.append(batch)
        return start(*args)

    def _end_batch(self, end: Callable[..., Any], *args: Any) -> Any:
        try:
            return end(*args)
        finally:
            if self._batches:
                self._batches.pop().__exit__(None, None, None)

    def _record(
        self,
        direction: Literal["send", "recv"],
        issue: Callable[..., Any],
        group: Any,
        tensors: Sequence[Any],
        peer: int | None,
        tag: int,
    ) -> tuple[Any, _Message]:
        created_ns = time.time_ns()
        work = issue(group, tensors, tag) if peer is None else issue(group, tensors, peer, tag)
        size_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        message = _Message(group, peer, int(tag), direction, created_ns, size_bytes)
        self._messages.append(message)
        if group not in self._members:
            self._members[group] = _global_ranks(group)
        return work, message

    def _note_source(self, source_rank: Callable[..., Any], work: Any) -> Any:
        source = source_rank(work)
        message = self._any_source_receives.pop(id(work), None)
        if message is not None:
            message.peer = int(source)
        return source


def _global_ranks(group: Any) -> list[int]:
    """Return the global ranks of a group; empty if `torch.distributed` does not list it."""
    try:
        return [int(rank) for rank in sys.modules["torch.distributed"].get_process_group_ranks(group)]
    except (KeyError, RuntimeError, ValueError):
        return []
