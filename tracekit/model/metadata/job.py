"""What is recorded of the job and its process: device, steps, groups, clock, progress, and what recording cost.

Numbers are within limits (`MAX_NS`, `MAX_RANKS`). A capture never writes values beyond them, and a reader refuses
those.

Each rank of a job that may be restarted leaves a progress file for each attempt. It has a fixed size. First comes a
`ProgressHeader` as JSON, padded with spaces to `HEADER_BYTES`. A ring of `RING_ENTRIES` entries follows, each a call
and the time at which it began, as two little-endian int64. Entry n is at index n modulo `RING_ENTRIES`; an entry whose
time is 0 is unused. Each write is small and stands for itself, so that what a killed process leaves can be read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from tracekit.model.metadata.json_text import encode

try:
    from msgspec import Meta
except ImportError:  # in a training job that has torch alone: it reads no trace, and so checks no limits

    def Meta(*, ge: int, le: int) -> tuple[int, int]:  # type: ignore[no-redef]  # noqa: N802
        return ge, le


HEADER_BYTES = 2048
RING_ENTRIES = 256
PROGRESS_SUFFIX = ".progress"
_ENTRY = struct.Struct("<qq")
FILE_BYTES = HEADER_BYTES + RING_ENTRIES * _ENTRY.size

MAX_NS = 1 << 62
MAX_RANKS = 1 << 20

Integer = Annotated[int, Meta(ge=-MAX_NS, le=MAX_NS)]
Rank = Annotated[int, Meta(ge=0, le=MAX_RANKS)]
WorldSize = Annotated[int, Meta(ge=1, le=MAX_RANKS)]


@dataclass(frozen=True, kw_only=True)
class Device:
    """The device on which a rank trains.

    Attributes:
        type: "cpu", "cuda", "xpu", ...
        index: number of the device on its host.
        name: name of the product.
    """

    type: str
    index: Integer
    name: str


@dataclass(frozen=True, kw_only=True)
class Window:
    """The recording window of this trace: `skip` calls, then `warmup` calls, then the recorded steps.

    Attributes:
        index: number of the window, from 0.
        skip: calls before the window.
        warmup: calls in which the profiler warmed up.
        partial: the job ended before the window was full.
    """

    index: Integer
    skip: Integer
    warmup: Integer
    partial: bool


@dataclass(frozen=True, kw_only=True)
class RecordedStep:
    """One call of the decorated step. It ends where the next one begins, so that data loading is inside.

    Attributes:
        step: number of the step in the job.
        start_ns: when the call began.
        end_ns: when the next call began; None: not known.
        data_ns: time spent in the data iterator, when it is wrapped.
        returned_ns: when the call returned: from then to `end_ns` the program was between steps.
    """

    step: Integer
    start_ns: Integer
    end_ns: Integer | None
    data_ns: Integer | None = None
    returned_ns: Integer | None = None


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """The device mesh of the job.

    Attributes:
        names: of its dimensions.
        shape: sizes of its dimensions.
        coordinate: the place of this rank in it.
    """

    names: list[str]
    shape: list[Integer]
    coordinate: list[Integer]


@dataclass(frozen=True, kw_only=True)
class RankSlice:
    """Ranks at equal distances.

    Attributes:
        slice: start, stop and stride, as of Python's `range`.
    """

    slice: tuple[Rank, Rank, WorldSize]  # start, stop, stride


@dataclass(frozen=True, kw_only=True)
class Group:
    """A process group of this rank. `id` is local to the rank; over ranks a group is identified by (desc, ranks).

    Attributes:
        id: number of the group on this rank.
        name: the name that torch gave it.
        desc: the description that the program gave it.
        backend: "gloo", "nccl", ...
        parallelism: what it is for: dp, tp, pp, ep, cp; None: not known.
        ranks: its global ranks.
        threads: ids in the operating system of the threads on which Gloo runs this group's collectives.
        dimension: dp_shard or dp_replicate: one of two dimensions of the same parallelism.
    """

    id: Integer
    name: str
    desc: str
    backend: str
    parallelism: str | None
    ranks: list[Rank] | Literal["world"] | RankSlice
    threads: list[Integer] = field(default_factory=list)
    dimension: str | None = None


@dataclass(frozen=True, kw_only=True)
class ClockSample:
    """One measurement of the rank's clock.

    Attributes:
        at_ns: when it was measured.
        offset_ns: this rank's clock minus the reference's, at `at_ns`.
        error_ns: half-width of the uncertainty.
        rtt_ns: round trip of the measurement.
    """

    at_ns: Integer
    offset_ns: Integer
    error_ns: Integer
    rtt_ns: Integer


@dataclass(frozen=True, kw_only=True)
class ClockMeasurement:
    """How far this rank's clock is ahead of that of a reference.

    Attributes:
        reference_rank: the rank whose clock is the reference.
        method: "store": through the job's key-value store; "none": not measured.
        samples: the measurements.
    """

    reference_rank: Rank | None
    method: Literal["store", "none"]
    samples: list[ClockSample]


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """What the capture itself cost.

    Attributes:
        per_step_ns: for each recorded step.
        stop_ns: to stop the profiler.
        export_ns: to export the trace.
        clock_ns: to measure the clock.
        operation_ns: what one operator costs, as measured; a part of `per_step_ns`.
        options: the options of torch.profiler that were on, sorted.
    """

    per_step_ns: Integer | None
    stop_ns: Integer | None
    export_ns: Integer | None
    clock_ns: Integer | None
    operation_ns: Integer | None = None
    options: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class RecordingNote:
    """What could not be recorded, or what a reader must know of it.

    Attributes:
        kind: as of the report's notes.
        text: one sentence.
    """

    kind: str
    text: str


@dataclass(frozen=True, kw_only=True)
class ProgressHeader:
    """What one rank says of itself in one attempt. Times are ns of its wall clock.

    Attributes:
        version: of this format.
        run_id, attempt, rank, world_size, pid, host, host_id: as in the trace.
        elastic_id: TORCHELASTIC_RUN_ID.
        agent: which process launched the worker; equal for the attempts that it launches.
        worker: which of its children this rank runs in; different for each attempt.
        restarts: failures after which this agent has restarted its workers (TORCHELASTIC_RESTART_COUNT).
        process_start_ns: when the process started.
        joined_ns: when its process group was complete.
        first_call_ns: when the first step began.
        first_step: the number of the job's step at the first call.
        first_step_source: "calls", "argument", "framework" or "optimizer".
        raised_ns: when the last call that raised did so.
        error: the type of what it raised.
        ended_ns: when the process began to exit; None if it was killed, or still runs.
        ending: "exit", "error" or "sigterm".
    """

    version: Integer = 1
    run_id: str
    attempt: Integer
    rank: Rank
    world_size: WorldSize
    pid: Integer
    host: str
    host_id: str
    elastic_id: str
    agent: str
    worker: str
    restarts: Integer
    process_start_ns: Integer | None = None
    joined_ns: Integer | None = None
    first_call_ns: Integer
    first_step: Integer = 0
    first_step_source: str = "calls"
    raised_ns: Integer | None = None
    error: str | None = None
    ended_ns: Integer | None = None
    ending: str | None = None


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A progress file.

    Attributes:
        calls: calls and the times at which they began, in ns, in order of time; only some of the last ones.
    """

    header: ProgressHeader
    calls: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, content: bytes, decode: Callable[[bytes], ProgressHeader]) -> Progress:
        """Return what a file holds, of which `decode` reads the header. Raises ValueError if it is none."""
        header = decode(content[:HEADER_BYTES])
        ring = content[HEADER_BYTES:FILE_BYTES]
        entries = _ENTRY.iter_unpack(ring[: len(ring) - len(ring) % _ENTRY.size])
        calls = sorted(((call, time_ns) for call, time_ns in entries if 0 < time_ns <= MAX_NS), key=lambda e: e[1])
        return cls(header=header, calls=tuple(calls))

    @property
    def last_sign_ns(self) -> int:
        """Return the last moment at which the process is known to have lived."""
        header = self.header
        known = [header.first_call_ns, header.raised_ns, header.ended_ns, *(time_ns for _, time_ns in self.calls)]
        return max(time_ns for time_ns in known if time_ns is not None)


def pack_header(header: ProgressHeader) -> bytes:
    """Return the header as it is written. Raises ValueError if it is too long."""
    text = encode(header)
    if len(text) > HEADER_BYTES:
        raise ValueError(f"a header of {len(text)} bytes")
    return text.ljust(HEADER_BYTES)


def pack_entry(number: int, call: int, time_ns: int) -> tuple[int, bytes]:
    """Return the offset of entry `number` in the file, and its bytes."""
    return HEADER_BYTES + number % RING_ENTRIES * _ENTRY.size, _ENTRY.pack(call, time_ns)
