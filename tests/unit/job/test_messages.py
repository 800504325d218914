"""Sends are matched to receives over ranks: at the edges of a recording, with missing ranks, with different clocks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.exchanges import Message, clocks, rank, recv, run_of, send
from tracekit.job.messages import match_messages, message_table
from tracekit.model.communication import MatchedMessages
from tracekit.model.summary import RankSummary

Pair = tuple[int, int, int, int]


def pairs(matched: MatchedMessages) -> list[Pair]:
    """Return (source, row of the send, destination, row of the receive) of each match."""
    columns = (matched.source, matched.send, matched.destination, matched.recv)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def match(ranks: Sequence[RankSummary], **options: object) -> tuple[list[Pair], list[str]]:
    matched, notes = match_messages(ranks, clocks(len(ranks)), **options)  # type: ignore[arg-type]
    assert [note.id for note in notes] == ["unlinked"] * len(notes)
    return pairs(matched), [note.text for note in notes]


def test_messages_of_a_pair_are_matched_in_order() -> None:
    ranks = [rank(0, [send(1, 0), send(1, 20)]), rank(1, [recv(0, 5), recv(0, 30)])]
    assert match(ranks) == ([(0, 0, 1, 0), (0, 1, 1, 1)], [])


def test_each_direction_tag_and_group_is_matched_separately() -> None:
    sender = rank(0, [send(1, 0, tag=1), send(1, 1, tag=2), recv(1, 2)])
    receiver = rank(1, [recv(0, 0, tag=2), recv(0, 1, tag=1), send(0, 2)])
    assert match([sender, receiver]) == ([(0, 0, 1, 1), (0, 1, 1, 0), (1, 2, 0, 2)], [])


def test_one_lost_receive_leaves_the_other_steps_matched() -> None:
    """GIVEN a message in each of 20 steps, and no record of the receive in step 7 THEN 19 pairs are right."""
    sender = rank(0, [send(1, 1000 * step, step=step) for step in range(20)], steps=range(20))
    receiver = rank(1, [recv(0, 1000 * step, step=step) for step in range(20) if step != 7], steps=range(20))
    actual, notes = match([sender, receiver])
    assert actual == [(0, step, 1, step - (step > 7)) for step in range(20) if step != 7]
    assert notes == ["1 sends or receives have no counterpart (1: its counterpart lies before or after the recording)"]


@pytest.mark.parametrize(
    ("lost_side", "certain", "unlinked"), [("receive", {4}, 5), ("send", {6, 7}, 3)], ids=["receive", "send"]
)
def test_a_step_that_lacks_a_record_matches_only_what_is_certain(
    lost_side: str, certain: set[int], unlinked: int
) -> None:
    """GIVEN 3 steps of 4 equal messages, each received before the next is sent, and message 5 lost on one side.

    THEN steps 0 and 2 are matched. Without the receive of message 5, a later receive may be of its own send or of the
    one before. Without the send of message 5, its receive may be of send 4.
    """
    times = [(step, 10_000 * step + 100 * k) for step in range(3) for k in range(4)]
    kept = [i for i in range(12) if i != 5]
    sent, received = (kept, range(12)) if lost_side == "send" else (range(12), kept)
    sender = rank(0, [send(1, times[i][1], step=times[i][0]) for i in sent], steps=range(3))
    receiver = rank(1, [recv(0, times[i][1], step=times[i][0]) for i in received], steps=range(3))
    actual, notes = match([sender, receiver])
    assert actual == [(0, sent.index(i), 1, received.index(i)) for i in (*range(4), *sorted(certain), *range(8, 12))]
    reason = "records of its step are lost, and its place among the others is not certain"
    assert notes == [f"{unlinked} sends or receives have no counterpart ({unlinked}: {reason})"]


def test_sizes_place_the_messages_of_a_step_that_lacks_a_record() -> None:
    """GIVEN sends of 1, 2, 3 and 4 bytes and receives of 1, 3 and 4 THEN all three have their place."""
    sender = rank(0, [send(1, 0, size_bytes=size) for size in (1, 2, 3, 4)])
    receiver = rank(1, [recv(0, 500, size_bytes=size) for size in (1, 3, 4)])
    actual, notes = match([sender, receiver])
    assert actual == [(0, 0, 1, 0), (0, 2, 1, 1), (0, 3, 1, 2)]
    assert notes == ["1 sends or receives have no counterpart (1: the other rank did not record it)"]


def test_without_comparable_clocks_a_step_that_lacks_a_record_is_not_matched() -> None:
    """GIVEN two hosts with unknown clocks THEN no time tells which of three sends two receives belong to."""
    sends = [send(1, 100 * k) for k in range(3)] + [send(1, 1000, step=6)]
    receives = [recv(0, 100 * k) for k in range(2)] + [recv(0, 1000, step=6)]
    ranks = [rank(0, sends, steps=(5, 6)), rank(1, receives, steps=(5, 6), host="node1")]
    assert pairs(match_messages(ranks, clocks(2, method="none"))[0]) == [(0, 3, 1, 2)]
    assert pairs(match_messages(ranks, clocks(2))[0]) == [(0, 0, 1, 0), (0, 1, 1, 1), (0, 3, 1, 2)]


@given(
    counts=st.lists(st.integers(1, 5), min_size=2, max_size=5),
    data=st.data(),
    size_bytes=st.lists(st.sampled_from([-1, 4, 8]), min_size=25, max_size=25),
)
def test_what_is_matched_in_spite_of_a_lost_record_is_right(
    counts: list[int], data: st.DataObject, size_bytes: list[int]
) -> None:
    """GIVEN any one lost record THEN each pair is true, and all messages of the other steps are matched."""
    steps = [step for step, count in enumerate(counts) for _ in range(count)]
    lost = data.draw(st.integers(0, len(steps) - 1))
    of_sender = data.draw(st.booleans())
    sends = [send(1, 100 * i, step=step, size_bytes=size_bytes[i]) for i, step in enumerate(steps)]
    took_ns = data.draw(st.lists(st.integers(0, 300), min_size=len(steps), max_size=len(steps)))
    receives = [
        recv(0, 100 * i, step=step, size_bytes=size_bytes[i], took_ns=took_ns[i]) for i, step in enumerate(steps)
    ]
    kept = [i for i in range(len(steps)) if i != lost]
    row_of_send, row_of_receive = (kept, range(len(steps))) if of_sender else (range(len(steps)), kept)
    ranks = [
        rank(0, [sends[i] for i in row_of_send], steps=range(5)),
        rank(1, [receives[i] for i in row_of_receive], steps=range(5)),
    ]
    actual = {(row_of_send[send_row], row_of_receive[row]) for _, send_row, _, row in match(ranks)[0]}
    expected = {(i, i) for i in kept}
    assert actual <= expected
    assert {pair for pair in expected if steps[pair[0]] != steps[lost]} <= actual


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


def test_order_is_judged_within_the_clocks_error() -> None:
    """GIVEN a receive that seems to end 40 ns before its send began, and clocks with an error of 20 ns each."""
    ranks = [rank(0, [send(1, 100)]), rank(1, [recv(0, 50)])]
    assert pairs(match_messages(ranks, clocks(2))[0]) == []
    assert pairs(match_messages(ranks, clocks(2, error_ns=20))[0]) == [(0, 0, 1, 0)]


def test_unknown_clocks_do_not_decide_order() -> None:
    messages: tuple[list[Message], list[Message]] = ([send(1, 1000)], [recv(0, 0)])
    ranks = [rank(0, messages[0]), rank(1, messages[1])]
    assert pairs(match_messages(ranks, clocks(2, method="host"))[0]) == []
    assert pairs(match_messages(ranks, clocks(2, method="none"))[0]) == [(0, 0, 1, 0)]


@pytest.mark.parametrize("known", [True, False])
def test_an_edge_counts_sends_receives_and_joined_messages(known: bool) -> None:
    size = 64 if known else -1
    ranks = [
        rank(0, [send(1, 0, size_bytes=size), send(1, 50, size_bytes=64)]),
        rank(1, [recv(0, 9, size_bytes=size)]),
    ]
    matched, _ = match_messages(ranks, clocks(2))
    rows = message_table(run_of(ranks, messages=matched)).rows
    (row,) = rows
    assert (row["source"], row["destination"], row["group"]) == (0, 1, 0)
    assert (row["sends"], row["receives"], row["joined"]) == (2, 1, 1)
    assert (row["size_bytes"] == 128) is known
