"""How long transfers between stages take, and when their receives are posted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.exchanges import Message, actions, rank, recv, run_of, send
from tracekit.explain.pipeline.steps import ActionOrder, pipeline_steps
from tracekit.explain.pipeline.tables import Actions
from tracekit.explain.pipeline.transfers import (
    Edges,
    Transfers,
    edges_between_ranks,
    measure_transfers,
    message_exchanges,
)
from tracekit.job.messages import match_messages
from tracekit.model.metadata import PipelineLayout


def transfers(
    first: Actions,
    second: Actions,
    sent: list[Message] | None = None,
    received: list[Message] | None = None,
    second_begins_ns: Sequence[int] = (),
) -> tuple[Edges, Transfers]:
    """Return the edges and transfers of two stages, one a rank."""
    layout = PipelineLayout(schedule="gpipe", stages=2, virtual_stages=1, microbatches=2, stage_ids=[0])
    members = [
        rank(
            i,
            messages or [],
            steps=np.unique(rank_actions.step).tolist(),
            actions=rank_actions,
            pipeline=layout,
            pipeline_ranks=(0, 1),
        )
        for i, (rank_actions, messages) in enumerate(((first, sent), (second, received)))
    ]
    begins = zip(members[1].steps, second_begins_ns, strict=False)
    members[1] = replace(members[1], steps=tuple(replace(s, start_ns=ns) for s, ns in begins) or members[1].steps)
    run = run_of(members)
    matched, _ = match_messages(members, run.clocks)
    run = run_of(members, messages=matched)
    (steps,) = pipeline_steps(run, members, {0: first, 1: second})
    (order,) = steps.action_orders or ()
    assert isinstance(order, ActionOrder)
    edges = edges_between_ranks(order.rank, order.kind, order.stage, order.microbatch)
    return edges, measure_transfers(message_exchanges(run), steps.ranks, order, edges)


def test_a_transfer_begins_when_it_was_produced_and_its_receive_was_posted() -> None:
    """GIVEN F0 that ends at 10, and a receive that is posted at 30, by a late host, and ends at 36 THEN it took 6."""
    first, second = actions(("F", 0, 0, 10)), actions(("F", 0, 40, 50), stage=1)
    edges, measured = transfers(first, second, [send(1, 10, took_ns=26)], [recv(0, 30, took_ns=6)])
    assert (edges.producers.tolist(), edges.consumers.tolist(), edges.previous.tolist()) == ([0], [1], [-1])
    assert measured.posted_after.tolist() == [-1]
    assert (measured.took_ns.tolist(), measured.visible.tolist()) == ([[6]], [[True]])
    assert (measured.late_ns.tolist(), measured.late_sender.tolist()) == ([[20]], [[False]])


def test_a_receive_that_was_posted_early_hides_its_transfer() -> None:
    """The receive for F1 is posted before F0 runs, and is seen to be complete right after it."""
    first = actions(("F", 0, 0, 10), ("F", 1, 10, 20))
    second = actions(("F", 0, 15, 45), ("F", 1, 46, 76), stage=1)
    sent = [send(1, 10, took_ns=5), send(1, 20, took_ns=25)]
    early = [recv(0, 0, took_ns=15), recv(0, 1, took_ns=44)]
    _, measured = transfers(first, second, sent, early)
    assert measured.posted_after.tolist() == [-1, -1]
    assert measured.took_ns.tolist() == [[5], [25]]  # at most: the rank ran F0 meanwhile
    assert measured.visible.tolist() == [[True], [False]]


def test_an_output_in_several_messages_ends_with_the_last() -> None:
    first, second = actions(("F", 0, 0, 10)), actions(("F", 0, 25, 35), stage=1)
    sent = [send(1, 10, took_ns=3), send(1, 11, took_ns=13)]
    _, measured = transfers(first, second, sent, [recv(0, 0, took_ns=13), recv(0, 1, took_ns=23)])
    assert measured.took_ns.tolist() == [[14]]


def test_a_receiver_that_is_blocked_in_a_send_is_not_late() -> None:
    """GIVEN a receiver that waits for a send to somebody else until 30, and posts its receive at 32."""
    first, second = actions(("F", 0, 0, 10)), actions(("F", 0, 40, 50), stage=1)
    blocked = send(5, 1, took_ns=29, awaited_ns=1)

    _, measured = transfers(first, second, [send(1, 10, took_ns=26)], [blocked, recv(0, 32, took_ns=4)])

    assert (measured.late_ns.tolist(), measured.took_ns.tolist()) == ([[2]], [[4]])


def test_a_run_without_messages_has_no_exchanges() -> None:
    assert message_exchanges(run_of([rank(0), rank(1)])) == {}


def test_a_receiver_in_the_step_before_is_not_late() -> None:
    """GIVEN a receiver that is busy until 40, begins its step there and posts at once THEN nobody's host is late."""
    first = Actions.concatenate([actions(("F", 0, at, at + 10), step=step) for step, at in ((5, 0), (6, 20))])
    second = Actions.concatenate(
        [actions(("F", 0, at, at + 25), stage=1, step=step) for step, at in ((5, 15), (6, 42))]
    )
    sent = [send(1, 10, took_ns=4, step=5), send(1, 30, took_ns=11, step=6)]
    received = [recv(0, 12, took_ns=2, step=5), recv(0, 40, took_ns=1, step=6)]

    _, measured = transfers(first, second, sent, received, second_begins_ns=(0, 40))

    assert measured.late_ns.tolist() == [[2, 0]]
