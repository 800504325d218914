"""Remote calls between simulated workers, with known times in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tracekit.findings.finding import held
from tracekit.loading.load import load
from tracekit.model.metadata import RpcCall, RpcCallKind, RpcService, RpcUse, RpcWait
from tracekit.model.table import records
from tracekit.report.report import Report, analyze

Analyse = Callable[..., Report]


@pytest.fixture
def analyse(tmp_path: Path) -> Analyse:
    def run(*traces: TraceBuilder, ranks: Sequence[int] | None = None) -> Report:
        for trace in traces:
            trace.write(tmp_path / f"rank{trace.rank}.json")
        return analyze(load(tmp_path, ranks=ranks))

    return run


def worker(name: str, rank: int, *, steps: Sequence[int] = (), skew_ms: int = 0, **what: Any) -> TraceBuilder:
    """A worker with steps of 100 ms that begin at `steps`; its clock is `skew_ms` ahead."""
    trace = TraceBuilder(rank=rank, world_size=2)
    for number, at_ms in enumerate(steps):
        trace.step(number, at_ms * 1000, 100 * 1000)
    trace.label("tracekit.rpc:serve.0.0 f", 0, 1)  # no recording is empty
    trace.capture(groups=[])
    assert trace.metadata is not None
    ns = lambda ms: trace.wall_ns((ms + skew_ms) * 1000)  # noqa: E731
    use = RpcUse(
        worker=name,
        worker_id=rank,
        calls=[
            RpcCall(
                number=number,
                callee=callee,
                function=function,
                kind=kind,
                issued_ns=ns(issued),
                done_ns=None if done is None else ns(done),
            )
            for number, callee, function, kind, issued, done in what.get("calls", ())
        ],
        services=[
            RpcService(caller=caller, number=number, function="pull", start_ns=ns(start), end_ns=ns(end))
            for caller, number, start, end in what.get("services", ())
        ],
        waits=[
            RpcWait(start_ns=ns(start), end_ns=ns(end), number=number[0] if number else None)
            for start, end, *number in what.get("waits", ())
        ],
    )
    trace.metadata = replace(trace.metadata, rpc=use, strategies=["rpc"])
    return trace


def call(
    number: int, issued: int, done: int | None, *, kind: RpcCallKind = "call", function: str = "pull"
) -> tuple[int, str, str, RpcCallKind, int, int | None]:
    return number, "ps", function, kind, issued, done


def test_a_round_trip_is_service_and_the_rest_whatever_the_clocks(analyse: Analyse) -> None:
    """
    trainer  call 0: 10-60, waits 15-60    call 1: 110-140, waits 120-130
    ps               20-50                         115-135         its clock is 7 s ahead
    """
    trainer = worker(
        "trainer", 1, steps=[0, 100], calls=[call(0, 10, 60), call(1, 110, 140)], waits=[(15, 60), (120, 130)]
    )
    server = worker("ps", 0, skew_ms=7_000, services=[(1, 0, 20, 50), (1, 1, 115, 135)])
    report = analyse(trainer, server)

    assert report.rpc is not None
    (row,) = records(report.rpc.calls)
    assert row == {
        "rank": 1,
        "worker": "trainer",
        "callee": "ps",
        "callee_rank": 0,
        "function": "pull",
        "calls": 2,
        "joined": 2,
        "wait_ns": 55_000_000,
        "completed": 2,
        "round_trip_ns": 80_000_000,
        "service_ns": 50_000_000,
        "transit_ns": 30_000_000,
    }
    (mean,) = records(report.rpc.by_function)
    assert (mean["calls"], mean["wait_ns"], mean["round_trip_ns"], mean["service_ns"], mean["transit_ns"]) == (
        1,
        27_500_000,
        40_000_000,
        25_000_000,
        15_000_000,
    )
    assert records(report.rpc.unjoined) == []


def test_a_server_without_steps_is_not_compared_with_other_ranks(analyse: Analyse) -> None:
    trainer = worker("trainer", 1, steps=[0, 100], calls=[call(0, 10, 60)], waits=[(10, 60)])
    server = worker("ps", 0, services=[(1, 0, 20, 50)])
    run = analyse(trainer, server).run

    assert [summary.serves_only for summary in run.ranks] == [True, False]
    assert run.common_steps() == {0, 1}
    assert [note.text for note in run.notes if note.rank == 0 or note.id in {"step-mismatch", "no-steps"}] == []


def test_waiting_counts_while_a_call_is_in_flight_and_a_step_runs(analyse: Analyse) -> None:
    """GIVEN a wait for something else (5-8), for two calls (50-70), and across the end of the last step (190-220)."""
    calls = [call(0, 40, 60), call(1, 45, 70, function="push"), call(2, 185, 220)]
    trainer = worker("trainer", 1, steps=[0, 100], calls=calls, waits=[(5, 8), (50, 70), (190, 220)])
    server = worker("ps", 0, services=[(1, 0, 45, 50), (1, 1, 50, 60), (1, 2, 190, 200)])
    report = analyse(trainer, server)

    assert report.rpc is not None
    waits = {row["function"]: row["wait_ns"] for row in records(report.rpc.calls)}
    assert waits == {"pull": 10_000_000 + 10_000_000, "push": 20_000_000}
    assert held(report.rpc.findings) == ()  # 30 ms of 200 are too few


def test_a_wait_for_one_call_is_not_for_another_in_flight(analyse: Analyse) -> None:
    """GIVEN a push that nobody waits for, in flight while the thread waits for the next pull."""
    calls = [call(0, 10, 80, function="push"), call(1, 20, 70)]
    trainer = worker("trainer", 1, steps=[0], calls=calls, waits=[(25, 70, 1)])
    report = analyse(trainer, worker("ps", 0, services=[(1, 0, 40, 50), (1, 1, 30, 60)]))

    assert report.rpc is not None
    waits = {row["function"]: row["wait_ns"] for row in records(report.rpc.calls)}
    assert waits == {"push": 0, "pull": 45_000_000}


def test_calls_before_and_after_the_steps_do_not_count(analyse: Analyse) -> None:
    trainer = worker("trainer", 1, steps=[100], calls=[call(0, 50, 120), call(1, 110, 120), call(2, 200, 210)])
    report = analyse(trainer, worker("ps", 0, services=[(1, 0, 60, 70), (1, 1, 111, 112), (1, 2, 201, 202)]))

    assert report.rpc is not None
    assert [(row["calls"], row["joined"], row["service_ns"]) for row in records(report.rpc.calls)] == [
        (1, 1, 1_000_000)
    ]


def test_remote_calls_that_bound_the_step_are_the_finding(analyse: Analyse) -> None:
    trainer = worker("trainer", 1, steps=[0], calls=[call(0, 0, 80), call(1, 80, 90, function="push")], waits=[(0, 90)])
    report = analyse(trainer, worker("ps", 0, services=[(1, 0, 10, 70), (1, 1, 82, 84)]))

    finding = report.findings[0]
    assert (finding.cause, finding.saving_ns, finding.time_ns) == ("rpc", None, 90_000_000)
    assert finding.action is not None
    assert "make pull faster" in finding.action  # the service is most of the round trip
    assert "no part of the replay" in str(finding.evidence.pop("no_replay"))
    assert finding.evidence == {
        "section": "rpc",
        "wait_share": 0.9,
        "callee": "ps",
        "function": "pull",
        "round_trip_ns": 80_000_000,
        "service_ns": 60_000_000,
        "transit_ns": 20_000_000,
        "cpu_ns": None,
        "held_ns": 0,
        "server_load": 0.62,
        "server_threads": None,
    }


def test_less_is_to_be_sent_where_transit_is_most_of_a_round_trip(analyse: Analyse) -> None:
    trainer = worker("trainer", 1, steps=[0], calls=[call(0, 0, 80)], waits=[(0, 80)])
    finding = analyse(trainer, worker("ps", 0, services=[(1, 0, 10, 30)])).findings[0]
    assert (finding.evidence["service_ns"], finding.evidence["transit_ns"]) == (20_000_000, 60_000_000)
    assert str(finding.action).startswith("send less to ps")


def test_each_reason_not_to_be_joined_is_reported(analyse: Analyse) -> None:
    calls = [
        call(0, 10, 20),
        call(1, 30, None),
        call(2, 40, 50, kind="builtin", function="aten::add"),
        call(3, 50, 60, kind="fetch", function="to_here"),
        call(4, 60, 70, kind="script", function="f"),
    ]
    report = analyse(worker("trainer", 1, steps=[0], calls=calls), worker("ps", 0, services=[(1, 9, 11, 12)]))

    assert report.rpc is not None
    assert {row["reason"]: row["count"] for row in records(report.rpc.unjoined)} == {
        "served outside the callee's recording": 1,
        "not over when the recording ended": 1,
        "a call of a builtin operator carries no id": 1,
        "the fetch of a remote value carries no id": 1,
        "a call of a TorchScript function carries no id": 1,
    }
    assert [row["round_trip_ns"] for row in records(report.rpc.calls)] == [None] * 4
    assert sum(note.id == "unlinked" for note in report.run.notes) == 5


def test_a_callee_without_a_recording_is_a_warning_with_the_remedy(analyse: Analyse) -> None:
    trainer = worker("trainer", 1, steps=[0], calls=[call(0, 0, 80)], waits=[(0, 80)])
    report = analyse(trainer)

    (note,) = [note for note in report.run.notes if note.id == "unlinked"]
    assert (note.severity, note.rank) == ("warning", 1)
    assert note.text == (
        "rank 1: 1 remote call to ps not joined to a service: the callee has no recording, so what they wait for is "
        "not known; make the probe there too, before init_rpc"
    )
    finding = report.findings[0]
    assert (finding.cause, finding.evidence["callee"], finding.evidence["function"]) == ("rpc", "ps", "pull")
    assert "service_ns" not in finding.evidence
    assert finding.action is not None
    assert finding.action.startswith("record ps too")


def test_a_callee_that_was_not_selected_is_not_reported(analyse: Analyse) -> None:
    trainer = worker("trainer", 1, steps=[0], calls=[call(0, 0, 80)])
    report = analyse(trainer, worker("ps", 0, services=[(1, 0, 10, 70)]), ranks=[1])

    assert [note.text for note in report.run.notes if note.id == "unlinked"] == []


def test_an_unfinished_call_is_joined_without_a_round_trip(analyse: Analyse) -> None:
    trainer = worker("trainer", 1, steps=[0], calls=[call(0, 10, None), call(1, 10, 40)], waits=[(20, 90)])
    report = analyse(trainer, worker("ps", 0, services=[(1, 0, 20, 120), (1, 1, 20, 30)]))

    assert report.rpc is not None
    (row,) = records(report.rpc.calls)
    assert (row["calls"], row["joined"], row["completed"], row["round_trip_ns"], row["wait_ns"]) == (
        2,
        2,
        1,
        30_000_000,
        70_000_000,
    )
