"""Remote calls of simulated workers, already joined. Times are ns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracekit.model.metadata import RpcCall, RpcCallId, RpcOptimizer, RpcResult, RpcService, RpcUpdate, RpcUse, RpcWait
from tracekit.rpc.joined import JoinedCall, JoinedCalls

WEIGHT, BIAS = (4, 8), (4,)
PARAMETERS = RpcResult(key="parameters", shapes=[list(WEIGHT), list(BIAS)])
RESULTS = (
    PARAMETERS,
    RpcResult(key="weight", shapes=[list(WEIGHT)]),
    RpcResult(key="bias", shapes=[list(BIAS)]),
    RpcResult(key="loss", shapes=[[]]),
)


class Exchange:
    """A server `ps` of rank 0 and its trainers, of rank and id 1 to `trainers`. Calls are served in order."""

    def __init__(self, trainers: int = 2, *, counted: bool = True) -> None:
        self.counted = counted
        self.version = 0
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
        update: bool = False,
        returns: str | None = None,
        waited_ns: int | None = None,
        **others: Any,
    ) -> RpcCallId:
        """Let a trainer call the server. waited_ns: when it has waited for the result; by default when it is there."""
        number = sum(len(calls) for calls in self.calls.values())
        self.version += update
        service = RpcService(
            caller=rank,
            number=number,
            function=function,
            start_ns=at_ns + 1,
            end_ns=at_ns + lasts_ns - 1,
            updates=[RpcUpdate(optimizer=0, version=self.version)] if update else [],
            versions=[self.version] if self.counted and self.version else [] if self.counted else None,
            result=returns,
            **others,
        )
        done_ns = at_ns + lasts_ns
        call = RpcCall(number=number, callee="ps", function=function, kind="call", issued_ns=at_ns, done_ns=done_ns)
        self.services.append(service)
        self.calls[rank].append(JoinedCall(call=call, step=step, service=service))
        self.waits[rank].append(RpcWait(start_ns=at_ns, end_ns=waited_ns or done_ns, number=number))
        return RpcCallId(caller=rank, number=number)

    def pull(self, rank: int, at_ns: int, **others: Any) -> RpcCallId:
        return self.call(rank, "pull", at_ns, returns=PARAMETERS.key, **others)

    def push(self, rank: int, at_ns: int, **others: Any) -> RpcCallId:
        return self.call(rank, "push", at_ns, update=True, **others)

    def joined(self, shapes: Sequence[Sequence[int]] = (WEIGHT, BIAS)) -> JoinedCalls:
        optimizer = RpcOptimizer(number=0, shapes=[list(shape) for shape in shapes])
        server = RpcUse(
            worker="ps", worker_id=0, services=self.services, results=list(RESULTS), optimizers=[optimizer], threads=16
        )
        trainers = {
            rank: RpcUse(worker=f"trainer{rank}", worker_id=rank, calls=[c.call for c in calls], waits=self.waits[rank])
            for rank, calls in self.calls.items()
        }
        uses = {0: server, **trainers}
        return JoinedCalls(
            uses=uses,
            calls={0: [], **self.calls},
            services={(service.caller, service.number): service for service in self.services},
            rank_of_worker={use.worker: rank for rank, use in uses.items()},
            worker_of_id={use.worker_id: use.worker for use in uses.values()},
        )
