"""Rates of trainers that do not wait for each other, and who waits for whom where a server makes them wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.exchanges import rank, run_of, send
from tests.unit.rpc.simulated import Exchange
from tracekit.explain.step_time.tables import NamedWait
from tracekit.findings.finding import Finding, held
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary
from tracekit.rpc.remote_calls import held_calls, trainer_findings, trainer_rows

MS = 1_000_000


def trainer(number: int, steps_ms: Sequence[float], compute_ms: float = 8, **others: Any) -> RankSummary:
    """Return a trainer with steps of these lengths, in each of which it waits 2 ms for remote calls."""
    summary = rank(
        number,
        steps=range(len(steps_ms)),
        strategies=("rpc",),
        named_waits=(NamedWait(what="remote calls", total_ns=2 * MS * len(steps_ms)),),
        **others,
    )
    steps = [
        replace(step, step_ns=round(length_ms * MS), compute_ns=round(compute_ms * MS), idle_ns=0)
        for step, length_ms in zip(summary.steps, steps_ms, strict=True)
    ]
    return replace(summary, steps=tuple(steps))


def run_with(*trainers: RankSummary) -> Run:
    return run_of([rank(0, steps=(), serves_only=True, strategies=("rpc",)), *trainers])


def exchange_of(trainers: int, steps: int = 3) -> Exchange:
    """Return an exchange in which all pull, then push in turn."""
    exchange = Exchange(trainers)
    for step in range(steps):
        for number in range(1, trainers + 1):
            exchange.call(number, "pull", 1000 * step + 20 * number, step=step)
        for number in range(1, trainers + 1):
            exchange.call(number, "push", 1000 * step + 500 + 20 * number, step=step)
    return exchange


def findings_of(run: Run, exchange: Exchange) -> list[Finding]:
    joined = exchange.joined()
    return list(held(trainer_findings(run, joined, held_calls(joined))))


def test_a_slow_trainer_is_named_with_its_rate_and_nobody_waits_for_it() -> None:
    """GIVEN steps of 50 ms, of which 48 compute, beside steps of 10 ms, of which 8 compute."""
    run = run_with(trainer(1, [10, 10, 10]), trainer(2, [50, 50, 50], compute_ms=48), trainer(3, [10, 10, 10]))

    (finding,) = findings_of(run, exchange_of(3))

    assert finding.text == "Slow rank: trainer2 (rank 2) makes 20 steps a second, its peers 100. Nobody waits for it"
    assert finding.action == (
        "compare what it runs with its peers: a step computes 40.0 ms longer. "
        "The job would make 300 steps a second, not 220"
    )
    assert (finding.rank, finding.cause, finding.saving_ns, finding.remedy) == (2, "slow_compute", None, None)
    assert finding.time_ns == 40 * MS // 3  # its part of the mean step over trainers
    assert finding.evidence["steps_per_s"] == pytest.approx(20)


def test_there_is_nothing_to_say_of_trainers_at_one_rate() -> None:
    assert findings_of(run_with(trainer(1, [10, 11, 10]), trainer(2, [11, 10, 10])), exchange_of(2)) == []


def test_where_trainers_meet_in_collectives_or_messages_other_sections_say_who_waits() -> None:
    slow = trainer(2, [50, 50, 50], compute_ms=48, messages=[send(1, 5)])

    assert findings_of(run_with(trainer(1, [10, 10, 10]), slow), exchange_of(2)) == []


def held_exchange(late: int, held_ns: int) -> Exchange:
    """Return an exchange in which the call of one trainer completes those of the two others, which waited."""
    exchange = Exchange(3)
    for step in range(3):
        at_ns = step * 100 * MS
        for number in {1, 2, 3} - {late}:
            exchange.call(number, "exchange", at_ns, step=step, lasts_ns=held_ns + 5, returned_ns=at_ns + 4)
        last = exchange.call(late, "exchange", at_ns + held_ns, step=step, returned_ns=at_ns + held_ns + 5)
        for position, service in enumerate(exchange.services):
            if service.caller != late and service.released_by is None:
                exchange.services[position] = released = replace(service, released_by=last)
                calls = exchange.calls[service.caller]
                calls[-1] = replace(calls[-1], service=released)
    return exchange


def test_a_trainer_whose_call_others_wait_for_at_the_server_is_named_with_their_wait() -> None:
    """GIVEN a synchronous server: it answers when the call of trainer 2, which computes 40 ms longer, has come."""
    run = run_with(trainer(1, [50] * 3), trainer(2, [50] * 3, compute_ms=48), trainer(3, [50] * 3))

    (finding,) = findings_of(run, held_exchange(2, 40 * MS))

    assert (finding.evidence["callee"], finding.evidence["longer_ns"]) == ("ps", 40 * MS)
    assert (finding.rank, finding.cause, finding.time_ns) == (2, "slow_compute", 40 * MS)


def test_trainers_that_wait_for_each_other_by_turns_are_not_blamed() -> None:
    run = run_with(*(trainer(number, [50] * 3) for number in (1, 2, 3)))

    assert findings_of(run, held_exchange(2, MS // 10)) == []


def test_the_row_of_a_trainer_has_its_rate_and_its_waits() -> None:
    run = run_with(trainer(1, [10, 10, 20]), trainer(2, [10, 10, 10]))
    joined = exchange_of(2).joined()

    row, _ = trainer_rows(run, joined, held_calls(joined))

    assert (row["rank"], row["worker"], row["steps"]) == (1, "trainer1", 3)
    assert row["steps_per_s"] == pytest.approx(75)
    assert row["wait_ns"] == pytest.approx(2 * MS)
