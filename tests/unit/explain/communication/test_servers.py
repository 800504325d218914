"""How busy ranks are that serve others by messages, and who waits for whom there. Times are in ms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.exchanges import Message, rank, recv, run_of, send
from tracekit.explain.communication.servers import servers
from tracekit.findings.finding import Finding, held
from tracekit.model.summary import RankSummary

MS = 1_000_000


def message(make: Any, peer: int, start_ms: float, end_ms: float, step: int) -> Message:
    took_ns = round((end_ms - start_ms) * MS)
    made: Message = make(peer, round(start_ms * MS), took_ns=took_ns, step=step)
    return made


def server(number: int, served: Sequence[tuple[int, float, float, float]]) -> RankSummary:
    """Return a server. served: of each message the rank that sends it, and when the server began to wait, received
    and answered.
    """
    messages = []
    for step, (peer, since, received, answered) in enumerate(served):
        messages += [message(recv, peer, since, received, step), message(send, peer, answered, answered, step)]
    return rank(number, messages, steps=(), serves_only=True)


def worker(number: int, step_ms: float, waits: Sequence[tuple[float, float]], serving: int = 0) -> RankSummary:
    """Return a rank that computes but for these waits for its server, one a step."""
    messages, steps = [], []
    summary = rank(number, steps=range(len(waits)))
    for step, (since, answered) in enumerate(waits):
        messages += [message(send, serving, since, since, step), message(recv, serving, since, answered, step)]
        exposed_ns, length_ns = round((answered - since) * MS), round(step_ms * MS)
        times = {"start_ns": length_ns * step, "step_ns": length_ns, "exposed_comm_ns": exposed_ns}
        steps.append(replace(summary.steps[step], compute_ns=length_ns - exposed_ns, idle_ns=0, **times))
    return replace(summary, steps=tuple(steps), messages=rank(number, messages).messages)


def findings_of(*ranks: RankSummary) -> list[Finding]:
    return list(held(servers(run_of(ranks))[1]))


def test_a_server_that_is_always_busy_limits_those_that_wait_for_it() -> None:
    """GIVEN 30 ms of work on a gradient, and two ranks that send one in 60 ms each, and compute for 20."""
    busy = server(0, [(1, 0, 1, 31), (2, 31, 31, 61), (1, 61, 61, 91), (2, 91, 91, 121)])
    workers = [worker(number, 60, [(60 * step + 20, 60 * step + 60) for step in range(3)]) for number in (1, 2)]

    (row,), _ = servers(run_of([busy, *workers]))
    (finding,) = findings_of(busy, *workers)

    assert (row["workers"], row["work_ns"], row["wait_ns"], row["held_ns"]) == (2, 30 * MS, 40 * MS, 0)
    assert row["load"] == pytest.approx(1)
    assert (finding.id, finding.rank, finding.time_ns) == ("waiting-for-server", 0, 40 * MS)


def test_the_time_between_two_recordings_of_a_server_is_no_work() -> None:
    recorded = server(0, [(1, 0, 1, 31), (1, 31, 35, 65)])
    later = replace(recorded.messages, step=recorded.messages.step + 90, **_later(recorded, 5000 * MS))
    both = replace(recorded, messages=type(later).concatenate([recorded.messages, later]))

    (row,), _ = servers(run_of([both, worker(1, 60, [(20, 60)])]))

    assert row["work_ns"] == 30 * MS


def _later(summary: RankSummary, by_ns: int) -> dict[str, Any]:
    times = ("issue_ns", "ready_ns", "start_ns", "end_ns", "awaited_ns")
    return {name: getattr(summary.messages, name) + by_ns for name in times}


@pytest.mark.parametrize(("late", "others"), [(2, 1), (1, 2)])
def test_the_rank_that_a_synchronous_server_waits_for_is_named(late: int, others: int) -> None:
    """GIVEN steps of 60 ms, of which the late rank computes 59 and another one 20: that waits 39 for it."""
    gathers = [(late, 60 * step + 20, 60 * step + 59, 60 * step + 60) for step in range(3)]
    ranks = [worker(late, 60, [(60 * step + 59, 60 * step + 60) for step in range(3)])]
    ranks += [worker(others, 60, [(60 * step + 20, 60 * step + 60) for step in range(3)])]

    (finding,) = findings_of(server(0, gathers), *sorted(ranks, key=lambda summary: summary.rank))

    assert (finding.id, finding.rank, finding.cause) == ("waited-for-trainer", late, "slow_compute")
    assert (finding.time_ns, finding.evidence["longer_ns"]) == (39 * MS, 39 * MS)


def test_where_no_rank_is_slow_waiting_for_another_is_due_to_the_order_of_the_server() -> None:
    """GIVEN a server that receives from ranks in turn, of which one waits while it is the other's turn."""
    begins = range(0, 90, 30)
    turns = [turn for at in begins for turn in ((1, at, at + 14, at + 15), (2, at + 15, at + 29, at + 30))]
    workers = [worker(1, 30, [(at + 16, at + 29) for at in begins]), worker(2, 30, [(at, at + 14) for at in begins])]

    (finding,) = findings_of(server(0, turns), *workers)

    assert (finding.id, finding.rank) == ("waiting-for-server", None)
    assert finding.evidence["held_share"] >= 0.5


def test_a_rank_that_computes_longer_has_a_low_rate_and_its_peers_are_those_that_train() -> None:
    quick = server(0, [(1, 0, 1, 2), (2, 2, 3, 4)])
    slow = worker(1, 60, [(60 * step + 59, 60 * step + 60) for step in range(3)])
    peer = worker(2, 20, [(20 * step + 19, 20 * step + 20) for step in range(3)])

    (finding,) = findings_of(quick, slow, peer)

    assert (finding.id, finding.rank, finding.evidence["longer_ns"]) == ("slow-rate", 1, 40 * MS)
    assert finding.evidence["longer_parts_ns"] == {"compute": 40 * MS, "data": 0, "servers": 0, "host": 0}


def test_a_run_without_servers_has_no_rows() -> None:
    assert servers(run_of([rank(0), rank(1)])) == ([], [])
