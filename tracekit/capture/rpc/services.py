"""Keeps the marked remote calls that this process has served until a recording takes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.model.metadata import RpcService

MAX_SERVICES = 100_000  # kept at a time

_services: list[Service] = []

__all__ = ["Service", "begin_service", "return_services", "take_services"]


@dataclass(slots=True, eq=False)
class Service:
    """One marked call that this process runs or ran."""

    caller: int
    number: int
    function: str
    thread: int
    start_ns: int
    end_ns: int | None = None

    def record(self) -> RpcService:
        return RpcService(
            caller=self.caller,
            number=self.number,
            function=self.function,
            start_ns=self.start_ns,
            end_ns=self.end_ns or self.start_ns,
        )


def begin_service(caller: int, number: int, function: str) -> Service:
    """Note that this thread begins to run call `number` of worker `caller`; the caller sets `end_ns` of the result."""
    thread = threading.get_native_id()
    service = Service(caller=caller, number=number, function=function, thread=thread, start_ns=time.time_ns())
    if len(_services) < MAX_SERVICES:
        _services.append(service)
    return service


def take_services() -> list[Service]:
    """Return the calls that have ended since the last time; those that still run stay for the next."""
    ended = [service for service in _services.copy() if service.end_ns is not None]
    ended_ids = set(map(id, ended))
    _services[:] = [service for service in _services if id(service) not in ended_ids]
    return ended


def return_services(services: Sequence[RpcService]) -> None:
    """Put back, for the next recording, what was taken for a recording that is dropped."""
    returned = [
        Service(
            caller=service.caller,
            number=service.number,
            function=service.function,
            thread=0,  # only the trace of a process without steps names threads, and it takes services once
            start_ns=service.start_ns,
            end_ns=service.end_ns,
        )
        for service in services
    ]
    _services[:0] = returned[: max(MAX_SERVICES - len(_services), 0)]
