"""The section on remote calls: its analysis, its notes, the lines below its tables, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracekit.explain.section import AnalysisInput, Section
from tracekit.explain.step_time.tables import NAMED_WAITS
from tracekit.model.notes import Note
from tracekit.model.summary import RankSummary
from tracekit.model.table import rows_of
from tracekit.model.texts import figures, percent
from tracekit.rpc.calls import (
    REMOTE_CALLS,
    RPC,
    RPC_BY_FUNCTION,
    RPC_SERVERS,
    RPC_SERVICE,
    RPC_TRAINERS,
    RPC_UNJOINED,
    RemoteCalls,
    remote_calls_of,
    waits_of,
)

RPC_TABLES = ("calls", "unjoined", "trainers", "servers", "service")


def _analyze(given: AnalysisInput) -> RemoteCalls:
    if not _any_calls(given.run.ranks):
        return RemoteCalls.empty()
    # Imported here: neither a worker, which reads single ranks, nor a run without remote calls needs it.
    from tracekit.rpc.remote_calls import remote_calls

    return remote_calls(given.run)


def _any_calls(ranks: Sequence[RankSummary]) -> bool:
    return any(summary[REMOTE_CALLS] is not None for summary in ranks)


def _notes(ranks: Sequence[RankSummary], all_selected: bool) -> list[Note]:
    if not _any_calls(ranks):
        return []
    from tracekit.rpc.remote_calls import remote_call_notes

    return remote_call_notes(ranks, all_selected)


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


RPC_SECTION: Section[RemoteCalls] = Section(
    name="rpc",
    reads=(REMOTE_CALLS, NAMED_WAITS),
    keeps={REMOTE_CALLS: remote_calls_of},
    analyze=_analyze,
    notes=_notes,
    notes_read=(REMOTE_CALLS,),
    waits=waits_of,
    tables=(
        RPC,
        RPC_BY_FUNCTION,
        RPC_UNJOINED,
        RPC_TRAINERS,
        RPC_SERVERS,
        RPC_SERVICE,
    ),
)
