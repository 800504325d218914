"""Peers of messages that do not name them: the other rank of a pair, and the neighbours in a pipeline."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.exchanges import Message, rank, recv, send
from tracekit.job.messages import with_inferred_peers
from tracekit.model.communication import FIRST_PLACE, GroupKey
from tracekit.model.events import ABSENT
from tracekit.model.notes import Note
from tracekit.model.summary import RankSummary

UNKNOWN = -1


def members(order: Sequence[int], messages: dict[int, list[Message]]) -> list[RankSummary]:
    """Return the ranks that have messages, all in one group whose members are listed in an order."""
    group = GroupKey(description="pp", ranks=tuple(order))
    return [rank(number, of_rank, groups=(group,)) for number, of_rank in messages.items()]


def inferred(ranks: Sequence[RankSummary]) -> tuple[dict[int, list[int]], list[Note]]:
    """Return the peers of each rank's messages."""
    summaries, notes = with_inferred_peers(ranks)
    return {summary.rank: summary.messages.peer.tolist() for summary in summaries}, notes


def forward_and_backward(order: Sequence[int], sizes: Sequence[int] = (64, 64)) -> dict[int, list[Message]]:
    """Return messages by rank: each microbatch, of a size each, goes through all stages and back."""
    messages: dict[int, list[Message]] = {number: [] for number in order}
    last = len(order) - 1
    for microbatch, size_bytes in enumerate(sizes):
        for place, number in enumerate(order):
            there, back = 1000 * microbatch + 100 * place, 1000 * microbatch + 100 * (2 * last - place + 1)
            if place:
                messages[number].append(recv(UNKNOWN, there, before="F", size_bytes=size_bytes))
                messages[number].append(send(UNKNOWN, back + 50, after="B", size_bytes=size_bytes))
            if place < last:
                messages[number].append(send(UNKNOWN, there + 50, after="F", size_bytes=size_bytes))
                messages[number].append(recv(UNKNOWN, back, after="F", before="B", size_bytes=size_bytes))
    return messages


def test_ranks_that_name_their_peers_stay_as_they_are() -> None:
    ranks = members((0, 1), {0: [send(1, 0)], 1: [recv(0, 0)]})

    assert with_inferred_peers(ranks) == (tuple(ranks), [])


def test_in_a_group_of_two_it_is_the_other_rank() -> None:
    peers, (note,) = inferred(members((3, 7), {3: [send(UNKNOWN, 0), recv(UNKNOWN, 9)], 7: [recv(UNKNOWN, 0)]}))

    assert peers == {3: [7, 7], 7: [3]}
    assert (note.id, note.severity) == ("inferred", "info")
    assert note.text.startswith("3 sends or receives")


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (6, 2, 4)])
def test_in_a_pipeline_activations_go_to_the_next_rank_of_the_group_and_gradients_back(order: tuple[int, ...]) -> None:
    ranks = members(order, forward_and_backward(order))

    peers, (note,) = inferred(ranks)

    assert note.id == "inferred"
    for place, number in enumerate(order):
        before, behind = [*order[:place]][-1:], [*order[place + 1 :]][:1]
        expected = [*before, *behind, *behind, *before]  # receive, send, receive of the gradient, send of the gradient
        assert peers[number] == expected * 2


def test_the_last_rank_sends_to_the_first_one_where_ranks_have_several_stages() -> None:
    first = [send(UNKNOWN, 0, after="F"), recv(UNKNOWN, 30, before="F"), send(UNKNOWN, 40, after="F")]
    second = [recv(UNKNOWN, 0, before="F"), send(UNKNOWN, 10, after="F"), recv(UNKNOWN, 40, before="F")]
    third = [recv(UNKNOWN, 10, before="F"), send(UNKNOWN, 20, after="F")]

    peers, _ = inferred(members((0, 1, 2), {0: first, 1: second, 2: third}))

    assert peers == {0: [1, 2, 1], 1: [0, 2, 0], 2: [1, 0]}


@pytest.mark.parametrize("other", [recv(UNKNOWN, 999, before="F"), send(UNKNOWN, 999)], ids=["unsent", "outside"])
def test_a_group_that_does_not_fit_a_pipeline_loses_its_messages(other: Message) -> None:
    messages = forward_and_backward((0, 1, 2))
    messages[1].append(other)

    peers, (note,) = inferred(members((0, 1, 2), messages))

    assert peers == {0: [], 1: [], 2: []}
    assert (note.id, note.severity) == ("unlinked", "warning")
    assert note.text.startswith("17 sends or receives")


def test_messages_of_neighbours_must_have_the_same_sizes_in_the_same_order() -> None:
    messages = forward_and_backward((0, 1, 2), sizes=(64, 128))
    swapped = forward_and_backward((0, 1, 2), sizes=(128, 64))

    peers, _ = inferred(members((0, 1, 2), {0: messages[0], 1: messages[1], 2: swapped[2]}))

    assert peers == {0: [], 1: [], 2: []}


def test_a_group_with_a_missing_rank_is_not_guessed() -> None:
    messages = forward_and_backward((0, 1, 2))

    peers, (note,) = inferred(members((0, 1, 2), {0: messages[0], 1: messages[1]}))

    assert peers == {0: [], 1: []}
    assert note.id == "unlinked"


def test_messages_that_name_their_peer_are_kept() -> None:
    ranks = members((0, 1, 2), {0: [send(2, 0), send(UNKNOWN, 5)], 1: [], 2: [recv(0, 0)]})

    peers, (note,) = inferred(ranks)

    assert peers == {0: [2], 1: [], 2: [0]}
    assert note.text.startswith("1 sends or receives")


def test_the_group_of_a_place_is_the_one_with_the_counterparts() -> None:
    """GIVEN two pipelines of two ranks, all in one group, and groups over their replicas that have no messages."""
    world = GroupKey(description="default_pg", ranks=(0, 1, 2, 3))
    replicas = {number: GroupKey(description="", ranks=(number % 2, number % 2 + 2)) for number in range(4)}
    ranks = [
        rank(
            number,
            [(recv if number % 2 else send)(FIRST_PLACE - peer, at, group=ABSENT) for at in (0, 10)],
            groups=(world, replicas[number]),
        )
        for number, peer in enumerate((1, 0, 3, 2))
    ]

    summaries, notes = with_inferred_peers(ranks)

    assert [summary.messages.peer.tolist() for summary in summaries] == [[1, 1], [0, 0], [3, 3], [2, 2]]
    assert ([summary.messages.group.tolist() for summary in summaries], notes) == ([[0, 0]] * 4, [])
    assert [len(summary.messages) for summary in with_inferred_peers(ranks[::2])[0]] == [0, 0]
