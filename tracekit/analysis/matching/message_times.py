"""How long messages took.

On a GPU a kernel sends or receives one message, or a batch of several. Both kernels run while the message is on its
way, so it takes at most as long as the shorter one, each on its own clock. That may be much too long, where a kernel
also waited for the other messages of its batch, or for a sender whose own kernel did. But in most jobs some messages
between two ranks wait for nothing. The fastest of a size tells how long the others take by themselves.

On a CPU a message is on its way from when both ranks handle it until it is received. Gloo's sends may end before.
"""

from __future__ import annotations

import numpy as np

from tracekit.model.events import ABSENT, Int64
from tracekit.model.messages import Messages
from tracekit.model.run import Run

_NEVER, _EVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max

ONE_OF = 50
"""One of so many messages may seem too fast, for records are not perfect."""

__all__ = [
    "ONE_OF",
    "fastest_messages",
    "kernels_of_messages",
    "message_kernels",
    "message_sizes",
    "message_transfers",
]


def kernels_of_messages(messages: Messages) -> Int64:
    """Return int64 [n]: numbers that the messages of one rank have in common if they share a kernel."""
    times = np.stack((messages.start_ns, messages.end_ns, np.where(messages.start_ns == ABSENT, messages.issue_ns, 0)))
    return np.unique(times, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def message_kernels(run: Run) -> tuple[Int64, Int64]:
    """Return the kernels that send and that receive each of the run's messages, int64 [m] each.

    Kernels of different ranks have different numbers.
    """
    matched = run.messages
    send_kernel, recv_kernel = np.full((2, len(matched)), ABSENT)
    for place, summary in enumerate(run.ranks):
        kernels = (place << 32) + kernels_of_messages(summary.messages)
        sends, receives = (np.flatnonzero(side == summary.rank) for side in (matched.source, matched.destination))
        send_kernel[sends], recv_kernel[receives] = kernels[matched.send[sends]], kernels[matched.recv[receives]]
    return send_kernel, recv_kernel


def message_sizes(run: Run) -> Int64:
    """Return int64 [m]: the size of each of the run's messages in bytes, as either rank recorded it; or -1."""
    matched = run.messages
    size_bytes = np.full(len(matched), ABSENT)
    for summary in run.ranks:
        for rank, row in ((matched.source, matched.send), (matched.destination, matched.recv)):
            here = np.flatnonzero(rank == summary.rank)
            size_bytes[here] = np.maximum(size_bytes[here], summary.messages.size_bytes[row[here]])
    return size_bytes


def message_transfers(run: Run) -> Int64:
    """Return int64 [m]: how long each of the run's messages took, at most; or -1 where that is not known."""
    matched = run.messages
    begin_ns, shorter_ns = np.full(len(matched), _NEVER), np.full(len(matched), _EVER)
    ended_ns, on_gpu = np.full(len(matched), ABSENT), np.zeros(len(matched), dtype=np.bool_)
    for place, summary in enumerate(run.ranks):
        messages, clock = summary.messages, run.clocks[place]
        since_ns = clock.to_run(np.where(messages.start_ns == ABSENT, messages.ready_ns, messages.start_ns))
        until_ns = np.where(messages.end_ns == ABSENT, ABSENT, clock.to_run(messages.end_ns))
        duration_ns = np.where(messages.start_ns == ABSENT, _EVER, messages.end_ns - messages.start_ns)
        for rank, row in ((matched.source, matched.send), (matched.destination, matched.recv)):
            here = np.flatnonzero(rank == summary.rank)
            begin_ns[here] = np.maximum(begin_ns[here], since_ns[row[here]])
            shorter_ns[here] = np.minimum(shorter_ns[here], duration_ns[row[here]])
        receives = np.flatnonzero(matched.destination == summary.rank)
        ended_ns[receives] = until_ns[matched.recv[receives]]
        on_gpu[receives] = summary.device == "gpu"
    on_cpu_ns = np.where(ended_ns == ABSENT, ABSENT, np.maximum(ended_ns - begin_ns, 0))
    return np.where(on_gpu, np.where(shorter_ns == _EVER, ABSENT, shorter_ns), on_cpu_ns)


def fastest_messages(run: Run, took_ns: Int64) -> Int64:
    """Return int64 [m]: the time of the fastest message of its size between the same two ranks, in either direction.

    took_ns: int64 [m], as from `message_transfers`. The result is -1 where that is, and where the size is not known.
    """
    matched, size_bytes = run.messages, message_sizes(run)
    ends = np.sort(np.stack((matched.source, matched.destination)).astype(np.int64), axis=0)
    known = np.flatnonzero((took_ns != ABSENT) & (size_bytes != ABSENT))
    _, number = np.unique(np.stack((*ends, size_bytes))[:, known], axis=1, return_inverse=True)
    number = number.reshape(-1)
    count = np.bincount(number)
    ordered = took_ns[known][np.lexsort((took_ns[known], number))]
    fastest = ordered[np.cumsum(count) - count + np.maximum(count // ONE_OF, 1) - 1] if len(known) else ordered
    result = np.full(len(took_ns), ABSENT)
    result[known] = fastest[number]
    return result
