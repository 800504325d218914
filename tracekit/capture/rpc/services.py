"""Marks remote calls, and keeps what is known of the marked ones that this process has served.

The mark is the caller and the number of the call, appended to the pickled function. Unpickling stops at the end of the
pickle, so a peer without tracekit never sees the mark.

Of the tensors that a call returns their shapes are kept, each set of shapes once.

A parameter server's parameters have a version: how many steps their optimizer has taken, counted from the first
recorded call on that the process serves. What a call read and what it applied is told by the versions before and after
it. No function is known by its name.
"""

from __future__ import annotations

import struct
import sys
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracekit.capture.hooks.patching import fail_safe
from tracekit.capture.job.rpc_worker import Worker
from tracekit.model.metadata import RpcCall, RpcCallId, RpcOptimizer, RpcResult, RpcService, RpcUpdate, RpcUse, RpcWait

__all__ = [
    "Service",
    "add_mark",
    "begin_service",
    "function_name",
    "note_result",
    "read_mark",
    "results",
    "running_service",
    "take_services",
    "use_of",
]

_MAGIC = b"\xfftracekit\x01"  # a pickle ends with a full stop
_CALL_ID = struct.Struct("<IQ")
_MARK_BYTES = _CALL_ID.size + len(_MAGIC)
MAX_SERVICES = 100_000  # kept at a time
_MAX_TENSORS = 10_000  # in a result
_MAX_RESULTS = 64  # different ones; of further ones nothing is known
_MAX_OPTIMIZERS = 16  # of a process; where there are more, no version is known

_running = threading.local()  # the service that this thread runs
_results: dict[str, RpcResult] = {}
_lock = threading.Lock()
_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_versions: list[int] = []
_optimizers: list[RpcOptimizer] = []
_is_watching = False
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


def note_result(value: Any) -> str | None:
    """Return a key for the shapes of the tensors in `value`; None without any, or if there are too many."""
    shapes: list[list[int]] = []
    for tensor in _tensors(value):
        if len(shapes) == _MAX_TENSORS:
            return None
        shapes.append(list(tensor.shape))
    if not shapes:
        return None
    key = f"{zlib.crc32(repr(shapes).encode()):08x}"
    if key not in _results:
        if len(_results) >= _MAX_RESULTS:
            return None
        _results[key] = RpcResult(key=key, shapes=shapes)
    return key


def results(keys: Iterable[str | None]) -> list[RpcResult]:
    """Return what these keys stand for, each once."""
    return [_results[key] for key in dict.fromkeys(keys) if key is not None and key in _results]


def _tensors(value: Any) -> Iterator[Any]:
    """Yield the tensors in lists, tuples, dicts and modules; of a module parameters and buffers."""
    torch = sys.modules["torch"]
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, torch.nn.Module):
            pending += [*item.parameters(), *item.buffers()]
        elif isinstance(item, dict):
            pending += item.values()
        elif isinstance(item, list | tuple):
            pending += item


def watch_optimizers(note: Callable[[RpcUpdate], None]) -> None:
    """Count each step from now on, and pass it to `note` on the thread that took it. Further calls do nothing."""
    global _is_watching
    module = sys.modules.get("torch.optim.optimizer")
    if _is_watching or module is None:
        return
    with _lock:
        if _is_watching:
            return
        _is_watching = True

    def count(optimizer: Any, *_: Any) -> None:
        with _lock:
            number = _number(optimizer)
            if number is None:
                return
            _versions[number] += 1
            update = RpcUpdate(optimizer=number, version=_versions[number])
        note(update)

    module.register_optimizer_step_post_hook(fail_safe(count))


def versions() -> list[int] | None:
    """Return how many steps each optimizer has taken, by number; None where they are not counted."""
    return _versions.copy() if _is_watching and len(_versions) <= _MAX_OPTIMIZERS else None


def steps_taken() -> int:
    """Return how many steps all optimizers have taken together."""
    return sum(_versions)


def optimizers() -> list[RpcOptimizer]:
    return _optimizers.copy()


def _number(optimizer: Any) -> int | None:
    """Return the number of an optimizer, from its first step on; None beyond the limit."""
    number = _numbers.get(optimizer)
    if number is None and len(_versions) <= _MAX_OPTIMIZERS:
        number = _numbers[optimizer] = len(_versions)
        _versions.append(0)
        shapes = [list(parameter.shape) for group in optimizer.param_groups for parameter in group["params"]]
        _optimizers.append(RpcOptimizer(number=number, shapes=shapes))
    return number
