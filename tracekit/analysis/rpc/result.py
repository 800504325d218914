"""What the section on remote calls returns. A run without RPC needs it, but not what computes it."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.analysis.finding import Finding
from tracekit.analysis.rpc import columns
from tracekit.analysis.table import Frame

__all__ = ["RemoteCalls"]


@dataclass(frozen=True, kw_only=True)
class RemoteCalls:
    """Remote calls of all ranks; empty without RPC.

    Attributes:
        calls: rows of columns.RPC, the calls that a rank issued in its complete steps.
        by_function: rows of columns.RPC_BY_FUNCTION, the most waited for first.
        unjoined: rows of columns.RPC_UNJOINED.
        trainers: rows of columns.RPC_TRAINERS.
        servers: rows of columns.RPC_SERVERS, the busiest first.
        service: rows of columns.RPC_SERVICE.
        updates: rows of columns.RPC_UPDATES, in order of rank and issue.
    """

    calls: Frame = Frame(columns.RPC)
    by_function: Frame = Frame(columns.RPC_BY_FUNCTION)
    unjoined: Frame = Frame(columns.RPC_UNJOINED)
    trainers: Frame = Frame(columns.RPC_TRAINERS)
    servers: Frame = Frame(columns.RPC_SERVERS)
    service: Frame = Frame(columns.RPC_SERVICE)
    updates: Frame = Frame(columns.RPC_UPDATES)
    findings: tuple[Finding, ...]

    @classmethod
    def empty(cls) -> RemoteCalls:
        """Return the result of a run without RPC."""
        return cls(calls=[], by_function=[], unjoined=[], trainers=[], servers=[], service=[], updates=[], findings=())
