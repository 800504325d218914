"""How long messages took, and which share a kernel. Times are nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.unit.analysis.exchanges import Message, clocks, rank, recv, run_of, send
from tracekit.analysis.matching.message_times import (
    fastest_messages,
    kernels_of_messages,
    message_kernels,
    message_sizes,
    message_transfers,
)
from tracekit.analysis.matching.messages import match_messages
from tracekit.model.run import Run


def pair(sent: Sequence[Message], received: Sequence[Message], *, offset_ns: int = 0, **others: Any) -> Run:
    """Return two ranks. The second one's clock is ahead."""
    members, of_clocks = [rank(0, sent, **others), rank(1, received, **others)], clocks(2, offsets_ns=(0, offset_ns))
    return run_of(members, messages=match_messages(members, of_clocks)[0], clocks=tuple(of_clocks))


def test_messages_with_one_event_share_a_kernel() -> None:
    """Messages without an event share one if they were issued together."""
    messages = rank(
        0, [send(1, 10), recv(1, 10), send(1, 10, took_ns=11), send(1, 30), recv(1, 40, took_ns=-1)]
    ).messages

    kernels = kernels_of_messages(messages).tolist()

    assert kernels[0] == kernels[1]
    assert len(set(kernels)) == 4


def test_kernels_of_different_ranks_are_different() -> None:
    run = pair([send(1, 10), send(1, 10), send(1, 50)], [recv(0, 10), recv(0, 50), recv(0, 50)])

    send_kernel, recv_kernel = (kernels.tolist() for kernels in message_kernels(run))

    assert send_kernel[0] == send_kernel[1] != send_kernel[2]
    assert recv_kernel[0] != recv_kernel[1] == recv_kernel[2]
    assert not set(send_kernel) & set(recv_kernel)


def test_on_a_cpu_a_message_takes_from_when_both_ranks_handle_it_until_it_is_received() -> None:
    """The send is there from 10 on and the receive from 30 on until 36; then both at 100 until 125, after the send."""
    run = pair([send(1, 10), send(1, 100, took_ns=5)], [recv(0, 30, took_ns=6), recv(0, 90, took_ns=35)])

    assert message_transfers(run).tolist() == [6, 25]


def test_times_are_compared_on_the_clock_of_the_run() -> None:
    run = pair([send(1, 1010, took_ns=50)], [recv(0, 8000, took_ns=40)], offset_ns=7000)  # received from 1000 to 1040

    assert message_transfers(run).tolist() == [30]


def test_a_receive_without_an_end_took_unknown_time() -> None:
    run = pair([send(1, 10), send(1, 50)], [recv(0, 10, took_ns=7), recv(0, 50, took_ns=-1)])

    assert message_transfers(run).tolist() == [7, -1]


def test_on_a_gpu_a_message_takes_at_most_as_long_as_the_shorter_kernel() -> None:
    """Each kernel is measured by its own clock: an offset changes nothing."""
    for offset_ns in (0, 7000):
        clock = {"offset_ns": offset_ns, "device": "gpu"}
        late_receive = pair([send(1, 100, took_ns=80)], [recv(0, offset_ns + 150, took_ns=30)], **clock)
        late_send = pair([send(1, 140, took_ns=40)], [recv(0, offset_ns + 90, took_ns=90)], **clock)

        assert message_transfers(late_receive).tolist() == [30]
        assert message_transfers(late_send).tolist() == [40]


def sized(*sizes: tuple[int, int]) -> Run:
    """Return messages of these sizes, as the sender and as the receiver recorded them."""
    sent = [send(1, 100 * i, size_bytes=size) for i, (size, _) in enumerate(sizes)]
    return pair(sent, [recv(0, 100 * i, size_bytes=size) for i, (_, size) in enumerate(sizes)])


def test_the_size_of_a_message_is_known_from_either_rank() -> None:
    assert message_sizes(sized((64, 64), (64, -1), (-1, 8), (-1, -1))).tolist() == [64, 64, 8, -1]


def test_the_fastest_message_is_one_of_known_size() -> None:
    """GIVEN messages of two sizes, one that took unknown time, and messages of unknown size."""
    run = sized((64, 64), (64, 64), (8, 8), (8, 8), (-1, -1), (-1, -1))

    fastest = fastest_messages(run, np.array([30, 20, 5, -1, 10, 90]))

    assert fastest.tolist() == [20, 20, 5, -1, -1, -1]


def test_a_run_without_messages_has_no_times() -> None:
    run = pair([], [])

    assert message_transfers(run).tolist() == []
    assert [kernels.tolist() for kernels in message_kernels(run)] == [[], []]
