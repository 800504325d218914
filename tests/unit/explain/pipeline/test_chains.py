"""The stages of actions, found by following microbatches from rank to rank."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.exchanges import Message, actions, clocks, rank, recv, send
from tracekit.explain.pipeline.manual_layout import StagedActions, follow_microbatches
from tracekit.explain.pipeline.schedules import order_of_schedule
from tracekit.explain.pipeline.tables import Actions
from tracekit.job.messages import match_messages

Row = tuple[str, int, int, int]


def follow(actions_of: list[Actions], messages: list[list[Message]]) -> dict[int, StagedActions] | None:
    members = [rank(i, messages[i], actions=of_rank) for i, of_rank in enumerate(actions_of)]
    return follow_microbatches(members, match_messages(members, clocks(len(members)))[0])


def looped(
    ranks: int, stages: int, microbatches: int, *, steps: int = 1, backwards: bool = True, tensors: int = 1
) -> tuple[list[Actions], list[list[Message]]]:
    """Return stages that are dealt out to ranks in turn. Each action is sent on in as many messages as tensors.

    A microbatch runs forward and backward through all stages before the next one.
    """
    rows: list[list[tuple[int, Row]]] = [[] for _ in range(ranks)]
    messages: list[list[Message]] = [[] for _ in range(ranks)]
    at = 0
    for step in range(steps):
        for microbatch in range(microbatches):
            turns = [("F", stage) for stage in range(stages)]
            turns += [("B", stage) for stage in reversed(range(stages))] if backwards else []
            for place, (kind, stage) in enumerate(turns):
                here = stage % ranks
                rows[here].append((step, (kind, microbatch, at, at + 50)))
                following = turns[place + 1][1] % ranks if place + 1 < len(turns) else here
                if following != here:
                    for tensor in range(tensors):
                        messages[here].append(send(following, at + 60 + tensor, took_ns=20, step=step, size_bytes=8))
                        messages[following].append(recv(here, at + 60 + tensor, took_ns=20, step=step, size_bytes=8))
                at += 100
    return [
        Actions.concatenate([actions(row, stage=-1, step=step) for step, row in of_rank]) for of_rank in rows
    ], messages


@pytest.mark.parametrize(("ranks", "stages"), [(2, 2), (4, 4), (3, 6), (4, 12)])
@pytest.mark.parametrize("tensors", [1, 2])
def test_stages_are_the_places_in_the_chains_of_microbatches(ranks: int, stages: int, tensors: int) -> None:
    found = follow(*looped(ranks, stages, 3, steps=2, tensors=tensors))

    assert found is not None
    for number, staged in found.items():
        forward = list(range(number, stages, ranks))
        assert staged.stage.tolist() == [*forward, *reversed(forward)] * 6
        assert staged.microbatch.tolist() == np.repeat([0, 1, 2] * 2, 2 * len(forward)).tolist()
        assert (staged.ranks, staged.stages) == (tuple(range(ranks)), stages)


def test_inference_has_no_backwards() -> None:
    found = follow(*looped(2, 4, 2, backwards=False))

    assert found is not None
    assert [staged.stage.tolist() for staged in found.values()] == [[0, 2, 0, 2], [1, 3, 1, 3]]


def test_a_ring_has_no_first_action() -> None:
    ring = [actions(("F", 0, 0, 50), ("F", 1, 100, 150), stage=-1) for _ in range(3)]
    around = [[send((i + 1) % 3, 60, took_ns=30), recv((i - 1) % 3, 60, took_ns=30)] for i in range(3)]
    again = [[send((i + 1) % 3, 160, took_ns=30), recv((i - 1) % 3, 90, took_ns=100)] for i in range(3)]

    assert follow(ring, [[*first, *second] for first, second in zip(around, again, strict=True)]) is None


def test_a_stage_is_on_one_rank() -> None:
    """GIVEN one microbatch from rank 0 to rank 1, and another one from rank 1 to rank 0."""
    both = [actions(("F", 0, 0, 50), ("F", 1, 100, 150), stage=-1) for _ in range(2)]
    messages = [[send(1, 60, took_ns=30), recv(1, 61, took_ns=30)], [recv(0, 60, took_ns=30), send(0, 61, took_ns=30)]]

    assert follow(both, messages) is None


def test_ranks_that_send_each_other_nothing_are_no_pipeline() -> None:
    both = [actions(("F", 0, 0, 50), stage=-1) for _ in range(2)]

    assert follow(both, [[], []]) is None


def test_a_microbatch_that_skips_a_stage_makes_chains_of_different_lengths() -> None:
    of_ranks, messages = looped(3, 3, 2, backwards=False)
    extra = actions(("F", 2, 2000, 2050), stage=-1)

    assert follow([*of_ranks[:2], Actions.concatenate([of_ranks[2], extra])], messages) is None


def test_the_result_of_one_action_goes_to_one_other() -> None:
    """GIVEN a broadcast in which rank 0 sends what it computes to ranks 1 and 2."""
    star = [actions(("F", 0, 100 * (i > 0), 100 * (i > 0) + 50), stage=-1) for i in range(3)]
    messages = [[send(1, 60), send(2, 61)], [recv(0, 60)], [recv(0, 61)]]

    assert follow(star, messages) is None


@pytest.mark.parametrize(
    ("schedule", "virtual_stages"), [("gpipe", 1), ("1f1b", 1), ("interleaved1f1b", 2), ("interleaved1f1b", 4)]
)
def test_stages_are_found_in_any_order_of_actions(schedule: str, virtual_stages: int) -> None:
    """GIVEN ranks that receive right before an action, and send right after it."""
    orders = order_of_schedule(schedule, 4, virtual_stages, 8)
    assert orders is not None
    messages: list[list[Message]] = [[] for _ in orders]
    for number, order in enumerate(orders):
        for i, (kind, stage, _) in enumerate(order):
            along = 1 if kind == "F" else -1
            if 0 <= stage - along < 4 * virtual_stages:
                messages[number].append(recv((stage - along) % 4, 10 * i - 2))
            if 0 <= stage + along < 4 * virtual_stages:
                messages[number].append(send((stage + along) % 4, 10 * i + 7))
    actions_of = [
        actions(*((kind, 0, 10 * i, 10 * i + 5) for i, (kind, _, _) in enumerate(order)), stage=-1) for order in orders
    ]

    found = follow(actions_of, messages)

    assert found is not None
    for number, order in enumerate(orders):
        assert found[number].ranks == (0, 1, 2, 3)
        assert found[number].stage.tolist() == [stage for _, stage, _ in order]
        assert found[number].microbatch.tolist() == [microbatch for _, _, microbatch in order]


def test_what_is_sent_together_after_a_forward_and_a_backward_is_the_result_of_both() -> None:
    """GIVEN 1F1B where each turn runs a forward and a backward, and then sends the results of both."""
    first = [("F", 0), ("F", 10), ("F", 20), ("B", 40), ("F", 45), ("B", 60), ("B", 80), ("B", 100)]
    second = [("F", 10), ("B", 20), ("F", 30), ("B", 40), ("F", 50), ("B", 60), ("F", 70), ("B", 80)]
    messages = [
        [send(1, at) for at in (5, 15, 44, 67)] + [recv(1, at) for at in (30, 50, 70, 90)],
        [recv(0, at) for at in (5, 28, 48, 67)] + [send(0, at) for at in (28, 48, 68, 88)],
    ]
    actions_of = [actions(*((kind, 0, at, at + 5) for kind, at in loop), stage=-1) for loop in (first, second)]

    found = follow(actions_of, messages)

    assert found is not None
    assert [found[number].stage.tolist() for number in (0, 1)] == [[0] * 8, [1] * 8]
    assert found[1].microbatch.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
