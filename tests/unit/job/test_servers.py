"""Which ranks serve others by messages?"""

from __future__ import annotations

import pytest

from benchmarks.exchanges import Message, rank, recv, send
from tracekit.job.servers import named_by_answers, ranks_that_serve
from tracekit.model.events import ABSENT
from tracekit.model.summary import RankSummary


def worker(number: int, *messages: Message) -> RankSummary:
    return rank(number, messages, has_backward=True)


def test_a_rank_without_backward_that_answers_those_with_one_is_a_server() -> None:
    server = rank(0, [recv(1, 5), send(1, 6), recv(2, 7), send(2, 8)])

    assert ranks_that_serve([server, worker(1, send(0, 4), recv(0, 9)), worker(2)]) == {0}


def test_a_receive_from_any_rank_is_of_the_one_that_is_answered() -> None:
    any_rank = rank(0, [recv(ABSENT, 5), recv(ABSENT, 6), send(2, 7), send(1, 8), recv(ABSENT, 9)])

    assert ranks_that_serve([any_rank, worker(1), worker(2)]) == {0}
    assert named_by_answers(any_rank.messages).peer.tolist() == [2, 1, 2, 1, ABSENT]


def test_of_parameters_in_two_parts_each_has_a_server() -> None:
    servers = [rank(number, [recv(2, 5), send(2, 6)]) for number in (0, 1)]

    assert ranks_that_serve([*servers, worker(2)]) == {0, 1}


@pytest.mark.parametrize(
    "messages",
    [
        [recv(1, 5), send(2, 6)],  # a frozen stage of a pipeline
        [recv(1, 5), send(1, 6), send(3, 7)],  # it also sends to a rank that does not train
        [],
    ],
)
def test_a_rank_that_answers_nobody_who_trains_is_no_server(messages: list[Message]) -> None:
    assert ranks_that_serve([rank(0, messages), worker(1), worker(2), rank(3)]) == set()


def test_stages_of_a_pipeline_are_no_servers() -> None:
    """Neither where all have a backward pass, nor where none has."""
    first, last = [send(1, 5), recv(1, 9)], [recv(0, 6), send(0, 8)]

    assert ranks_that_serve([worker(0, *first), worker(1, *last)]) == set()
    assert ranks_that_serve([rank(0, first), rank(1, last)]) == set()
