"""Remote calls beside their tables: how busy servers are, and what the JSON result has of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit.analysis.table import rows_of
from tracekit.model.quantities import figures, percent
from tracekit.rpc.tables import RemoteCalls

__all__ = ["RPC_TABLES", "lines_of_servers"]

RPC_TABLES = ("calls", "unjoined", "trainers", "servers", "service")


def lines_of_servers(rpc: RemoteCalls) -> list[str]:
    """Return how busy each server is, where it is known which calls it served."""
    return [_busy(row) for row in rows_of(rpc, "servers")] if rows_of(rpc, "service") else []


def _busy(row: Mapping[str, Any]) -> str:
    threads = "" if row["threads"] is None else f" of {row['threads']} threads"
    cpu = "" if row["cpu_load"] is None else f", {figures(row['cpu_load'])} of them on a CPU"
    text = f"{row['worker']} serves {figures(row['load'])} calls at a time{threads}{cpu}"
    if row["callers"] > 1 and row["main_caller_share"] is not None:
        text += f"; the largest part is rank {row['main_caller']}'s, {percent(row['main_caller_share'])}"
    return text
