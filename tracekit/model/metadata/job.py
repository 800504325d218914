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
    type: str  # "cpu", "cuda", "xpu", ...
    index: Integer
    name: str


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The recording window of this trace: `skip` calls, then `warmup` calls, then the recorded steps."""

    index: Integer
    skip: Integer
    warmup: Integer
    partial: bool  # the job ended before the window was full


class RecordedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the decorated step. It ends where the next one begins, so that data loading is inside."""

    step: Integer
    start_ns: Integer
    end_ns: Integer | None
    data_ns: Integer | None = None  # time spent in the data iterator, when it is wrapped
    returned_ns: Integer | None = None  # when the call returned: from then to `end_ns` the program was between steps


class Mesh(msgspec.Struct, frozen=True, kw_only=True):
    names: list[str]
    shape: list[Integer]
    coordinate: list[Integer]


class RankSlice(msgspec.Struct, frozen=True, kw_only=True):
    slice: tuple[Rank, Rank, WorldSize]  # start, stop, stride


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A process group of this rank. `id` is local to the rank; over ranks a group is identified by (desc, ranks)."""

    id: Integer
    name: str
    desc: str
    backend: str
    parallelism: str | None
    ranks: list[Rank] | Literal["world"] | RankSlice
    threads: list[
        Integer
    ] = []  # ids in the operating system of the threads on which Gloo runs this group's collectives
    dimension: str | None = None  # dp_shard or dp_replicate: one of two dimensions of the same parallelism


class ClockSample(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of the rank's clock.

    Attributes:
        offset_ns: this rank's clock minus the reference's, at `at_ns`.
        error_ns: half-width of the uncertainty.
    """

    at_ns: Integer
    offset_ns: Integer
    error_ns: Integer
    rtt_ns: Integer


class ClockMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    reference_rank: Rank | None
    method: Literal["store", "none"]
    samples: list[ClockSample]


class Overhead(msgspec.Struct, frozen=True, kw_only=True):
    """What the capture itself cost: per recorded step, at the profiler's stop, for the export and for measuring the
    clock.
    """

    per_step_ns: Integer | None
    stop_ns: Integer | None
    export_ns: Integer | None
    clock_ns: Integer | None
    operation_ns: Integer | None = None  # what one operator costs, as measured; a part of `per_step_ns`
    options: list[str] = []  # the options of torch.profiler that were on, sorted


class RecordingNote(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    text: str
