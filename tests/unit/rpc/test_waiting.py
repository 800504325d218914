"""Where the most waited-for call spends its time decides what to do about it."""

from __future__ import annotations

import pytest

from benchmarks.exchanges import rank, run_of
from tests.unit.rpc.test_trainers import MS, trainer
from tracekit.explain.step_time.tables import NAMED_WAITS, NamedWait
from tracekit.findings.finding import Finding, held
from tracekit.rpc.calls import CallSums, function_rows
from tracekit.rpc.remote_calls import waiting_findings


def findings_of(
    service_ms: float,
    cpu_ms: float | None,
    *,
    held_ms: float = 0,
    wait_ms: float = 30,
    load: float = 1.0,
    threads: int | None = 16,
) -> list[Finding]:
    """Return the findings on a trainer with one pull of 30 ms in a step of 100 ms."""
    waits = (NamedWait(what="remote calls", total_ns=round(wait_ms * MS)),)
    summary = trainer(1, [100]).with_part(NAMED_WAITS, waits)
    sums = {
        1: {
            ("ps", "pull"): CallSums(
                wait_ns=round(wait_ms * MS),
                calls=1,
                joined=1,
                completed=1,
                round_trip_ns=30 * MS,
                service_ns=round(service_ms * MS),
                held_ns=round(held_ms * MS),
                cpu_ns=None if cpu_ms is None else round(cpu_ms * MS),
            )
        }
    }
    run = run_of([rank(0, steps=(), serves_only=True), summary])
    servers = [{"worker": "ps", "load": load, "threads": threads}]
    return list(waiting_findings(run, sums, function_rows(run, sums), servers))


@pytest.mark.parametrize(
    ("service_ms", "cpu_ms", "text", "action"),
    [
        (27, 26, "90% of a round trip is service there", "make pull faster, or spread it over more processes than ps"),
        (
            27,
            None,
            "90% of a round trip is service there",
            "make pull faster, or spread it over more processes than ps",
        ),
        (27, 2.7, "service there, 10% of that on a CPU", "make pull faster: see what it waits for on ps"),
        (3, 2, "10% of a round trip is service there", "send less to ps, in fewer calls, or ahead of need"),
    ],
)
def test_the_action_is_for_what_takes_the_time(service_ms: float, cpu_ms: float | None, text: str, action: str) -> None:
    (finding,) = findings_of(service_ms, cpu_ms)

    assert (finding.evidence["wait_share"], finding.evidence["function"]) == (pytest.approx(0.3), "pull")
    assert finding.text.endswith(text)
    assert (finding.action or "").startswith(action)
    assert finding.time_ns == 30 * MS


def test_calls_that_wait_for_a_thread_ask_for_more_threads() -> None:
    (finding,) = findings_of(3, 2, load=3.5, threads=4)

    assert finding.text.endswith("10% of a round trip is service there. Its 4 threads are busy")
    assert finding.action == "give ps more threads (num_worker_threads), or serve from more processes"
    assert (finding.evidence["server_load"], finding.evidence["server_threads"]) == (3.5, 4)


def test_a_server_that_waits_for_the_calls_of_others_is_not_slow_itself() -> None:
    (finding,) = findings_of(27, 0.1, held_ms=20)

    assert finding.text.endswith("90% of a round trip is service there, mostly until other calls have come")
    assert (finding.action or "").startswith("let ps answer before all calls have come")


def test_waits_below_a_fifth_of_the_step_are_no_finding() -> None:
    assert held(findings_of(27, 26, wait_ms=19)) == ()
