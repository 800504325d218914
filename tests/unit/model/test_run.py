"""The steps and command-line arguments of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.exchanges import rank, recv, run_of, send
from tracekit.model.run import OtherRun


def test_steps_are_compared_that_all_ranks_completed() -> None:
    """GIVEN step 2 cut off on rank 1, and step 3 recorded by rank 0 alone THEN step 1, of 100 and 300 ns, is common."""
    first, second = rank(0, steps=(1, 2, 3)), rank(1, steps=(1, 2))
    lengths = (replace(second.steps[0], step_ns=300), replace(second.steps[1], complete=False))

    run = run_of([first, replace(second, steps=lengths)])

    assert run.common_steps() == {1}
    assert run.mean_rank_step_ns() == 200


@pytest.mark.parametrize(
    ("others", "selected", "expected"),
    [
        ((), None, ["run"]),
        ((), (0, 2), ["run", "--ranks", "0,2"]),
        ((("run-2", 0),), None, ["run", "--run", "run-1"]),
        ((("run-1", 0),), None, ["run", "--run", "run-1", "--attempt", "1"]),
    ],
)
def test_the_arguments_select_the_same_run_again(
    others: tuple[tuple[str, int], ...], selected: tuple[int, ...] | None, expected: list[str]
) -> None:
    other_runs = tuple(OtherRun(run_id=name, attempt=attempt, ranks=1, start_ns=None) for name, attempt in others)

    assert run_of([rank(0)], attempt=1, other_runs=other_runs, selected_ranks=selected).arguments == expected


def test_ranks_without_messages_or_collectives_are_independent() -> None:
    assert run_of([rank(0), rank(1)]).ranks_are_independent
    assert not run_of([rank(0)]).ranks_are_independent
    assert not run_of([rank(0), rank(1, [send(0, 5)])]).ranks_are_independent


def test_ranks_that_wait_in_messages_of_unknown_peers_are_not_independent() -> None:
    waiting = rank(1)
    waiting = replace(waiting, steps=tuple(replace(step, exposed_comm_ns=5) for step in waiting.steps))

    assert not run_of([rank(0), waiting]).ranks_are_independent


def test_an_rpc_server_is_no_rank_that_trains() -> None:
    server = rank(0, steps=(), serves_only=True)

    assert not run_of([server, rank(1)]).ranks_are_independent
    assert run_of([server, rank(1), rank(2)]).ranks_are_independent


@pytest.mark.parametrize(("peer", "expected"), [(0, True), (1, False)])
def test_ranks_that_send_to_a_server_alone_are_independent(peer: int, expected: bool) -> None:
    server = rank(0, [recv(2, 5)], steps=(), serves_only=True)

    assert run_of([server, rank(1), rank(2, [send(peer, 5)])]).ranks_are_independent is expected


def test_gpu_ranks_are_independent_only_if_they_make_remote_calls() -> None:
    """Because kernels that no rule is for may communicate."""
    ranks = [rank(number, device="gpu") for number in range(2)]

    assert not run_of(ranks).ranks_are_independent
    assert run_of([replace(summary, strategies=("rpc",)) for summary in ranks]).ranks_are_independent
