"""The types of the `tracekit` key that a capture writes into its trace, and of the manifest beside it.

Comes in: what the training process knows. Goes out: JSON. `capture` writes these types, `read` parses them; they import
neither numpy, pandas nor torch, so that a training job pays for nothing. Times are integer nanoseconds of the rank's
wall clock, sizes bytes; `None` means unknown. Unknown keys are ignored; a type never changes within a `version`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

METADATA_VERSION = 1
METADATA_KEY = "tracekit"
MERGED_KEY = "tracekit_merged"
"""In a trace that was put together from those of a run: it is no recording of its own."""

MAX_NS = 1 << 62
MAX_RANKS = 1 << 20

# What is beyond these was not written by a capture: a reader refuses it instead of counting with it.
Integer = Annotated[int, msgspec.Meta(ge=-MAX_NS, le=MAX_NS)]
Rank = Annotated[int, msgspec.Meta(ge=0, le=MAX_RANKS)]
WorldSize = Annotated[int, msgspec.Meta(ge=1, le=MAX_RANKS)]

__all__ = [
    "MAX_NS",
    "MAX_RANKS",
    "MERGED_KEY",
    "METADATA_KEY",
    "METADATA_VERSION",
    "Bucket",
    "CaptureMetadata",
    "ClockMeasurement",
    "ClockSample",
    "CollectiveRecord",
    "CommunicationPurpose",
    "CommunicationUse",
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
    "Precision",
    "RankSlice",
    "RecordedStep",
    "RecordingNote",
    "RpcCall",
    "RpcCallKind",
    "RpcService",
    "RpcUse",
    "RpcWait",
    "Window",
]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base: immutable, built by keyword."""


class Device(Record, frozen=True):
    type: str  # "cpu", "cuda", "xpu", ...
    index: Integer
    name: str


class Window(Record, frozen=True):
    """The recording window this trace is of: `skip` calls, then `warmup`, then the recorded steps."""

    index: Integer
    skip: Integer
    warmup: Integer
    partial: bool  # the job ended before the window was full


class RecordedStep(Record, frozen=True):
    """One call of the decorated step; it ends where the next one begins, so that data loading is inside."""

    step: Integer
    start_ns: Integer
    end_ns: Integer | None
    data_ns: Integer | None = None  # time spent in the data iterator, when it is wrapped


class Mesh(Record, frozen=True):
    names: list[str]
    shape: list[Integer]
    coordinate: list[Integer]


class RankSlice(Record, frozen=True):
    slice: tuple[Rank, Rank, WorldSize]  # start, stop, stride


class Group(Record, frozen=True):
    """A process group this rank belongs to. `id` is local to the rank; over ranks a group is (desc, ranks)."""

    id: Integer
    name: str
    desc: str
    backend: str
    parallelism: str | None
    ranks: list[Rank] | Literal["world"] | RankSlice
    threads: list[Integer] = []  # of the operating system: where Gloo runs this group's collectives


class CollectiveRecord(Record, frozen=True):
    """One flight-recorder entry of a collective; `seq` is equal on all ranks of the group."""

    group: Integer  # -1: destroyed before the window was closed
    seq: Integer
    kind: str
    dtypes: list[str]
    in_shapes: list[list[Integer]]
    out_shapes: list[list[Integer]]
    created_ns: Integer
    on_step_thread: bool | None = None  # created on the thread that called the step; None: not said


CommunicationPurpose = Literal["gradients", "parameters", "activations", "tokens"]


class CommunicationUse(Record, frozen=True):
    """Collectives that the program's own Python code issued on a group, by whose tensors it handed over."""

    group: Integer
    purpose: CommunicationPurpose
    calls: Integer  # in the window
    in_backward: Integer  # of these, while a backward pass was running
    parameters: Integer | None = None  # whose gradients they were, where that is known of each


class PointToPointRecord(Record, frozen=True):
    """One send or receive that Python code issued; `peer` is a global rank."""

    group: Integer  # -1: destroyed before the window was closed
    peer: Rank
    tag: Integer
    direction: Literal["send", "recv"]
    index: Integer  # among those of the window with equal group, peer, tag and direction
    created_ns: Integer | None = None
    size_bytes: Integer | None = None
    any_source: bool = False  # the receive named no peer; `peer` is who sent


