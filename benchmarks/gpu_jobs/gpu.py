"""A process and its device: streams, the kernels that it launches on them, and what its host waits for."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu_jobs.defects import RankDefect
from benchmarks.gpu_jobs.engine import Device, Kernel, Stream, Transfer
from benchmarks.gpu_jobs.host import Host
from benchmarks.gpu_jobs.spec import JobSpec

COMPUTE_STREAM = 7
FIRST_OTHER_STREAM = 20


@dataclass(frozen=True)
class Synchronize:
    """The host waits until these kernels have ended, and is busy for `then_us`. A training loop yields it."""

    kernels: tuple[Kernel, ...]
    call: str = "cudaStreamSynchronize"
    then_us: float = 0.0


@dataclass(kw_only=True)
class Gpu(Host):
    """A process with a device. Times that are passed are microseconds without jitter.

    Attributes:
        stream: the current stream.
        action: of a pipeline: stage, microbatch and kind of what it does now.
    """

    rank: int
    spec: JobSpec
    device: Device
    defect: RankDefect
    step_number: int = -1
    action: tuple[int, int, str] | None = None

    def __post_init__(self) -> None:
        self.rng = random.Random(f"rank {self.spec.seed} {self.rank}")
        self.compute_stream = Stream(COMPUTE_STREAM)
        self.stream = self.compute_stream
        self.streams: dict[Any, Stream] = {}

    # ---- work on the device -------------------------------------------------------------------------------------

    def compute(
        self, name: str, for_us: float, operator: str = "aten::mm", *, exact: bool = False, sequence: int | None = None
    ) -> Kernel:
        """Launch a kernel that computes, by an operator. An exact one has no jitter: it draws no random number.

        `sequence` is the number by which autograd knows the operator.
        """
        facts = {} if sequence is None else {"Sequence number": sequence, "Fwd thread id": 0}
        duration_ns = round(for_us * 1000 * (1.0 if exact else self.jitter()) * self.defect.speed)
        with self.operator(operator, **facts):
            return self.launch(name, "compute", duration_ns=duration_ns)

    def copy(self, name: str, size_bytes: int, for_us: float) -> Kernel:
        """Copy between host and device."""
        facts = {"bytes": size_bytes}
        return self.launch(name, "copy", "cudaMemcpyAsync", 41, duration_ns=round(for_us * 1000), facts=facts)

    def launch(
        self,
        name: str,
        activity: Any,
        call: str = "cudaLaunchKernel",
        cbid: int = 211,
        *,
        duration_ns: int = 0,
        transfers: Sequence[Transfer] = (),
        late_ns: int = 0,
        in_order: bool = True,
        after: Kernel | None = None,
        facts: dict[str, Any] | None = None,
    ) -> Kernel:
        """Launch work on the current stream by a call of the runtime. The other arguments are those of `Kernel`."""
        record = self.runtime_call(call, cbid)
        facts = (facts or {}) | {"launch": record, "annotation": self.annotation, "action": self.action}
        kernel = Kernel(
            rank=self.rank,
            step=self.step_number,
            stream=self.stream,
            name=name,
            activity=activity,
            launch_ns=record.start_ns,
            duration_ns=duration_ns,
            transfers=transfers,
            late_ns=late_ns,
            in_order=in_order,
            after=after,
            facts=facts,
        )
        self.device.launch(kernel)
        return kernel

    def jitter(self) -> float:
        return self.rng.uniform(1 - self.spec.jitter, 1 + self.spec.jitter)

    # ---- streams ------------------------------------------------------------------------------------------------

    def stream_of(self, key: Any) -> Stream:
        if key not in self.streams:
            self.streams[key] = Stream(FIRST_OTHER_STREAM + 4 * len(self.streams))
        return self.streams[key]

    @contextmanager
    def on_stream(self, stream: Stream) -> Iterator[None]:
        """Make another stream the current one, as `torch.cuda.stream` does."""
        current, self.stream = self.stream, stream
        yield
        self.stream = current

    def wait(self, *kernels: Kernel) -> None:
        """Let the current stream wait for kernels of other streams, as `Work.wait()` does."""
        if any(kernel.stream is not self.stream for kernel in kernels):
            self.runtime_call("cudaStreamWaitEvent", 147)
        self.stream.wait(kernels)

    def wait_stream(self, stream: Stream, of: Stream) -> None:
        """Let a stream wait for what another one has been given so far, as `Stream.wait_stream` does.

        If compute waits for a kernel of that stream, so does what depends on compute. Other streams that wait for one
        another, as those of FSDP's gathers do, are queues: what is behind another kernel there is ready before.
        """
        if stream is not of:
            self.runtime_call("cudaEventRecord", 135)
            self.runtime_call("cudaStreamWaitEvent", 147)
            if of is self.compute_stream:
                stream.wait_event(of.event())
            else:
                stream.wait(of.event())

    # ---- what the host waits for --------------------------------------------------------------------------------

    def synchronize(self) -> Synchronize:
        """Return what to yield so that the host waits for its device, as `torch.cuda.synchronize` does."""
        streams = (self.compute_stream, *self.streams.values())
        kernels = tuple(kernel for stream in streams for kernel in stream.event())
        return Synchronize(kernels, "cudaDeviceSynchronize")

    def item(self) -> Synchronize:
        """Copy a number to the host; return what to yield so that the host waits for it, as `loss.item()` does."""
        with self.operator("aten::item"), self.operator("aten::_local_scalar_dense"):
            self.copy("Memcpy DtoH (Device -> Pageable)", 4, 1.5)
        return Synchronize((self.stream.last,) if self.stream.last else ())

    def hold_up(self, forwards: float) -> Synchronize | None:
        """Return what the host waits for after a layer that takes as long as so many forward passes; None if it is
        not slow."""
        if not self.defect.hold_up_us:
            return None
        return Synchronize(self.stream.event(), then_us=self.defect.hold_up_us * forwards)

    def resume(self, after: Synchronize) -> None:
        """Continue on the host when the kernels have ended."""
        start_ns = self.now_ns
        self.now_ns = max([start_ns, *(kernel.end_ns for kernel in after.kernels)]) + round(self.spec.launch_us * 1000)
        self.runtime_call(after.call, 131 if "Stream" in after.call else 165, start_ns, self.now_ns)
        self.spend(after.then_us)
