"""The table of remote calls: the most waited for, with names that fit."""

from __future__ import annotations

from typing import Any

from tracekit.analysis.rpc.calls import RemoteCalls
from tracekit.render.console import write
from tracekit.render.sections.parallelism.rpc import rpc_table

PULL = {
    "callee": "ps", "function": "pull", "ranks": 2, "calls": 1.5, "wait_ns": 27.5e6, "round_trip_ns": 40e6,
    "service_ns": 25e6, "transit_ns": 15e6, "worst_rank": 1, "worst_wait_ns": 30e6,
}  # fmt: skip


def table_lines(*rows: dict[str, Any]) -> list[str]:
    result = RemoteCalls(calls=[], by_function=list(rows), unjoined=[], findings=())
    text = write(rpc_table(result), width=80, color=False)
    return [line for line in text.splitlines() if line]


def test_a_row_is_a_function_at_a_callee() -> None:
    unjoined = PULL | {"function": "push", "round_trip_ns": None, "service_ns": None, "transit_ns": None}

    joined, other = (line.split() for line in table_lines(PULL, unjoined)[-2:])

    assert joined == ["pull", "ps", "1.5", "27.50", "40.00", "25.00", "15.00", "1:", "30.00"]
    assert other == ["push", "ps", "1.5", "27.50", "n/a", "n/a", "n/a", "1:", "30.00"]


def test_long_names_keep_their_end() -> None:
    line = table_lines(PULL | {"function": "library.Parameters.push_all"})[-1]

    assert line.split()[0] == "…Parameters.push_all"


def test_twelve_rows_are_shown_and_the_others_counted() -> None:
    lines = table_lines(*(PULL | {"function": f"pull{number}"} for number in range(15)))

    assert "12 of 15 rows, --json has all" in " ".join(lines)
    assert sum(line.strip().startswith("pull") for line in lines) == 12