class ClockSample(Record, frozen=True):
    """`offset_ns`: this rank's clock minus the reference's at `at_ns`; `error_ns`: half-width of its uncertainty."""

    at_ns: Integer
    offset_ns: Integer
    error_ns: Integer
    rtt_ns: Integer


class ClockMeasurement(Record, frozen=True):
    reference_rank: Rank | None
    method: Literal["store", "none"]
    samples: list[ClockSample]


class Bucket(Record, frozen=True):
    index: Integer
    size_bytes: Integer
    dtype: str
    parameters: list[str]
    elements: list[Integer] = []  # of each parameter; empty: not known


class DdpModule(Record, frozen=True):
    module: str
    bucket_cap_bytes: Integer | None
    static_graph: bool
    find_unused: bool
    rebuilt: bool
    buckets: list[Bucket]
    # In which order the gradients of a backward pass came: places among the parameters of all buckets, one after the
    # other. Empty: not known.
    gradient_order: list[Integer] = []


class FsdpUnit(Record, frozen=True):
    module: str
    unit_bytes: Integer
    shard_group: Integer


class PipelineLayout(Record, frozen=True):
    schedule: str
    stages: Integer
    virtual_stages: Integer
    microbatches: Integer
    stage_ids: list[Integer]
    group: Integer | None = None  # in which the stages exchange activations


class MemoryUse(Record, frozen=True):
    parameter_bytes: Integer | None
    gradient_bytes: Integer | None
    optimizer_bytes: Integer | None
    peak_bytes: Integer | None


class Precision(Record, frozen=True):
    """Numbers in use: dtypes that autocast was entered with while recording, those of the parameters (the most bytes
    first), and whether a gradient scaler was used."""

    autocast: list[str]
    parameters: list[str]
    scaled: bool


RpcCallKind = Literal["call", "remote", "builtin", "script", "fetch"]
"""A Python function whose result comes back, or stays with the callee (`rpc.remote`); a builtin operator or TorchScript
function; the fetch of an RRef's value."""


class RpcCall(Record, frozen=True):
    """A remote call that this worker issued, by its number in the process. A `call` and a `remote` carry the id of the
    worker and this number to the callee; the other kinds run in C++ from end to end."""

    number: Integer
    callee: str  # name of the worker
    function: str
    kind: RpcCallKind
    issued_ns: Integer
    done_ns: Integer | None  # None: not seen to complete


class RpcService(Record, frozen=True):
    """A remote call that this worker ran, by its id."""

    caller: Integer  # id of the worker
    number: Integer
    function: str
    start_ns: Integer
    end_ns: Integer


class RpcWait(Record, frozen=True):
    """The training thread was blocked in the wait for a future, or the fetch of a remote value. `number`: of the call
    whose own future it was; None for futures made of others."""

    start_ns: Integer
    end_ns: Integer
    number: Integer | None = None


class RpcUse(Record, frozen=True):
    """What this worker of `torch.distributed.rpc` called in the window, and served to calls of recording peers."""

    worker: str
    worker_id: Integer
    calls: list[RpcCall] = []
    services: list[RpcService] = []
    waits: list[RpcWait] = []


class Overhead(Record, frozen=True):
    """What the capture itself cost: a recorded step, the profiler's stop, the export, the clock measurement."""

    per_step_ns: Integer | None
    stop_ns: Integer | None
    export_ns: Integer | None
    clock_ns: Integer | None
    operation_ns: Integer | None = None  # of `per_step_ns`: an operator's share, as measured
    options: list[str] = []  # torch.profiler's that were on, sorted


class RecordingNote(Record, frozen=True):
    kind: str
    text: str


class CaptureMetadata(Record, frozen=True):
    """The value of the top-level key `tracekit`."""

    version: Integer
    tracekit: str
    torch: str
    python: str
    run_id: str
    attempt: Integer
    rank: Rank
    local_rank: Rank
    world_size: WorldSize
    pid: Integer
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
    precision: Precision | None = None
    overhead: Overhead | None = None
    notes: list[RecordingNote] = []
    uses: list[CommunicationUse] = []
    rpc: RpcUse | None = None


class Manifest(Record, frozen=True):
    """Written after the trace; its presence means that the trace is complete."""

    version: Integer
    run_id: str
    attempt: Integer
    rank: Rank
    world_size: WorldSize
    host: str
    file: str
    bytes: Integer
    sha256: str
    events: Integer
    steps: tuple[Integer, Integer]  # first and last recorded step
