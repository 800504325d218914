"""How long messages took, and which share a kernel. Times are nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.exchanges import Message, clocks, rank, recv, run_of, send
from tracekit.job.message_times import (
    awaited_soonest,
    fastest_messages,
    message_kernels,
    message_sizes,
    message_transfers,
    usual_transfers,
)
from tracekit.job.messages import match_messages
from tracekit.model.run import Run


def pair(sent: Sequence[Message], received: Sequence[Message], *, offset_ns: int = 0, **others: Any) -> Run:
    """Return two ranks. The second one's clock is ahead."""
    members, of_clocks = [rank(0, sent, **others), rank(1, received, **others)], clocks(2, offsets_ns=(0, offset_ns))
    return run_of(members, messages=match_messages(members, of_clocks)[0], clocks=tuple(of_clocks))


def awaited_late(*waits_ns: int, came_ns: int, size_bytes: int = 64) -> tuple[list[Message], list[Message]]:
    """Return sends at 0, 1 ms, ... and receives posted then, each of which its rank waits for after `waits_ns`.

    All come `came_ns` after they are sent. A wait that finds its message there takes 10 us.
    """
    sent, received = [], []
    for i, wait_ns in enumerate(waits_ns):
        at_ns = 1_000_000 * i
        took_ns = max(came_ns, wait_ns + 10_000)
        sent.append(send(1, at_ns, size_bytes=size_bytes))
        received.append(recv(0, at_ns, took_ns=took_ns, awaited_ns=at_ns + wait_ns, size_bytes=size_bytes))
    return sent, received


def test_a_message_that_came_while_its_receiver_was_busy_took_at_most_until_that_waited() -> None:
    """GIVEN messages that come after 200 us, awaited at once, after 100 us and after 500 us."""
    times = message_transfers(pair(*awaited_late(0, 100_000, 500_000, came_ns=200_000)))

    assert times.took_ns.tolist() == [200_000, 200_000, 510_000]
    assert times.unseen_ns.tolist() == [0, 100_000, 500_000]
    assert times.is_exact.tolist() == [True, True, False]
    assert times.at_least_ns.tolist() == [200_000, 200_000, 0]


def test_a_link_is_judged_by_the_half_of_its_messages_that_were_awaited_soonest() -> None:
    """Of the second link all were awaited at once, or within the moment that a call takes."""
    unseen_ns = np.array([900_000, 100_000, 500_000, 700_000, 0, 20_000, 0, 40_000])

    soonest = awaited_soonest(unseen_ns, np.array([0, 0, 0, 0, 1, 1, 1, 1]))

    assert soonest.tolist() == [False, True, True, False, True, True, True, True]


def test_what_is_usual_is_told_by_messages_whose_receivers_waited() -> None:
    """GIVEN a link whose messages come after 200 us, of which half are awaited soon."""
    run = pair(*awaited_late(0, 800_000, 0, 800_000, 10_000, 800_000, came_ns=200_000))

    assert usual_transfers(run, message_transfers(run)).tolist() == [200_000] * 6


def test_what_is_usual_on_a_link_that_nobody_waits_for_is_told_by_other_links_of_the_same_size() -> None:
    """GIVEN messages of 64 bytes to rank 1 that come unseen, and such to rank 2 that take 200 us; of 8 bytes unseen."""
    sent, received = awaited_late(700_000, 800_000, 700_000, 800_000, came_ns=100_000)
    sent_few, received_few = awaited_late(700_000, 800_000, came_ns=100_000, size_bytes=8)
    to_first = ([*sent, *sent_few], [*received, *received_few])
    of_second = awaited_late(0, 0, 0, came_ns=200_000)
    members = [
        rank(0, [*to_first[0], *(replace(message, peer=2) for message in of_second[0])]),
        rank(1, to_first[1]),
        rank(2, of_second[1]),
    ]
    run = run_of(members, messages=match_messages(members, clocks(3))[0])

    usual_ns = usual_transfers(run, message_transfers(run))

    by_size = {(int(d), int(s)): set() for d, s in zip(run.messages.destination, message_sizes(run), strict=True)}
    for destination, size, ns in zip(run.messages.destination, message_sizes(run), usual_ns, strict=True):
        by_size[int(destination), int(size)].add(int(ns))
    assert by_size == {(1, 64): {200_000}, (1, 8): {-1}, (2, 64): {200_000}}


def test_on_a_gpu_a_message_takes_at_most_as_long_as_the_shorter_kernel() -> None:
    """Each kernel is measured by its own clock: an offset changes nothing."""
    for offset_ns in (0, 7000):
        clock = {"offset_ns": offset_ns, "device": "gpu"}
        late_receive = pair([send(1, 100, took_ns=80)], [recv(0, offset_ns + 150, took_ns=30)], **clock)
        late_send = pair([send(1, 140, took_ns=40)], [recv(0, offset_ns + 90, took_ns=90)], **clock)

        assert message_transfers(late_receive).took_ns.tolist() == [30]
        assert message_transfers(late_send).took_ns.tolist() == [40]


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

    assert message_transfers(run).took_ns.tolist() == []
    assert [kernels.tolist() for kernels in message_kernels(run)] == [[], []]
