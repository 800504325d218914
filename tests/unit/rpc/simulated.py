"""Remote calls of simulated workers, already joined. Times are ns."""

from __future__ import annotations

from typing import Any

from tracekit.model.metadata import RpcCall, RpcCallId, RpcService, RpcUse, RpcWait
from tracekit.rpc.calls import JoinedCall, JoinedCalls


class Exchange:
    """A server `ps` of rank 0 and its trainers, of rank and id 1 to `trainers`. Calls are served in order."""

    def __init__(self, trainers: int = 2) -> None:
        self.calls: dict[int, list[JoinedCall]] = {rank: [] for rank in range(1, trainers + 1)}
        self.waits: dict[int, list[RpcWait]] = {rank: [] for rank in range(1, trainers + 1)}
        self.services: list[RpcService] = []

    def call(
        self,
        rank: int,
        function: str,
        at_ns: int,
        *,
        step: int | None = 0,
        lasts_ns: int = 10,
        waited_ns: int | None = None,
        **others: Any,
    ) -> RpcCallId:
        """Let a trainer call the server. waited_ns: when it has waited for the result; by default when it is there."""
        number = sum(len(calls) for calls in self.calls.values())
        service = RpcService(
            caller=rank,
            number=number,
            function=function,
            start_ns=at_ns + 1,
            end_ns=at_ns + lasts_ns - 1,
            **others,
        )
        done_ns = at_ns + lasts_ns
        call = RpcCall(number=number, callee="ps", function=function, kind="call", issued_ns=at_ns, done_ns=done_ns)
        self.services.append(service)
        self.calls[rank].append(JoinedCall(call=call, step=step, service=service))
        self.waits[rank].append(RpcWait(start_ns=at_ns, end_ns=waited_ns or done_ns, number=number))
        return RpcCallId(caller=rank, number=number)

    def joined(self) -> JoinedCalls:
        server = RpcUse(worker="ps", worker_id=0, services=self.services, threads=16)
        trainers = {
            rank: RpcUse(worker=f"trainer{rank}", worker_id=rank, calls=[c.call for c in calls], waits=self.waits[rank])
            for rank, calls in self.calls.items()
        }
        uses = {0: server, **trainers}
        return JoinedCalls(
            uses=uses,
            calls={0: [], **self.calls},
            rank_of_worker={use.worker: rank for rank, use in uses.items()},
            rank_of_id={use.worker_id: rank for rank, use in uses.items()},
        )
