"""Records when this process ran each marked remote call of its peers.

A caller marks its calls while it records (`observer.py`), so the callers' windows decide what is recorded here. A
worker with training steps passes what it served to its own recordings. A worker without steps, such as a parameter
server that waits in `rpc.shutdown()`, writes a trace itself. It does so after some seconds without a marked call, when
RPC shuts down, and when the process exits.

That trace is written without the profiler, which torch does not allow to start on the threads that run requests. It has
a span for each call, and none for the operators inside.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing.util
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracekit.capture.hooks.patching import Patch, fail_safe, warn, wrap_call
from tracekit.capture.hooks.span import span
from tracekit.capture.job.elastic_launch import ElasticLaunch
from tracekit.capture.job.process import Identity, identify, metadata_of, this_device
from tracekit.capture.job.rpc_worker import Worker, rpc_module, rpc_store, this_worker
from tracekit.capture.job.run_agreement import BoundedStore, await_run, new_run, publish_run
from tracekit.capture.output.packing import CheckedExport, export_trace, write_trace
from tracekit.capture.output.paths import DiskBudget, RecordingPaths, trace_folder, unused_run_id
from tracekit.capture.rpc.services import Service, begin_service, function_name, read_mark, take_services, use_of
from tracekit.errors import OutputError
from tracekit.model.metadata import CaptureMetadata, RecordingNote, Window
from tracekit.model.spans import rpc_service_span

IDLE_TIMEOUT_S = 5.0

_patches: list[Patch] = []
_server: _Server | None = None


def probe_created(path: Path, number: int, budget: DiskBudget) -> None:
    """Record marked calls from now on.

    If this process never has steps, they are written below `path`, in the run of probe `number`, within its `budget`.
    If there are several probes, those of the first count.
    """
    global _server
    internal, api = rpc_module("internal"), rpc_module("api")
    if _server is not None or internal is None or api is None:
        return
    _server = _Server(path, number, budget)
    for owner, name, around in (
        (internal._InternalRPCPickler, "deserialize", _deserialize),
        (api, "_finalize_shutdown", _flush_at_shutdown),
    ):
        if hasattr(owner, name):
            patch = Patch(owner, name, around, lasting=True)
            patch.apply()
            _patches.append(patch)


def step_began() -> None:
    """Write no trace here: this process has steps, so its recordings take what it serves."""
    if _server is not None:
        _server.has_steps = True


def _deserialize(deserialize: Callable[..., Any], pickler: Any, payload: Any, *rest: Any) -> Any:
    call = deserialize(pickler, payload, *rest)
    call_mark = read_mark(payload)
    if call_mark is None or not hasattr(call, "func"):
        return call
    return call._replace(func=wrap_call(call.func, _timed(*call_mark, function_name(call))))


def _timed(caller: int, number: int, function: str) -> Callable[..., Any]:
    """Return what the callee runs around the function, to record its time."""

    def timed(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        service = begin_service(caller, number, function)
        try:
            with span(rpc_service_span(caller, number, function)):
                result = run(*args, **kwargs)
        except BaseException:
            _end(service)
            raise
        finally:
            service.leave()
        if isinstance(result, sys.modules["torch"]._C.Future):  # an asynchronous function ends with its future
            service.returned_ns = time.time_ns()
            result.add_done_callback(fail_safe(lambda _: _end(service)))
        else:
            _end(service)
        return result

    return timed


def _end(service: Service) -> None:
    service.end()
    if _server is not None:
        _server.notify()


def _flush_at_shutdown(finalize: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if _server is not None:
        _server.flush()
    return finalize(*args, **kwargs)


class _Server:
    """Writes what a process without steps has served, on a thread that waits until no marked calls come."""

    def __init__(self, path: Path, number: int, budget: DiskBudget) -> None:
        self.has_steps = False
        self._path = path
        self._number = number
        self._pid = os.getpid()
        self._budget = budget
        self._worker: Worker | None = None
        self._identity: Identity | None = None
        self._run_id: str | None = None
        self._notes: list[RecordingNote] = []
        self._batches = 0
        self._failed = False
        self._activity = threading.Event()
        self._lock = threading.RLock()
        self._writer: threading.Thread | None = None

    def notify(self) -> None:
        """Note that a marked call has ended, and start the thread if this is the first."""
        self._activity.set()
        if self._writer is None and not self._failed and not self.has_steps:
            with self._lock:
                if self._writer is None:
                    self._writer = threading.Thread(target=self._write_when_idle, name="tracekit-serving", daemon=True)
                    try:
                        self._writer.start()
                    except RuntimeError as error:  # there are too many threads, or the process is about to exit
                        self._failed = True
                        warn(f"what is served to remote calls is not recorded: {error}")
                        return
                    atexit.register(self.flush)
                    # With a priority, as finalizers without one do not run in children of multiprocessing.
                    multiprocessing.util.Finalize(None, self.flush, exitpriority=100)

    def flush(self) -> None:
        """Write what has been served since the last time, if this process has no steps."""
        if self._writer is None or self._failed or os.getpid() != self._pid or self.has_steps:
            return
        with self._lock:
            try:
                self._join_run()
                if services := take_services():
                    self._write(services)
            except Exception as error:
                self._failed = True
                warn(f"what was served to remote calls is not recorded: {type(error).__name__}: {error}")

    def _write_when_idle(self) -> None:
        try:
            with self._lock:
                self._join_run()
        except Exception as error:
            self._failed = True
            warn(f"what is served to remote calls is not recorded: {type(error).__name__}: {error}")
        while not self._failed and not self.has_steps:
            self._activity.clear()
            if not self._activity.wait(IDLE_TIMEOUT_S):
                self.flush()
                self._activity.wait()

    def _join_run(self) -> None:
        """Find out which rank this is and which run it belongs to, while the peers are there."""
        if self._identity is not None:
            return
        self._worker = this_worker()
        self._identity = identity = identify()
        store = BoundedStore(shared) if (shared := rpc_store()) is not None else None
        try:
            launch = ElasticLaunch.of_this_process(host_id=identity.host_id)
            proposed = new_run(self._path, launch, self._number, any_rank=True)
            elastic = launch is not None
            run = publish_run(store, proposed, self._number, identity.rank, elastic=elastic, any_rank=True)
            if run is None:
                run, was_published = await_run(store, identity, self._number, launch)
                if not was_published:
                    text = "the store did not give the run's name in time, so this rank's folder has another name"
                    self._notes.append(RecordingNote(kind="capture", text=text))
        finally:
            if store is not None:
                store.close()
        self._run_id = unused_run_id(self._path, run.run_id, identity.attempt, 0, identity.rank, identity.world_size)

    def _write(self, services: list[Service]) -> None:
        identity, run_id, batch = self._identity, self._run_id, self._batches
        assert identity is not None
        assert run_id is not None
        assert self._worker is not None
        begin_ns = min(service.start_ns for service in services)
        use = use_of(self._worker, services)
        folder = trace_folder(self._path, run_id, identity.attempt, batch, identity.rank, identity.world_size)

        def export(file: Path) -> None:
            file.write_text(_trace(services, begin_ns), encoding="utf-8")

        def describe(checked: CheckedExport) -> CaptureMetadata:
            return metadata_of(
                run_id,
                identity,
                device=this_device(),
                window=Window(index=batch, skip=0, warmup=0, partial=False),
                steps=[],
                strategies=["rpc"],
                rpc=use,
                notes=[*self._notes, *checked.notes],
            )

        try:
            paths = RecordingPaths(folder, identity.rank)
            export_trace(paths, export, self._budget)
            write_trace(paths, describe, self._budget)
        except OutputError as error:
            self._failed = True
            warn(f"rank {identity.rank}: {error}; nothing more is recorded")
        self._batches += 1


def _trace(services: list[Service], begin_ns: int) -> str:
    """Return the services as Chrome JSON, as torch writes it: with times since `baseTimeNanoseconds`."""
    base_ns = begin_ns - begin_ns % 1_000_000_000
    pid = os.getpid()
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": "python"}},
        *(
            {"ph": "M", "name": "thread_name", "pid": pid, "tid": thread, "ts": 0, "args": {"name": f"rpc {thread}"}}
            for thread in sorted({service.thread for service in services})
        ),
        *(
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": rpc_service_span(service.caller, service.number, service.function),
                "pid": pid,
                "tid": service.thread,
                "ts": (service.start_ns - base_ns) / 1e3,
                "dur": ((service.end_ns or service.start_ns) - service.start_ns) / 1e3,
            }
            for service in sorted(services, key=lambda service: service.start_ns)
        ),
    ]
    return json.dumps(
        {
            "schemaVersion": 1,
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": base_ns,
            "traceEvents": events,
        }
    )
