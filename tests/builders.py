"""A builder of traces for tests, whose right answers can be computed by hand.

    trace = TraceBuilder(rank=0)
    trace.step(7, at_us=0, for_us=100)
    trace.kernel("gemm", at_us=10, for_us=40, launched_at=2)
    trace.nccl("all_reduce", at_us=30, for_us=30, launched_at=5)       # 20 us under the kernel, 10 us exposed
    trace.write(folder / "rank0.json.gz")

Times are microseconds (at most three decimals) after `ORIGIN_US`. Files have the keys, their order and the white space
of files that Kineto writes; `layout`, `tail` and `packing` choose what other writers do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import msgspec

from tests.trace_text import Layout, Microseconds, Packing, decimal, event_text, pack
from tracekit.model.metadata import (
    CaptureMetadata,
    ClockMeasurement,
    ClockSample,
    CollectiveRecord,
    DdpModule,
    Device,
    Group,
    Manifest,
    Overhead,
    PointToPointRecord,
    RecordedStep,
    Window,
)

BASE_NS = 1_790_857_026_000_000_000
"""`baseTimeNanoseconds` of every built trace."""
ORIGIN_US = 4_396_967
"""`ts` of time 0: small enough for any decoder. `TraceBuilder(absolute=True)` writes wall-clock times instead."""

_NCCL_OPERATIONS = {
    "all_reduce": ("AllReduce_Sum_f32_RING_LL", "allreduce"),
    "all_gather": ("AllGather_RING_LL", "_allgather_base"),
    "reduce": ("Reduce_Sum_f32_RING_LL", "reduce"),
    "reduce_scatter": ("ReduceScatter_Sum_f32_RING_LL", "_reduce_scatter_base"),
    "all_to_all": ("SendRecv", "all_to_allv"),
    "broadcast": ("Broadcast_RING_LL", "broadcast"),
}
_C10D_OPERATORS = {
    "all_reduce": "c10d::allreduce_",
    "all_gather": "c10d::_allgather_base_",
    "reduce_scatter": "c10d::_reduce_scatter_base_",
    "all_to_all": "c10d::alltoall_base_",
    "barrier": "c10d::barrier",
    "broadcast": "c10d::broadcast_",
    "send": "c10d::send",
    "recv": "c10d::recv_",
}


class TraceBuilder:
    """One rank's trace. Each method adds events and returns the builder; `events` may be edited before writing."""

    def __init__(self, rank: int = 0, world_size: int = 2, *, host: str = "node0", absolute: bool = False) -> None:
        self.rank = rank
        self.world_size = world_size
        self.host = host
        self.pid = 4000 + 10 * rank  # too far apart for processes of one launcher
        self.main = self.pid
        self.autograd = self.pid + 100
        self.gloo_threads = (self.pid + 200, self.pid + 201)
        self.base_ns = 0 if absolute else BASE_NS
        self.origin_ns = BASE_NS + ORIGIN_US * 1000 if absolute else ORIGIN_US * 1000
        self.events: list[dict[str, Any]] = []
        self.header: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [], "record_shapes": 1}
        self.header["distributedInfo"] = {"backend": "gloo", "rank": rank, "world_size": world_size}
        self.metadata: CaptureMetadata | None = None
        self.steps: list[tuple[int, Microseconds, Microseconds]] = []
        self._ids = 0

    # ---- what the host does -------------------------------------------------------------------------------------

    def step(self, number: int, at_us: Microseconds, for_us: Microseconds) -> Self:
        """A `ProfilerStep#number` span on the main thread."""
        self.steps.append((number, at_us, for_us))
        return self.label(f"ProfilerStep#{number}", at_us, for_us)

    def op(
        self, name: str, at_us: Microseconds, for_us: Microseconds, *, thread: int | None = None, **args: Any
    ) -> Self:
        """An operator (`cpu_op`), by default on the main thread."""
        return self.event(name, "cpu_op", at_us, for_us, thread=thread, args={"External id": self._next_id()} | args)

    def backward(self, name: str, at_us: Microseconds, for_us: Microseconds, *, thread: int | None = None) -> Self:
        """An operator that the autograd engine runs, by default on its thread."""
        thread = self.autograd if thread is None else thread
        return self.op(f"autograd::engine::evaluate_function: {name}", at_us, for_us, thread=thread)

    def label(self, name: str, at_us: Microseconds, for_us: Microseconds, *, thread: int | None = None) -> Self:
        """A user annotation, which does not count as compute."""
        return self.event(name, "user_annotation", at_us, for_us, thread=thread, args={"External id": self._next_id()})

    def wait(self, at_us: Microseconds, for_us: Microseconds, *, thread: int | None = None) -> Self:
        """A blocking wait on a `Work`, as the probe records it."""
        return self.event("tracekit.wait", "cpu_op", at_us, for_us, thread=thread, args={})

    def gloo(
        self,
        kind: str,
        at_us: Microseconds,
        for_us: Microseconds,
        *,
        issued_at: Microseconds | None = None,
        issued_for: Microseconds = 1,
        elements: int = 1000,
        runloop: int = 0,
        thread: int | None = None,
    ) -> Self:
        """A collective of Gloo: its `c10d::*` operator on the calling thread, and its span on a runloop thread.

        Send and recv run on the calling thread.
        """
        self.op(
            _C10D_OPERATORS[kind],
            at_us if issued_at is None else issued_at,
            issued_for,
            thread=thread,
            **{"Input type": ["TensorList", "", "Scalar"], "Input Dims": [[[elements]], [], []]},
        )
        inputs = {"Concrete Inputs": [""], "Input type": ["float"], "Input Dims": [[elements]]}
        where = thread if kind in {"send", "recv"} else self.gloo_threads[runloop]
        # Gloo has no reduce-scatter: it runs an all-reduce of the full input.
        span = f"gloo:{'all_reduce' if kind == 'reduce_scatter' else kind}"
        return self.event(span, "user_annotation", at_us, for_us, thread=where, args=inputs)

    # ---- what the device does -----------------------------------------------------------------------------------

    def kernel(
        self,
        name: str,
        at_us: Microseconds,
        for_us: Microseconds,
        *,
        stream: int = 7,
        launched_at: Microseconds | None = None,
        launched_by: str = "cudaLaunchKernel",
        category: str = "kernel",
        device: int = 0,
        **args: Any,
    ) -> Self:
        """A device event. `launched_at` is when the main thread launches it; None records no launch."""
        correlation = self._next_id()
        if launched_at is not None:
            launch = {"correlation": correlation, "External id": correlation}
            api = "cuda_driver" if launched_by.startswith("cuLaunch") else "cuda_runtime"
            self.event(launched_by, api, launched_at, 1, args=launch)
        ids = {"External id": correlation, "device": device, "stream": stream, "correlation": correlation}
        return self.event(name, category, at_us, for_us, pid=device, thread=stream, args=ids | args)

    def launch_graph(
        self, at_us: Microseconds, *kernels: tuple[str, Microseconds, Microseconds, int], call: str = "cudaGraphLaunch"
    ) -> Self:
        """A launch of a CUDA graph and its `kernels` (name, at_us, for_us, stream), which have its correlation id."""
        correlation = self._next_id()
        self.event(call, "cuda_runtime", at_us, 5, args={"correlation": correlation})
        for node, (name, starts_us, for_us, stream) in enumerate(kernels):
            of_graph = {"correlation": correlation, "graph id": 3, "graph node id": node + 1}
            self.kernel(name, starts_us, for_us, stream=stream, **of_graph)
            del self.events[-1]["args"]["External id"]
        return self

    def memcpy(
        self, at_us: Microseconds, for_us: Microseconds, *, stream: int = 7, launched_at: Microseconds | None = None
    ) -> Self:
        return self.kernel(
            "Memcpy HtoD (Pinned -> Device)",
            at_us,
            for_us,
            stream=stream,
            launched_at=launched_at,
            launched_by="cudaMemcpyAsync",
            category="gpu_memcpy",
        )

    def nccl(
        self,
        kind: str,
        at_us: Microseconds,
        for_us: Microseconds,
        *,
        stream: int = 20,
        launched_at: Microseconds | None = None,
        elements: int = 1000,
        group: Sequence[int] | None = None,
        description: str = "default_pg",
        **args: Any,
    ) -> Self:
        """A collective kernel of NCCL with the arguments that Kineto adds to it."""
        operation, collective = _NCCL_OPERATIONS[kind]
        ranks = list(range(self.world_size)) if group is None else list(group)
        described = {
            "Collective name": collective,
            "In msg nelems": elements,
            "Out msg nelems": elements,
            "Group size": len(ranks),
            "dtype": "Float",
            "Process Group Name": description,
            "Process Group Description": description,
            "Process Group Ranks": str(ranks),
        }
        name = f"ncclDevKernel_{operation}(ncclDevKernelArgsStorage<4096ul>)"
        return self.kernel(name, at_us, for_us, stream=stream, launched_at=launched_at, **(described | args))

    def memory(
        self,
        at_us: Microseconds,
        change_bytes: int,
        *,
        allocated: int,
        reserved: int = 0,
        device: tuple[int, int] = (0, -1),
        **args: Any,
    ) -> Self:
        """An allocation, or a free if `change_bytes` is negative, with the allocator's totals after it.

        `device` is type and number, by default the CPU; (1, 0) is the first GPU.
        """
        state = {"Total Reserved": reserved, "Total Allocated": allocated, "Bytes": change_bytes}
        state |= {"Device Id": device[1], "Device Type": device[0], "Addr": 94622226468672}
        place = {"cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": self.pid, "tid": self.main}
        return self.raw(ph="i", **place, ts=self.ts(at_us), args=state | args)

    # ---- anything else ------------------------------------------------------------------------------------------

    def event(
        self,
        name: str,
        category: str,
        at_us: Microseconds,
        for_us: Microseconds,
        *,
        thread: int | str | None = None,
        pid: int | str | None = None,
        args: dict[str, Any] | None = None,
    ) -> Self:
        """Any complete event."""
        event = {"ph": "X", "cat": category, "name": name, "pid": self.pid if pid is None else pid}
        event |= {"tid": self.main if thread is None else thread, "ts": self.ts(at_us), "dur": decimal(for_us)}
        self.events.append(event | ({} if args is None else {"args": args}))
        return self

    def raw(self, **event: Any) -> Self:
        """An event with exactly these keys. Values of type Decimal are written unquoted, with their digits."""
        self.events.append(event)
        return self

    def ts(self, at_us: Microseconds) -> Decimal:
        """Return the `ts` of an event: the origin + `at_us`, with three decimals."""
        return Decimal(self.origin_ns) / 1000 + decimal(at_us)

    def wall_ns(self, at_us: Microseconds) -> int:
        """Return `at_us` on the rank's wall clock, which the decoder should compute."""
        return self.base_ns + self.origin_ns + round(at_us * 1000)

    def capture(
        self,
        *,
        run_id: str = "run-1",
        attempt: int = 0,
        clock: Iterable[tuple[Microseconds, int, int]] = (),
        groups: Sequence[Group] | None = None,
        collectives: Sequence[CollectiveRecord] = (),
        ddp: Sequence[DdpModule] = (),
        p2p: Sequence[PointToPointRecord] = (),
        last_step_closed: bool = True,
    ) -> Self:
        """The `tracekit` key, as the probe writes it. Each of the steps from `step` ends where the next one begins; its
        call has returned after the `for_us` of `step`.

        `clock` holds (at_us, offset_ns, error_ns) of each clock sample.
        """
        starts = [self.wall_ns(at_us) for _, at_us, _ in self.steps]
        ends: list[int | None] = [*starts[1:]]
        if self.steps:
            _, at_us, for_us = self.steps[-1]
            ends.append(self.wall_ns(at_us + for_us) if last_step_closed else None)
        samples = [ClockSample(at_ns=self.wall_ns(t), offset_ns=o, error_ns=e, rtt_ns=2 * e) for t, o, e in clock]
        world = Group(id=0, name="0", desc="default_pg", backend="gloo", parallelism="dp", ranks="world")
        self.metadata = CaptureMetadata(
            version=1,
            tracekit="0.1.0",
            torch="2.13.0",
            python="3.11.7",
            run_id=run_id,
            attempt=attempt,
            rank=self.rank,
            local_rank=self.rank,
            world_size=self.world_size,
            pid=self.pid,
            host=self.host,
            host_id="0" * 16,
            device=Device(type="cpu", index=0, name="Test CPU"),
            window=Window(index=0, skip=3, warmup=1, partial=False),
            steps=[
                RecordedStep(step=number, start_ns=start_ns, end_ns=end_ns, returned_ns=self.wall_ns(at_us + for_us))
                for (number, at_us, for_us), start_ns, end_ns in zip(self.steps, starts, ends, strict=True)
            ],
            strategies=["ddp"],
            groups=[world] if groups is None else list(groups),
            collectives=list(collectives),
            clock=ClockMeasurement(reference_rank=0, method="store" if samples else "none", samples=samples),
            ddp=list(ddp),
            p2p=list(p2p),
            overhead=Overhead(per_step_ns=1000, stop_ns=None, export_ns=None, clock_ns=None),
        )
        return self

    def record(
        self, kind: str, seq: int, *, created_at: Microseconds, elements: int = 1000, group: int = 0
    ) -> CollectiveRecord:
        """Return a flight-recorder entry for `capture(collectives=[...])`."""
        shapes, created_ns = [[elements]], self.wall_ns(created_at)
        return CollectiveRecord(
            group=group,
            seq=seq,
            kind=kind,
            dtypes=["Float"],
            in_shapes=shapes,
            out_shapes=shapes,
            created_ns=created_ns,
        )

    # ---- writing ------------------------------------------------------------------------------------------------

    def text(self, layout: Layout = "kineto", *, tail: bool = False) -> bytes:
        """Return the content of the file, unpacked. `tail` puts the keys about the whole trace after its events."""
        head = {**({} if self.metadata is None else {"tracekit": msgspec.to_builtins(self.metadata)}), **self.header}
        head |= {"host_name": self.host, "displayTimeUnit": "ms", "baseTimeNanoseconds": self.base_ns}
        events = [event_text(event, layout) for event in self.events]
        match layout:
            case "compact":
                pairs = [f'"{key}":{json.dumps(value, separators=(",", ":"))}' for key, value in head.items()]
                parts = ["{", ",".join(pairs), f'"traceEvents":[{",".join(events)}]', "}"]
                comma = ","
            case "array":
                return ("[\n" + ",\n".join(events) + "\n]\n").encode()
            case _:
                pairs = [f'  "{key}": {json.dumps(value)}' for key, value in head.items()]
                parts = ["{\n", ",\n".join(pairs), '  "traceEvents": [\n' + ",\n".join(events) + "\n  ]", "\n}\n"]
                comma = ",\n"
        opening, known, listed, closing = parts
        text = opening + (listed + comma + known if tail else known + comma + listed) + closing
        return text.replace("\n", "\r\n").encode() if layout == "crlf" else text.encode()

    def write(
        self, path: Path, layout: Layout = "kineto", *, tail: bool = False, packing: Packing | None = None
    ) -> Path:
        """Write the trace and return its path. `packing` overrides what the name's suffix says."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pack(self.text(layout, tail=tail), packing or ("gz" if path.suffix == ".gz" else "plain")))
        return path

    def write_capture(self, root: Path) -> Path:
        """Write trace and manifest where the probe would; return the trace's path. Call `capture()` before."""
        assert self.metadata is not None
        known = self.metadata
        first, last = known.steps[0].step, known.steps[-1].step
        folder = root / known.run_id / f"attempt-{known.attempt}" / f"step-{first:09d}"
        path = self.write(folder / f"rank-{self.rank:06d}.json.gz")
        manifest = Manifest(
            version=1,
            run_id=known.run_id,
            attempt=known.attempt,
            rank=known.rank,
            world_size=known.world_size,
            host=known.host,
            file=path.name,
            bytes=path.stat().st_size,
            sha256="",
            events=len(self.events),
            steps=(first, last),
        )
        path.with_name(f"rank-{self.rank:06d}.manifest.json").write_bytes(msgspec.json.encode(manifest))
        return path

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids


def write_run(folder: Path, traces: Iterable[TraceBuilder]) -> Path:
    """Write each rank's trace into `folder` and return the folder."""
    for trace in traces:
        trace.write(folder / f"rank{trace.rank}.json.gz")
    return folder
