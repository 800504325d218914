"""Kernels that run on the streams of devices: when each starts and ends, given when hosts launch them.

A kernel starts when it is launched, when the events that its stream waits for are there, and when the kernel before it
on its stream has ended. A kernel that communicates meets its peers: it starts alike, spins until they are there, and
ends when the transfer is through. All times are integer nanoseconds of true time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Activity = Literal["compute", "comm", "copy"]


@dataclass(frozen=True, kw_only=True)
class Latencies:
    """What a device adds to the times of its kernels, in nanoseconds.

    Attributes:
        launch_ns: from the host's call to the earliest start.
        event_ns: from the end of a kernel to the start of one on another stream that waits for it.
        gap_ns: between two kernels of a stream.
    """

    launch_ns: int = 4000
    event_ns: int = 1500
    gap_ns: int = 800


class Kernel:
    """Work on a stream: a kernel or a copy. `start_ns` and `end_ns` are -1 until they are known.

    Attributes:
        arrival_ns: when it could have started if its stream had been free: at its launch, or when the work that it
            depends on has ended.
        transfers: of a kernel that communicates: what must be through before it ends.
        late_ns: how much later than the last of its transfers it ends on this rank.
        behind: the kernels that it is queued behind: the one before it on its stream, and the one before it of its
            communicator, as NCCL runs the kernels of a communicator one after the other (src/enqueue.cc,
            `ncclLaunchPrepare`).
        in_order: it depends on the kernel before it on its stream; otherwise it is only queued behind it.
        facts: what is recorded with it.
    """

    __slots__ = (
        "_dependents",
        "_unknown",
        "activity",
        "arrival_ns",
        "behind",
        "depends_on",
        "duration_ns",
        "end_ns",
        "facts",
        "in_order",
        "late_ns",
        "launch_ns",
        "name",
        "rank",
        "start_ns",
        "step",
        "stream",
        "transfers",
    )

    def __init__(
        self,
        *,
        rank: int,
        step: int,
        stream: Stream,
        name: str,
        activity: Activity,
        launch_ns: int,
        duration_ns: int = 0,
        transfers: Sequence[Transfer] = (),
        late_ns: int = 0,
        in_order: bool = True,
        after: Kernel | None = None,
        facts: dict[str, Any],
    ) -> None:
        self.rank, self.step, self.stream, self.name, self.activity = rank, step, stream, name, activity
        self.launch_ns, self.duration_ns = launch_ns, duration_ns
        self.transfers, self.late_ns, self.in_order, self.facts = tuple(transfers), late_ns, in_order, facts
        self.behind = tuple(other for other in (stream.last, after) if other is not None)
        self.depends_on = tuple(stream.waits)
        self.arrival_ns = self.start_ns = self.end_ns = -1
        self._dependents: list[Kernel] = []
        self._unknown = 0


@dataclass
class Stream:
    """A queue of a device. `waits` are the kernels that the next one launched on it waits for."""

    number: int
    last: Kernel | None = None
    waits: list[Kernel] = field(default_factory=list)

    def event(self) -> tuple[Kernel, ...]:
        """Return what an event that is recorded now waits for."""
        return (*self.waits, *(() if self.last is None else (self.last,)))

    def wait(self, kernels: Sequence[Kernel]) -> None:
        """Wait for kernels of other streams. Its own come before what is launched next anyway."""
        self.waits += [kernel for kernel in kernels if kernel.stream is not self]

    def wait_event(self, kernels: Sequence[Kernel]) -> None:
        """Wait for an event of another stream. If that stream waits for kernels of this one, so does the event."""
        self.waits += kernels


@dataclass(eq=False)
class Transfer:
    """Data that moves between ranks once the kernels of all of them have started: a message, or a collective.

    Attributes:
        source, destination: of a message; None for a collective.
        sequence: place among the transfers of the same group, or the same pair of ranks.
    """

    group: Any
    kind: str
    members: tuple[int, ...]
    sequence: int
    step: int
    transfer_ns: int
    size_bytes: int
    source: int | None = None
    destination: int | None = None
    kernels: dict[int, Kernel] = field(default_factory=dict)
    end_ns: int = -1


class Meeting:
    """Where the ranks of a job find the transfer that each of them takes part in: the n-th of its group is the same."""

    def __init__(self) -> None:
        self._transfers: dict[tuple[Any, ...], Transfer] = {}
        self._calls: dict[tuple[Any, ...], int] = {}

    def join(self, rank: int, key: tuple[Any, ...], **of_transfer: Any) -> Transfer:
        """Return the transfer that the next call of `rank` with this key takes part in."""
        sequence = self._calls.get((rank, *key), 0)
        self._calls[rank, *key] = sequence + 1
        if (*key, sequence) not in self._transfers:
            self._transfers[*key, sequence] = Transfer(sequence=sequence, **of_transfer)
        return self._transfers[*key, sequence]

    @property
    def transfers(self) -> list[Transfer]:
        return list(self._transfers.values())


class Device:
    """All devices of a job. `launch` takes kernels in the order in which each host launches them."""

    def __init__(self, latencies: Latencies) -> None:
        self._latencies = latencies
        self._ready: deque[Kernel] = deque()
        self.kernels: list[Kernel] = []

    def launch(self, kernel: Kernel) -> None:
        self.kernels.append(kernel)
        kernel.stream.last = kernel
        kernel.stream.waits = []
        for transfer in kernel.transfers:
            transfer.kernels[kernel.rank] = kernel
        for other in (*kernel.depends_on, *kernel.behind):
            if other.end_ns < 0:
                other._dependents.append(kernel)
                kernel._unknown += 1
        if not kernel._unknown:
            self._ready.append(kernel)

    def run(self) -> None:
        """Find the times of all kernels that follow from what has been launched."""
        while self._ready:
            kernel = self._ready.popleft()
            self._start(kernel)
            if not kernel.transfers:
                self._end(kernel, kernel.start_ns + kernel.duration_ns)
            for transfer in kernel.transfers:
                started = [member for member in transfer.kernels.values() if member.start_ns >= 0]
                if len(started) == len(transfer.members):
                    transfer.end_ns = max(member.start_ns for member in started) + transfer.transfer_ns
                    for member in started:
                        self._end_if_through(member)

    def _start(self, kernel: Kernel) -> None:
        wait_ns = max((other.end_ns for other in kernel.depends_on), default=0)
        kernel.arrival_ns = max(kernel.launch_ns, wait_ns)
        free_ns = max((other.end_ns + self._latencies.gap_ns for other in kernel.behind), default=0)
        if kernel.depends_on:
            free_ns = max(free_ns, wait_ns + self._latencies.event_ns)
        kernel.start_ns = max(kernel.launch_ns + self._latencies.launch_ns, free_ns)
        if kernel.in_order:
            kernel.arrival_ns = max([kernel.arrival_ns, *(other.end_ns for other in kernel.behind)])

    def _end_if_through(self, kernel: Kernel) -> None:
        ends_ns = [transfer.end_ns for transfer in kernel.transfers]
        if min(ends_ns) >= 0:
            self._end(kernel, max(ends_ns) + kernel.late_ns)

    def _end(self, kernel: Kernel, end_ns: int) -> None:
        kernel.end_ns = end_ns
        for dependent in kernel._dependents:
            dependent._unknown -= 1
            if not dependent._unknown:
                self._ready.append(dependent)
