"""How long what one stage sends another is on its way, and when its receive was posted."""

from __future__ import annotations

import numpy as np

from tests.unit.analysis.exchanges import Message, actions, rank, recv, run_of, send
from tracekit.analysis.matching.messages import match_messages
from tracekit.analysis.pipeline.parts import Actions
from tracekit.analysis.pipeline.steps import Program, pipeline_steps
from tracekit.analysis.pipeline.transfers import Edges, Transfers, edges_between_ranks, transfers_of
from tracekit.model.metadata import PipelineLayout


def transfers(
    first: Actions, second: Actions, sent: list[Message] | None = None, received: list[Message] | None = None
) -> tuple[Edges, Transfers]:
    """Of two stages, one a rank."""
    layout = PipelineLayout(schedule="gpipe", stages=2, virtual_stages=1, microbatches=2, stage_ids=[0])
    members = [
        rank(i, messages or [], actions=own, pipeline=layout, pipeline_ranks=(0, 1))
        for i, (own, messages) in enumerate(((first, sent), (second, received)))
    ]
    run = run_of(members)
    matched, _ = match_messages(members, run.clocks)
    run = run_of(members, messages=matched)
    (steps,) = pipeline_steps(run, members, {0: first, 1: second})
    (program,) = steps.programs or ()
    assert isinstance(program, Program)
    edges = edges_between_ranks(program.rank, program.kind, program.stage, program.microbatch)
    return edges, transfers_of(run, steps.ranks, program, edges)


def test_a_transfer_begins_when_it_was_made_and_its_receive_was_posted() -> None:
    """F0 is there at 10, but received from 30 to 36 only, when the rank was done with something else."""
    first, second = actions(("F", 0, 0, 10)), actions(("F", 0, 40, 50), stage=1)
    edges, found = transfers(first, second, [send(1, 10, took_ns=26)], [recv(0, 30, took_ns=6)])
    assert (edges.producers.tolist(), edges.consumers.tolist(), edges.previous.tolist()) == ([0], [1], [-1])
    assert found.posted_after.tolist() == [-1]
    assert (found.took_ns.tolist(), found.visible.tolist()) == ([[26]], [[True]])


def test_a_receive_that_was_posted_early_hides_its_transfer() -> None:
    """The receive for F1 is posted before F0 runs, and found complete right after it."""
    first = actions(("F", 0, 0, 10), ("F", 1, 10, 20))
    second = actions(("F", 0, 15, 45), ("F", 1, 46, 76), stage=1)
    sent = [send(1, 10, took_ns=5), send(1, 20, took_ns=25)]
    early = [recv(0, 0, took_ns=15), recv(0, 1, took_ns=44)]
    _, found = transfers(first, second, sent, early)
    assert found.posted_after.tolist() == [-1, -1]
    assert found.took_ns.tolist() == [[5], [25]]  # at most: the rank ran F0 meanwhile
    assert found.visible.tolist() == [[True], [False]]


def test_a_receive_that_is_posted_when_it_is_needed_hides_nothing() -> None:
    first = actions(("F", 0, 0, 10), ("F", 1, 10, 20))
    second = actions(("F", 0, 15, 45), ("F", 1, 52, 76), stage=1)
    sent = [send(1, 10, took_ns=5), send(1, 20, took_ns=30)]
    late = [recv(0, 0, took_ns=15), recv(0, 45, took_ns=5)]
    edges, found = transfers(first, second, sent, late)
    assert found.posted_after.tolist() == edges.previous.tolist() == [-1, 2]
    assert (found.took_ns.tolist(), found.visible.tolist()) == ([[5], [5]], [[True], [True]])


def test_of_an_output_in_several_messages_the_last_counts() -> None:
    first, second = actions(("F", 0, 0, 10)), actions(("F", 0, 25, 35), stage=1)
    sent = [send(1, 10, took_ns=3), send(1, 11, took_ns=13)]
    _, found = transfers(first, second, sent, [recv(0, 0, took_ns=13), recv(0, 1, took_ns=23)])
    assert found.took_ns.tolist() == [[14]]


def test_without_messages_a_transfer_ends_when_its_consumer_begins() -> None:
    first = actions(("F", 0, 0, 10), ("F", 1, 10, 20))
    second = actions(("F", 0, 15, 45), ("F", 1, 48, 76), stage=1)
    _, found = transfers(first, second)
    assert found.took_ns.tolist() == [[5], [3]]


def test_actions_of_one_rank_send_each_other_nothing() -> None:
    """GIVEN a V: stages 1 and 2 are on rank 1."""
    place = np.array([0, 0, 1, 1], dtype=np.int64)
    stage = np.array([0, 3, 1, 2], dtype=np.int32)
    same = np.zeros(4, dtype=np.int32)
    edges = edges_between_ranks(place, same, stage, same)
    assert sorted(zip(edges.producers.tolist(), edges.consumers.tolist(), strict=True)) == [(0, 2), (3, 1)]
