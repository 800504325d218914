"""The section of remote calls as a terminal of 80 columns shows it."""

from __future__ import annotations

from typing import Any

from tests.unit.render.sections.drawn import lines_of
from tracekit.rpc.calls import RemoteCalls

PULL = {
    "callee": "ps", "function": "pull", "ranks": 2, "calls": 1.5, "wait_ns": 27.5e6, "round_trip_ns": 40e6,
    "service_ns": 25e6, "cpu_ns": 20e6, "transit_ns": 15e6, "worst_rank": 1, "worst_wait_ns": 30e6,
}  # fmt: skip


def remote_lines(**tables: list[dict[str, Any]]) -> list[str]:
    names = ("calls", "by_function", "unjoined", "trainers", "servers", "service")
    empty: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    return lines_of("rpc", RemoteCalls(**empty | tables, findings=()))


def test_a_row_is_a_function_at_a_callee() -> None:
    unjoined = PULL | {"function": "library.Parameters.push_all"}
    unjoined |= {"round_trip_ns": None, "service_ns": None, "transit_ns": None}

    joined, other = (line.split() for line in remote_lines(by_function=[PULL, unjoined])[-2:])

    assert joined == ["pull", "ps", "1.5", "27.50", "40.00", "25.00", "15.00", "1:", "30.00"]
    assert other == ["…Parameters.push_all", "ps", "1.5", "27.50", "n/a", "n/a", "n/a", "1:", "30.00"]


def test_a_trainer_has_its_rate_and_what_its_steps_wait_for() -> None:
    row = {
        "worker": "trainer2", "rank": 2, "steps": 3, "step_ns": 60e6, "steps_per_s": 16.66, "compute_ns": 51e6,
        "wait_ns": 5e6, "held_ns": 0.0,
    }  # fmt: skip

    lines = remote_lines(trainers=[row])

    assert lines[-1].split() == ["trainer2", "2", "16.7", "60.00", "51.00", "5.00", "0.00"]


def test_a_server_has_a_row_for_each_caller_and_a_line_on_how_busy_it_is() -> None:
    row = {
        "callee": "ps", "function": "pull", "rank": 1, "calls_per_s": 9.81, "load": 0.5, "share": 0.625,
        "service_ns": 50e6, "cpu_ns": 2e6, "held_ns": 0.0, "request_ns": None, "reply_ns": None,
    }  # fmt: skip
    server = {
        "rank": 0, "worker": "ps", "callers": 2, "calls_per_s": 15.0, "load": 0.8, "cpu_load": 0.03, "threads": 16,
        "main_caller": 1, "main_caller_share": 0.625,
    }  # fmt: skip

    lines = remote_lines(service=[row], servers=[server])

    assert lines[-3].split() == ["pull", "ps", "1", "9.81", "n/a", "50.00", "2.00", "0.00", "n/a", "62%"]
    assert " ".join(" ".join(lines[-2:]).split()) == (
        "· ps serves 0.8 calls at a time of 16 threads, 0.03 of them on a CPU; the largest part is rank 1's, 62%"
    )
