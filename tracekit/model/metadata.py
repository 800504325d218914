"""The types of the `tracekit` key that a capture writes into its trace, and of the manifest beside it.

Comes in: what the training process knows. Goes out: JSON. `capture` writes these types, `read` parses them; they import
neither numpy, pandas nor torch, so that a training job pays for nothing. Times are integer nanoseconds of the rank's
wall clock, sizes bytes; `None` means unknown. Unknown keys are ignored; a type never changes within a `version`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

METADATA_VERSION = 1
METADATA_KEY = "tracekit"

__all__ = [
    "METADATA_KEY",
    "METADATA_VERSION",
    "Bucket",
    "CaptureMetadata",
    "ClockMeasurement",
    "ClockSample",
    "CollectiveRecord",
    "DdpModule",
    "Device",
    "FsdpUnit",
    "Group",
    "Manifest",
    "MemoryUse",
    "Mesh",
    "Overhead",
    "PipelineLayout",
    "PointToPointRecord",
    "RankSlice",
    "RecordedStep",
    "RecordingNote",
    "Window",
]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base: immutable, built by keyword."""


class Device(Record, frozen=True):
    type: str  # "cpu", "cuda", "xpu", ...
    index: int
    name: str


class Window(Record, frozen=True):
    """The recording window this trace is of: `skip` calls, then `warmup`, then the recorded steps."""

    index: int
    skip: int
    warmup: int
    partial: bool  # the job ended before the window was full


class RecordedStep(Record, frozen=True):
    """One call of the decorated step; it ends where the next one begins, so that data loading is inside."""

    step: int
    start_ns: int
    end_ns: int | None
    data_ns: int | None = None  # time spent in the data iterator, when it is wrapped


class Mesh(Record, frozen=True):
    names: list[str]
    shape: list[int]
    coordinate: list[int]


class RankSlice(Record, frozen=True):
    slice: tuple[int, int, int]  # start, stop, stride


class Group(Record, frozen=True):
    """A process group this rank belongs to. `id` is local to the rank; over ranks a group is (desc, ranks)."""

    id: int
    name: str
    desc: str
    backend: str
    parallelism: str | None
    ranks: list[int] | Literal["world"] | RankSlice


class CollectiveRecord(Record, frozen=True):
    """One flight-recorder entry of a collective; `seq` is equal on all ranks of the group."""

    group: int
    seq: int
    kind: str
    dtypes: list[str]
    in_shapes: list[list[int]]
    out_shapes: list[list[int]]
    created_ns: int


class PointToPointRecord(Record, frozen=True):
    group: int
    peer: int
    tag: int
    direction: Literal["send", "recv"]
    index: int


class ClockSample(Record, frozen=True):
    """`offset_ns`: this rank's clock minus the reference's at `at_ns`; `error_ns`: half-width of its uncertainty."""

    at_ns: int
    offset_ns: int
    error_ns: int
    rtt_ns: int


class ClockMeasurement(Record, frozen=True):
    reference_rank: int | None
    method: Literal["store", "none"]
    samples: list[ClockSample]


class Bucket(Record, frozen=True):
    index: int
    size_bytes: int
    dtype: str
    parameters: list[str]


class DdpModule(Record, frozen=True):
    module: str
    bucket_cap_bytes: int | None
    static_graph: bool
    find_unused: bool
    rebuilt: bool
    buckets: list[Bucket]


class FsdpUnit(Record, frozen=True):
    module: str
    unit_bytes: int
    shard_group: int


class PipelineLayout(Record, frozen=True):
    schedule: str
    stages: int
    virtual_stages: int
    microbatches: int
    stage_ids: list[int]


class MemoryUse(Record, frozen=True):
    parameter_bytes: int | None
    gradient_bytes: int | None
    optimizer_bytes: int | None
    peak_bytes: int | None


class Overhead(Record, frozen=True):
    """What the capture itself cost: a recorded step, the profiler's stop, the export, the clock measurement."""

    per_step_ns: int | None
    stop_ns: int | None
    export_ns: int | None
    clock_ns: int | None


class RecordingNote(Record, frozen=True):
    kind: str
    text: str


class CaptureMetadata(Record, frozen=True):
    """The value of the top-level key `tracekit`."""

    version: int
    tracekit: str
    torch: str
    python: str
    run_id: str
    attempt: int
    rank: int
    local_rank: int
    world_size: int
    pid: int
    host: str
    host_id: str  # a hash of the boot id: same host, same clock
    device: Device
    window: Window
    steps: list[RecordedStep]
    strategies: list[str] = []
    mesh: Mesh | None = None
    groups: list[Group] = []
    collectives: list[CollectiveRecord] = []
    p2p: list[PointToPointRecord] = []
    clock: ClockMeasurement | None = None
    ddp: list[DdpModule] = []
    fsdp: list[FsdpUnit] = []
    pipeline: PipelineLayout | None = None
    memory: MemoryUse | None = None
    overhead: Overhead | None = None
    notes: list[RecordingNote] = []


class Manifest(Record, frozen=True):
    """Written after the trace; its presence means that the trace is complete."""

    version: int
    run_id: str
    attempt: int
    rank: int
    world_size: int
    host: str
    file: str
    bytes: int
    sha256: str
    events: int
    steps: tuple[int, int]  # first and last recorded step
