"""Remote calls of all ranks, each with its service at the callee and the step in which it was issued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.model.metadata import RpcCall, RpcService, RpcUse
from tracekit.model.summary import RankSummary
from tracekit.rpc.parts import REMOTE_CALLS

__all__ = ["JoinedCall", "JoinedCalls", "join_calls"]


@dataclass(frozen=True, kw_only=True)
class JoinedCall:
    """A call that a rank issued.

    Attributes:
        step: the complete step in which it was issued; None outside of them.
        service: what its callee recorded of it; None where it recorded nothing.
    """

    call: RpcCall
    step: int | None
    service: RpcService | None


@dataclass(frozen=True, kw_only=True)
class JoinedCalls:
    """The remote calls of a run.

    Attributes:
        uses: what each rank called and served, by rank.
        calls: of each of these ranks, in order of issue.
        services: all of them, by the caller's id and the number of the call.
        rank_of_worker: the rank of each worker that has a recording, by name.
        worker_of_id: the same workers by their id.
    """

    uses: Mapping[int, RpcUse]
    calls: Mapping[int, Sequence[JoinedCall]]
    services: Mapping[tuple[int, int], RpcService]
    rank_of_worker: Mapping[str, int]
    worker_of_id: Mapping[int, str]


def join_calls(ranks: Sequence[RankSummary]) -> JoinedCalls:
    """Return the remote calls of these ranks."""
    uses = {summary.rank: use for summary in ranks if (use := summary[REMOTE_CALLS]) is not None}
    services = {(service.caller, service.number): service for use in uses.values() for service in use.services}
    return JoinedCalls(
        uses=uses,
        calls={
            summary.rank: _calls_of(summary, uses[summary.rank], services) for summary in ranks if summary.rank in uses
        },
        services=services,
        rank_of_worker={use.worker: rank for rank, use in uses.items()},
        worker_of_id={use.worker_id: use.worker for use in uses.values()},
    )


def _calls_of(summary: RankSummary, use: RpcUse, services: Mapping[tuple[int, int], RpcService]) -> list[JoinedCall]:
    complete = sorted(
        (step.start_ns, step.start_ns + step.step_ns, step.step) for step in summary.steps if step.complete
    )
    starts_ns = np.array([start_ns for start_ns, _, _ in complete], dtype=np.int64)
    calls = sorted(use.calls, key=lambda call: call.issued_ns)
    places = np.searchsorted(starts_ns, np.array([call.issued_ns for call in calls], dtype=np.int64), side="right") - 1
    return [
        JoinedCall(
            call=call,
            step=complete[place][2] if place >= 0 and call.issued_ns < complete[place][1] else None,
            service=services.get((use.worker_id, call.number)),
        )
        for call, place in zip(calls, places.tolist(), strict=True)
    ]
