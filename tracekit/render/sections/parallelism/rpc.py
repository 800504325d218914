"""Remote calls in the terminal: what the step waits for, and where a round trip goes."""

from __future__ import annotations

from tracekit.analysis.rpc.calls import RemoteCalls
from tracekit.analysis.rpc.sections import RPC_SECTION
from tracekit.analysis.table import rows_of
from tracekit.render.console import table
from tracekit.render.quantities import milliseconds
from tracekit.render.section_view import SectionView

_SHOWN = 12
_LONGEST_NAME = 20

__all__ = ["RPC_VIEW", "rpc_table"]


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


def _shortened(name: str) -> str:
    """Return the end of a long name, which tells functions apart."""
    return name if len(name) <= _LONGEST_NAME else "…" + name[1 - _LONGEST_NAME :]


RPC_VIEW = SectionView(
    section=RPC_SECTION,
    json=lambda result: {"rpc": {"calls": rows_of(result, "calls"), "unjoined": rows_of(result, "unjoined")}},
    text=lambda result, run, width: rpc_table(result) if rows_of(result, "by_function") else [],
)
