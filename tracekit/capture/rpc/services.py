"""Marks remote calls, and keeps what is known of the marked ones that this process has served.

The mark is the caller and the number of the call, appended to the pickled function. Unpickling stops at the end of the
pickle, so a peer without tracekit never sees the mark.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tracekit.capture.job.rpc_worker import Worker
from tracekit.model.metadata import RpcCall, RpcCallId, RpcService, RpcUse, RpcWait

_MAGIC = b"\xfftracekit\x01"  # a pickle ends with a full stop
_CALL_ID = struct.Struct("<IQ")
_MARK_BYTES = _CALL_ID.size + len(_MAGIC)
MAX_SERVICES = 100_000  # kept at a time

_running = threading.local()  # the service that this thread runs
_services: list[Service] = []


def add_mark(payload: bytes, caller: int, number: int) -> bytes:
    """Return the pickled call, marked as call `number` of the worker `caller`."""
    return payload + _CALL_ID.pack(caller, number) + _MAGIC


def read_mark(payload: object) -> tuple[int, int] | None:
    """Return caller and number of a marked call; None for anything else."""
    if not isinstance(payload, bytes) or not payload.endswith(_MAGIC) or len(payload) < _MARK_BYTES:
        return None
    caller, number = _CALL_ID.unpack_from(payload, len(payload) - _MARK_BYTES)
    return caller, number


def function_name(call: Any) -> str:
    """Return the name of the function that a `PythonUDF` calls; for a call through an RRef that of the method."""
    function = call.func
    if getattr(function, "__name__", "").startswith("_local_invoke") and len(call.args) > 1:
        return str(call.args[1])
    function = getattr(function, "__func__", function)
    return str(getattr(function, "__qualname__", type(function).__qualname__))


@dataclass(slots=True, eq=False)
class Service:
    """One marked call that this process runs or ran. Fields of the names of `RpcService` are what is recorded.

    Attributes:
        thread: native id of the thread that runs the function.
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
    released_by: RpcCallId | None = None
    outer: Service | None = None
    cpu_before_ns: int = 0

    def leave(self) -> None:
        """Note that the function has returned or raised: this thread runs the service no more."""
        self.cpu_ns = time.thread_time_ns() - self.cpu_before_ns
        _running.service = self.outer

    def end(self) -> None:
        """Note the end."""
        end_ns, completes = time.time_ns(), running_service()
        if completes is not None and completes is not self:
            self.released_by = RpcCallId(caller=completes.caller, number=completes.number)
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
            released_by=self.released_by,
        )


def begin_service(caller: int, number: int, function: str) -> Service:
    """Note that this thread begins to run call `number` of worker `caller`; the caller ends the result."""
    service = Service(
        caller=caller,
        number=number,
        function=function,
        thread=threading.get_native_id(),
        start_ns=time.time_ns(),
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
        threads=worker.threads,
    )
