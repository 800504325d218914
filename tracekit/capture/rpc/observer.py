"""Records the remote calls of `torch.distributed.rpc` that this worker makes.

While a window is open, each call of a Python function carries a mark (`remote_calls.py`), by which the callee
(`serving.py`) identifies it. Its issue, its completion and every wait on the training thread are recorded. Calls that
run in C++ throughout (builtin operators, TorchScript, fetches of an RRef's value) cannot carry a mark; they are
recorded without one.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.patching import Patch, PatchSet, fail_safe
from tracekit.capture.hooks.span import span
from tracekit.capture.job.rpc_worker import Worker, rpc_module, this_worker
from tracekit.capture.observers import MetadataDraft
from tracekit.capture.rpc.services import add_mark, function_name, take_services, use_of
from tracekit.model.metadata import RpcCall, RpcCallKind, RpcWait
from tracekit.model.spans import WAIT_SPAN, rpc_call_span

MAX_CALLS = 100_000  # in a window; further calls are only counted

_numbers = itertools.count()  # unique in the process, so that no two windows share an id


@dataclass(slots=True, eq=False)
class _Call:
    """A remote call that this worker has made."""

    number: int
    callee: str
    function: str
    kind: RpcCallKind
    issued_ns: int
    done_ns: int | None = None

    def end(self) -> None:
        """Note the completion; the first note counts, as a callback may be delayed by the interpreter lock."""
        if self.done_ns is None:
            self.done_ns = time.time_ns()


class RpcObserver:
    """Holds the calls of the window until `contribute`."""

    def __init__(self) -> None:
        self._patches = PatchSet()
        self._worker: Worker | None = None
        self._thread = 0
        self._pickled = threading.local()  # by thread: the name of the function that was pickled last
        self._calls: list[_Call] = []
        self._omitted_calls = 0
        self._waits: list[RpcWait] = []
        self._in_flight: dict[int, _Call] = {}  # by the id of the future, until it is complete

    def attach(self, objects: LiveObjects) -> None:
        self._worker = this_worker()
        api, internal = rpc_module("api"), rpc_module("internal")
        if self._worker is None or api is None or internal is None:
            return
        self._thread = threading.get_ident()
        torch = sys.modules["torch"]
        patched_functions: list[tuple[Any, str, Callable[..., Any]]] = [
            (internal._InternalRPCPickler, "serialize", self._serialize),
            (api, "_invoke_rpc_python_udf", self._call),
            (api, "_invoke_remote_python_udf", self._remote),
            (api, "_invoke_rpc_builtin", self._builtin),
            (api, "_invoke_remote_builtin", self._builtin),
            (api, "_invoke_rpc_torchscript", self._script),
            (api, "_invoke_remote_torchscript", self._script),
            (torch._C.Future, "wait", self._wait),
            (torch._C._distributed_rpc.PyRRef, "to_here", self._to_here),
        ]
        for owner, name, around in patched_functions:
            if hasattr(owner, name):
                self._patches.apply([Patch(owner, name, around)])

    def detach(self, objects: LiveObjects) -> None:
        self._patches.remove()

    def contribute(self, draft: MetadataDraft) -> None:
        if self._worker is None:
            return
        services = take_services()
        self._in_flight.clear()
        calls, self._calls = self._calls, []
        if not calls and not services:
            return
        draft.strategies.append("rpc")
        recorded = [
            RpcCall(
                number=call.number,
                callee=call.callee,
                function=call.function,
                kind=call.kind,
                issued_ns=call.issued_ns,
                done_ns=call.done_ns,
            )
            for call in calls
        ]
        draft.rpc = use_of(self._worker, services, recorded, self._waits)
        if self._omitted_calls:
            draft.note(f"{self._omitted_calls} remote calls beyond the first {MAX_CALLS} of the window are not kept")

    def _serialize(self, serialize: Callable[..., Any], pickler: Any, call: Any) -> Any:
        pickled = serialize(pickler, call)
        if hasattr(call, "func"):
            self._pickled.function = function_name(call)
        return pickled

    def _call(self, invoke: Callable[..., Any], to: Any, payload: bytes, *rest: Any) -> Any:
        future, call = self._invoke(invoke, "call", to, payload, rest)
        if call is not None:
            self._in_flight[id(future)] = call
            self._end_with(call, future)
        return future

    def _remote(self, invoke: Callable[..., Any], to: Any, payload: bytes, *rest: Any) -> Any:
        rref, call = self._invoke(invoke, "remote", to, payload, rest)
        if call is not None:
            self._end_with(call, rref._get_future())
        return rref

    def _invoke(
        self, invoke: Callable[..., Any], kind: RpcCallKind, to: Any, payload: bytes, rest: tuple[Any, ...]
    ) -> tuple[Any, _Call | None]:
        function = getattr(self._pickled, "function", "unknown")
        call = self._begin(to.name, function, kind)
        if call is None:
            return invoke(to, payload, *rest), None
        assert self._worker is not None
        with span(rpc_call_span(self._worker.number, call.number, call.callee, function)):
            return invoke(to, add_mark(payload, self._worker.number, call.number), *rest), call

    def _builtin(self, invoke: Callable[..., Any], to: Any, name: str, *rest: Any, **kwargs: Any) -> Any:
        return self._unmarked("builtin", to.name, name, invoke, to, name, *rest, **kwargs)

    def _script(self, invoke: Callable[..., Any], to: str, name: str, *rest: Any, **kwargs: Any) -> Any:
        return self._unmarked("script", to, name, invoke, to, name, *rest, **kwargs)

    def _unmarked(
        self, kind: RpcCallKind, to: str, name: str, invoke: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        call = self._begin(to, name, kind)
        result = invoke(*args, **kwargs)
        if call is not None:
            is_future = isinstance(result, sys.modules["torch"]._C.Future)
            if is_future:
                self._in_flight[id(result)] = call
            self._end_with(call, result if is_future else result._get_future())
        return result

    def _wait(self, wait: Callable[..., Any], future: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = time.time_ns()
        call = self._in_flight.get(id(future))
        try:
            with span(WAIT_SPAN):
                return wait(future, *args, **kwargs)
        finally:
            self._record_wait(start_ns, call)

    def _to_here(self, to_here: Callable[..., Any], rref: Any, *args: Any, **kwargs: Any) -> Any:
        if rref.is_owner():
            return to_here(rref, *args, **kwargs)
        call = self._begin(rref.owner_name(), "to_here", "fetch")
        start_ns = time.time_ns()
        try:
            with span(WAIT_SPAN):
                return to_here(rref, *args, **kwargs)
        finally:
            self._record_wait(start_ns, call)

    def _begin(self, callee: str, function: str, kind: RpcCallKind) -> _Call | None:
        if len(self._calls) >= MAX_CALLS:
            self._omitted_calls += 1
            return None
        issued_ns = time.time_ns()
        call = _Call(number=next(_numbers), callee=callee, function=function, kind=kind, issued_ns=issued_ns)
        self._calls.append(call)
        return call

    def _end_with(self, call: _Call, future: Any) -> None:
        key, in_flight = id(future), self._in_flight

        @fail_safe
        def complete(_: Any) -> None:
            call.end()
            if in_flight.get(key) is call:
                del in_flight[key]

        future.add_done_callback(complete)

    def _record_wait(self, start_ns: int, call: _Call | None) -> None:
        if threading.get_ident() == self._thread and len(self._waits) < MAX_CALLS:
            number = None if call is None else call.number
            self._waits.append(RpcWait(start_ns=start_ns, end_ns=time.time_ns(), number=number))
        if call is not None:
            call.end()
