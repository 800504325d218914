"""Keeps the marked remote calls that this process has served until a recording takes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tracekit.capture.rpc.remote_calls import Worker
from tracekit.capture.rpc.results import note_result, results
from tracekit.capture.rpc.updates import optimizers, steps_taken, versions, watch_optimizers
from tracekit.model.metadata import RpcCall, RpcCallId, RpcService, RpcUpdate, RpcUse, RpcWait

MAX_SERVICES = 100_000  # kept at a time

_services: list[Service] = []
_running = threading.local()  # the service that this thread runs

__all__ = ["Service", "begin_service", "running_service", "take_services", "use_of"]


@dataclass(slots=True, eq=False)
class Service:
    """One marked call that this process runs or ran. Fields of the names of `RpcService` are what is recorded.

    Attributes:
        thread: native id of the thread that runs the function.
        steps_before: how many steps the process's optimizers had taken when it began.
        steps_inside: how many they took on its thread while it ran.
        outer: the service that the thread ran before, and runs again afterwards.
        cpu_before_ns: the time that the thread had run on a CPU when it began.
    """

    caller: int
    number: int
    function: str
    thread: int
    start_ns: int
    end_ns: int | None = None
    returned_ns: int | None = None
    cpu_ns: int | None = None
    updates: list[RpcUpdate] = field(default_factory=list)
    versions: list[int] | None = None
    updates_meanwhile: int = 0
    result: str | None = None
    released_by: RpcCallId | None = None
    steps_before: int = 0
    steps_inside: int = 0
    outer: Service | None = None
    cpu_before_ns: int = 0

    def leave(self) -> None:
        """Note that the function has returned or raised: this thread runs the service no more."""
        self.cpu_ns = time.thread_time_ns() - self.cpu_before_ns
        _running.service = self.outer

    def end(self, result: Any = None) -> None:
        """Note the end, with what is returned to the caller."""
        end_ns = time.time_ns()
        try:
            completes = running_service()
            if completes is not None and completes is not self:
                self.released_by = RpcCallId(caller=completes.caller, number=completes.number)
            self.versions = versions()
            self.updates_meanwhile = steps_taken() - self.steps_before - self.steps_inside
            self.result = note_result(result)
        finally:
            self.end_ns = end_ns  # last: from then on a recording may take it

    def record(self) -> RpcService:
        return RpcService(
            caller=self.caller,
            number=self.number,
            function=self.function,
            start_ns=self.start_ns,
            end_ns=self.end_ns or self.start_ns,
            returned_ns=self.returned_ns,
            cpu_ns=self.cpu_ns,
            updates=self.updates,
            versions=self.versions,
            updates_meanwhile=self.updates_meanwhile,
            result=self.result,
            released_by=self.released_by,
        )


def begin_service(caller: int, number: int, function: str) -> Service:
    """Note that this thread begins to run call `number` of worker `caller`; the caller ends the result."""
    watch_optimizers(_note_update)
    service = Service(
        caller=caller,
        number=number,
        function=function,
        thread=threading.get_native_id(),
        start_ns=time.time_ns(),
        steps_before=steps_taken(),
        outer=running_service(),
        cpu_before_ns=time.thread_time_ns(),
    )
    _running.service = service
    if len(_services) < MAX_SERVICES:
        _services.append(service)
    return service


def running_service() -> Service | None:
    """Return the service whose function this thread runs."""
    return getattr(_running, "service", None)


def _note_update(update: RpcUpdate) -> None:
    service = running_service()
    if service is not None:
        service.steps_inside += 1
        if all(known.optimizer != update.optimizer for known in service.updates):
            service.updates.append(update)


def take_services() -> list[Service]:
    """Return the calls that have ended since the last time; those that still run stay for the next."""
    ended = [service for service in _services.copy() if service.end_ns is not None]
    ended_ids = set(map(id, ended))
    _services[:] = [service for service in _services if id(service) not in ended_ids]
    return ended


def use_of(
    worker: Worker, services: Sequence[Service], calls: Sequence[RpcCall] = (), waits: Sequence[RpcWait] = ()
) -> RpcUse:
    """Return what a recording of this worker keeps of its calls and services."""
    return RpcUse(
        worker=worker.name,
        worker_id=worker.number,
        calls=list(calls),
        services=[service.record() for service in services],
        waits=list(waits),
        results=results(service.result for service in services),
        optimizers=optimizers() if services else [],
        threads=worker.threads,
    )
