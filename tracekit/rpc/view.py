"""Remote calls in the terminal: what the step waits for, where a round trip goes, and how trainers and servers fare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit.analysis.table import rows_of
from tracekit.model.quantities import milliseconds
from tracekit.render.console import statement, table
from tracekit.render.section_view import SectionView
from tracekit.rpc.section import RPC_SECTION, RemoteCalls

_SHOWN = 12
_LONGEST_NAME = 20

__all__ = ["RPC_VIEW", "rpc_table", "servers_table", "trainers_table"]


def rpc_table(rpc: RemoteCalls) -> list[object]:
    rows = rows_of(rpc, "by_function")
    title = "Remote calls, the most waited for first (ms: the wait a step, the rest a call)"
    if len(rows) > _SHOWN:
        title += f"; {_SHOWN} of {len(rows)} rows, --json has all"
    cells = [
        (
            _shortened(row["function"]),
            row["callee"],
            f"{row['calls']:.3g}",
            milliseconds(row["wait_ns"]),
            *(
                "n/a" if row[part] is None else milliseconds(row[part])
                for part in ("round_trip_ns", "service_ns", "transit_ns")
            ),
            f"{row['worst_rank']}: {milliseconds(row['worst_wait_ns'])}",
        )
        for row in rows[:_SHOWN]
    ]
    columns = ("function", "callee", "calls", "wait", "round\ntrip", "service", "transit,\nqueue", "worst\nrank")
    return table(title, columns, cells, left=2)


def _shortened(name: str, longest: int = _LONGEST_NAME) -> str:
    """Return the end of a long name, which tells functions apart."""
    return name if len(name) <= longest else "…" + name[1 - longest :]


def trainers_table(rpc: RemoteCalls) -> list[object]:
    """Return the rate of each trainer, and what its steps wait for."""
    rows = rows_of(rpc, "trainers")
    cells = [
        (
            _shortened(row["worker"], 12),
            str(row["rank"]),
            _figures(row["steps_per_s"]),
            milliseconds(row["step_ns"]),
            milliseconds(row["compute_ns"]),
            milliseconds(row["wait_ns"]),
            milliseconds(row["held_ns"]),
        )
        for row in rows[:_SHOWN]
    ]
    columns = ("trainer", "rank", "steps\n/s", "step", "com-\npute", "waits", "held")
    title = "Trainers (ms a step; held: at a server, for another trainer's call)"
    if len(rows) > _SHOWN:
        title += f"; {_SHOWN} of {len(rows)} rows, --json has all"
    return table(title, columns, cells)


def servers_table(rpc: RemoteCalls) -> list[object]:
    """Return what keeps each server busy, and for whom."""
    rows = rows_of(rpc, "service")
    parts = ("request_ns", "service_ns", "cpu_ns", "held_ns", "reply_ns")
    cells = [
        (
            _shortened(row["function"], 14),
            _shortened(row["callee"], 10),
            str(row["rank"]),
            _figures(row["calls_per_s"]),
            *("n/a" if row[part] is None else milliseconds(row[part]) for part in parts),
            "n/a" if row["share"] is None else f"{row['share']:.0%}",
        )
        for row in rows[:_SHOWN]
    ]
    title = "Service by function and caller (ms a call; share: of the callee's service time)"
    if len(rows) > _SHOWN:
        title += f"; {_SHOWN} of {len(rows)} rows, --json has all"
    columns = ("function", "callee", "rank", "calls\n/s", "re-\nquest", "ser-\nvice", "CPU", "held", "reply", "share")
    busy = [statement("info", _busy(row)) for row in rows_of(rpc, "servers")]
    return [*table(title, columns, cells, left=2), *busy]


def _busy(row: Mapping[str, Any]) -> str:
    threads = "" if row["threads"] is None else f" of {row['threads']} threads"
    cpu = "" if row["cpu_load"] is None else f", {_figures(row['cpu_load'])} of them on a CPU"
    most = f"; the largest part is rank {row['main_caller']}'s, {row['main_caller_share']:.0%}"
    text = f"{row['worker']} serves {_figures(row['load'])} calls at a time{threads}{cpu}"
    return text + (most if row["callers"] > 1 and row["main_caller_share"] is not None else "")


def _figures(number: float | None) -> str:
    return "n/a" if number is None else f"{number:.3g}" if number >= 0.01 else f"{number:.2f}"


def _tables(result: RemoteCalls) -> list[object]:
    if not rows_of(result, "by_function"):
        return []
    tables = rpc_table(result)
    tables += trainers_table(result) if rows_of(result, "trainers") else []
    return tables + (servers_table(result) if rows_of(result, "service") else [])


RPC_VIEW = SectionView(
    section=RPC_SECTION,
    json=lambda result: {
        "rpc": {name: rows_of(result, name) for name in ("calls", "unjoined", "trainers", "servers", "service")}
    },
    text=lambda result, run, width: _tables(result),
)
