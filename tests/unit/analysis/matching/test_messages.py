"""Sends are matched to receives over ranks: at the edges of a recording, with missing ranks, with different clocks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.analysis.exchanges import Message, clocks, rank, recv, run_of, send
from tracekit.analysis.matching.messages import match_messages, message_edges
from tracekit.model.messages import MatchedMessages
from tracekit.model.summary import RankSummary

Pair = tuple[int, int, int, int]


def pairs(matched: MatchedMessages) -> list[Pair]:
    """Return (source, row of the send, destination, row of the receive) of each match."""
    columns = (matched.source, matched.send, matched.destination, matched.recv)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def match(ranks: Sequence[RankSummary], **options: object) -> tuple[list[Pair], list[str]]:
    matched, notes = match_messages(ranks, clocks(len(ranks)), **options)  # type: ignore[arg-type]
    assert [note.kind for note in notes] == ["unlinked"] * len(notes)
    return pairs(matched), [note.text for note in notes]


def test_messages_of_a_pair_are_matched_in_order() -> None:
    ranks = [rank(0, [send(1, 0), send(1, 20)]), rank(1, [recv(0, 5), recv(0, 30)])]
    assert match(ranks) == ([(0, 0, 1, 0), (0, 1, 1, 1)], [])


def test_each_direction_tag_and_group_is_matched_separately() -> None:
    sender = rank(0, [send(1, 0, tag=1), send(1, 1, tag=2), recv(1, 2)])
    receiver = rank(1, [recv(0, 0, tag=2), recv(0, 1, tag=1), send(0, 2)])
    assert match([sender, receiver]) == ([(0, 0, 1, 1), (0, 1, 1, 0), (1, 2, 0, 2)], [])


def test_steps_are_matched_one_by_one() -> None:
    """GIVEN a missing receive in the second step of rank 1 THEN the first step is matched."""
    sender = rank(0, [send(1, 0), send(1, 100, step=6)])
    receiver = rank(1, [recv(0, 0)])
    actual, notes = match([sender, receiver])
    assert actual == [(0, 0, 1, 0)]
    assert notes == ["1 sends or receives have no counterpart (1: its counterpart lies before or after the recording)"]


def test_a_receive_of_a_message_from_before_the_recording_is_left_out() -> None:
    """
    send           100   200        the first receive ended before anything was sent
    recv    10-20  100   200
    """
    sender = rank(0, [send(1, 100), send(1, 200)])
    receiver = rank(1, [recv(0, 10), recv(0, 100), recv(0, 200)])
    actual, notes = match([sender, receiver])
    assert actual == [(0, 0, 1, 1), (0, 1, 1, 2)]
    assert notes == ["1 sends or receives have no counterpart (1: its counterpart lies before or after the recording)"]


def test_messages_across_a_step_edge_are_detected_by_times() -> None:
    """GIVEN equal counts in every step, and a first receive whose message was sent before the window."""
    sender = rank(0, [send(1, 100), send(1, 200, step=6)])
    receiver = rank(1, [recv(0, 10), recv(0, 110, step=6)])
    actual, notes = match([sender, receiver])
    assert actual == [(0, 0, 1, 1)]
    assert notes[0].startswith("2 sends or receives have no counterpart")


def test_messages_across_a_step_edge_are_detected_by_sizes() -> None:
    sender = rank(0, [send(1, 0, size_bytes=8), send(1, 10, size_bytes=16)])
    receiver = rank(1, [recv(0, 50, size_bytes=4), recv(0, 60, size_bytes=8)])
    actual, _ = match([sender, receiver])
    assert actual == [(0, 0, 1, 1)]


def test_sides_that_do_not_agree_are_not_matched() -> None:
    sender = rank(0, [send(1, 0, size_bytes=8), send(1, 10, size_bytes=8)])
    receiver = rank(1, [recv(0, 50, size_bytes=4), recv(0, 60, size_bytes=4)])
    assert match([sender, receiver]) == (
        [],
        ["4 sends or receives have no counterpart (4: order and sizes differ between the two ranks)"],
    )


def test_messages_to_a_rank_whose_trace_is_missing_are_counted() -> None:
    ranks = [rank(0, [send(1, 0), send(3, 5)]), rank(1, [recv(0, 0), recv(3, 9)])]
    assert match(ranks) == (
        [(0, 0, 1, 0)],
        ["2 sends or receives have no counterpart (2: the trace of the other rank is missing)"],
    )


def test_messages_to_ranks_that_were_not_selected_are_not_missing() -> None:
    ranks = [rank(0, [send(1, 0), send(3, 5)]), rank(1, [recv(0, 0)])]
    assert match(ranks, selected=frozenset({0, 1})) == ([(0, 0, 1, 0)], [])


def test_a_rank_that_recorded_no_messages_is_named_as_the_reason() -> None:
    assert match([rank(0, [send(1, 0)]), rank(1)]) == (
        [],
        ["1 sends or receives have no counterpart (1: the other rank recorded no messages)"],
    )


def test_without_messages_there_is_no_note() -> None:
    assert match([rank(0), rank(1)]) == ([], [])


def test_order_is_judged_within_the_clocks_error() -> None:
    """GIVEN a receive that seems to end 40 ns before its send began, and clocks with an error of 20 ns each."""
    ranks = [rank(0, [send(1, 100)]), rank(1, [recv(0, 50)])]
    assert pairs(match_messages(ranks, clocks(2))[0]) == []
    assert pairs(match_messages(ranks, clocks(2, error_ns=20))[0]) == [(0, 0, 1, 0)]


def test_unmeasured_clocks_of_two_hosts_do_not_decide_order() -> None:
    messages: tuple[list[Message], list[Message]] = ([send(1, 1000)], [recv(0, 0)])
    one_host = [rank(0, messages[0]), rank(1, messages[1])]
    two_hosts = [rank(0, messages[0]), rank(1, messages[1], host="node1")]
    assert pairs(match_messages(one_host, clocks(2, method="none"))[0]) == []
    assert pairs(match_messages(two_hosts, clocks(2, method="none"))[0]) == [(0, 0, 1, 0)]


@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    before=st.integers(0, 2),
    shift_ns=st.integers(-(10**9), 10**9),
)
def test_a_shifted_clock_changes_no_pair(counts: list[int], before: int, shift_ns: int) -> None:
    """GIVEN `before` receives whose sends were not recorded THEN all others are matched, on any known clock."""
    sends = [(1000 * step + 10 * k, step) for step, count in enumerate(counts) for k in range(count)]
    sender = [send(1, at, step=step) for at, step in sends]
    received = [recv(0, -100 + 20 * k, step=0, took_ns=5) for k in range(before)]
    received += [recv(0, at, step=step) for at, step in sends]
    receiver = [Message(**vars(m) | {"at_ns": m.at_ns + shift_ns + 10**10}) for m in received]
    sender = [Message(**vars(m) | {"at_ns": m.at_ns + 10**10}) for m in sender]
    ranks = [rank(0, sender, steps=range(3)), rank(1, receiver, steps=range(3))]
    matched, _ = match_messages(ranks, clocks(2, offsets_ns=[0, shift_ns]))
    assert pairs(matched) == [(0, k, 1, k + before) for k in range(len(sends))]


@pytest.mark.parametrize("known", [True, False])
def test_an_edge_counts_sends_receives_and_joined_messages(known: bool) -> None:
    size = 64 if known else -1
    ranks = [rank(0, [send(1, 0, size_bytes=size), send(1, 5, size_bytes=64)]), rank(1, [recv(0, 9, size_bytes=size)])]
    matched, _ = match_messages(ranks, clocks(2))
    rows = message_edges(run_of(ranks, messages=matched)).to_dict("records")
    (row,) = rows
    assert (row["source"], row["destination"], row["group"]) == (0, 1, 0)
    assert (row["sends"], row["receives"], row["joined"]) == (2, 1, 1)
    assert (row["size_bytes"] == 128) is known
