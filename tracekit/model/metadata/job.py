"""The job and the process that was recorded: device, steps, groups, clock, and what recording cost."""

from __future__ import annotations

from typing import Literal

import msgspec

from tracekit.model.metadata.limits import Integer, Rank, WorldSize

__all__ = [
    "ClockMeasurement",
    "ClockSample",
    "Device",
    "Group",
    "Mesh",
    "Overhead",
    "RankSlice",
    "RecordedStep",
    "RecordingNote",
    "Window",
]


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """The device on which a rank trains.

    Attributes:
        type: "cpu", "cuda", "xpu", ...
        index: number of the device on its host.
        name: name of the product.
    """

    type: str
    index: Integer
    name: str


class Window(msgspec.Struct, frozen=True, kw_only=True):
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


class RecordedStep(msgspec.Struct, frozen=True, kw_only=True):
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


class Mesh(msgspec.Struct, frozen=True, kw_only=True):
    """The device mesh of the job.

    Attributes:
        names: of its dimensions.
        shape: sizes of its dimensions.
        coordinate: the place of this rank in it.
    """

    names: list[str]
    shape: list[Integer]
    coordinate: list[Integer]


class RankSlice(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks at equal distances.

    Attributes:
        slice: start, stop and stride, as of Python's `range`.
    """

    slice: tuple[Rank, Rank, WorldSize]  # start, stop, stride


class Group(msgspec.Struct, frozen=True, kw_only=True):
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
    threads: list[Integer] = []
    dimension: str | None = None


class ClockSample(msgspec.Struct, frozen=True, kw_only=True):
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


class ClockMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """How far this rank's clock is ahead of that of a reference.

    Attributes:
        reference_rank: the rank whose clock is the reference.
        method: "store": through the job's key-value store; "none": not measured.
        samples: the measurements.
    """

    reference_rank: Rank | None
    method: Literal["store", "none"]
    samples: list[ClockSample]


class Overhead(msgspec.Struct, frozen=True, kw_only=True):
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
    options: list[str] = []


class RecordingNote(msgspec.Struct, frozen=True, kw_only=True):
    """What could not be recorded, or what a reader must know of it.

    Attributes:
        kind: as of the report's notes.
        text: one sentence.
    """

    kind: str
    text: str
