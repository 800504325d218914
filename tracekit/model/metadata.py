"""The types of the `tracekit` key that a capture writes into its trace, and of the manifest beside the trace.

`capture` writes them as JSON and `read` parses them. They import neither numpy, pandas nor torch, so that a training
job does not pay for it. Times are integer nanoseconds of the rank's wall clock, sizes are bytes, `None` means unknown.
Unknown keys are ignored. A type never changes within a `version`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

METADATA_VERSION = 1
METADATA_KEY = "tracekit"
MERGED_KEY = "tracekit_merged"
"""The key of a trace that was merged from those of a run; such a trace is not a recording."""

MAX_NS = 1 << 62
MAX_RANKS = 1 << 20

# A capture never writes values beyond these; a reader refuses them.
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
    """Base class: immutable, with keyword arguments only."""


class Device(Record, frozen=True):
    type: str  # "cpu", "cuda", "xpu", ...
    index: Integer
    name: str


class Window(Record, frozen=True):
    """The recording window of this trace: `skip` calls, then `warmup` calls, then the recorded steps."""

    index: Integer
    skip: Integer
    warmup: Integer
    partial: bool  # the job ended before the window was full


class RecordedStep(Record, frozen=True):
    """One call of the decorated step. It ends where the next one begins, so that data loading is inside."""

    step: Integer
    start_ns: Integer
    end_ns: Integer | None
    data_ns: Integer | None = None  # time spent in the data iterator, when it is wrapped
    returned_ns: Integer | None = None  # when the call returned: from then to `end_ns` the program was between steps


class Mesh(Record, frozen=True):
    names: list[str]
    shape: list[Integer]
    coordinate: list[Integer]


class RankSlice(Record, frozen=True):
    slice: tuple[Rank, Rank, WorldSize]  # start, stop, stride


class Group(Record, frozen=True):
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


class CollectiveRecord(Record, frozen=True):
    """One flight-recorder entry of a collective; `seq` is equal on all ranks of the group."""

    group: Integer  # -1: destroyed before the window was closed
    seq: Integer
    kind: str
    dtypes: list[str]
    in_shapes: list[list[Integer]]
    out_shapes: list[list[Integer]]
    created_ns: Integer
    on_step_thread: bool | None = None  # created on the thread that called the step; None: not known


CommunicationPurpose = Literal["gradients", "parameters", "activations", "tokens"]


class CommunicationUse(Record, frozen=True):
    """Collectives that the program's Python code issued on a group, by the purpose of the tensors that it passed."""

    group: Integer
    purpose: CommunicationPurpose
    calls: Integer  # in the window
    in_backward: Integer  # of these, while a backward pass was running
    parameters: Integer | None = None  # how many parameters' gradients, if that is known for each call


class PointToPointRecord(Record, frozen=True):
    """One send or receive that Python code issued; `peer` is a global rank."""

    group: Integer  # -1: destroyed before the window was closed
    peer: Rank
    tag: Integer
    direction: Literal["send", "recv"]
    index: Integer  # among those of the window with the same group, peer, tag and direction
    created_ns: Integer | None = None
    size_bytes: Integer | None = None
    any_source: bool = False  # the receive named no peer; `peer` is the sender


class ClockSample(Record, frozen=True):
    """One measurement of the rank's clock.

    Attributes:
        offset_ns: this rank's clock minus the reference's, at `at_ns`.
        error_ns: half-width of the uncertainty.
    """

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
    # The order in which the gradients of a backward pass came, as places among the parameters of all buckets, one
    # bucket after the other. Empty: not known.
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
    group: Integer | None = None  # the group in which stages exchange activations


class MemoryUse(Record, frozen=True):
    parameter_bytes: Integer | None
    gradient_bytes: Integer | None
    optimizer_bytes: Integer | None
    peak_bytes: Integer | None


class Precision(Record, frozen=True):
    """The number formats in use.

    Attributes:
        autocast: data types of the autocast contexts that were entered while recording.
        parameters: data types of the parameters, the one with the most bytes first.
        scaled: whether a gradient scaler was used.
    """

    autocast: list[str]
    parameters: list[str]
    scaled: bool


RpcCallKind = Literal["call", "remote", "builtin", "script", "fetch"]
"""call: a Python function whose result comes back. remote: one whose result stays with the callee (`rpc.remote`).
builtin: an operator of torch. script: a TorchScript function. fetch: of an RRef's value."""


class RpcCall(Record, frozen=True):
    """A remote call that this worker issued, with its number in the process.

    A `call` and a `remote` pass the id of the worker and this number to the callee. The other kinds run entirely in
    C++.
    """

    number: Integer
    callee: str  # name of the worker
    function: str
    kind: RpcCallKind
    issued_ns: Integer
    done_ns: Integer | None  # None: it was not seen to complete


class RpcService(Record, frozen=True):
    """A remote call that this worker served, with the caller's id and number of the call."""

    caller: Integer  # id of the worker
    number: Integer
    function: str
    start_ns: Integer
    end_ns: Integer


class RpcWait(Record, frozen=True):
    """The training thread was blocked in the wait for a future, or in the fetch of a remote value.

    Attributes:
        number: of the call that the future belongs to; None for futures made of others.
    """

    start_ns: Integer
    end_ns: Integer
    number: Integer | None = None


class RpcUse(Record, frozen=True):
    """What this worker of `torch.distributed.rpc` called in the window, and what it served to peers that record."""

    worker: str
    worker_id: Integer
    calls: list[RpcCall] = []
    services: list[RpcService] = []
    waits: list[RpcWait] = []


class Overhead(Record, frozen=True):
    """What the capture itself cost: per recorded step, at the profiler's stop, for the export and for measuring the
    clock.
    """

    per_step_ns: Integer | None
    stop_ns: Integer | None
    export_ns: Integer | None
    clock_ns: Integer | None
    operation_ns: Integer | None = None  # what one operator costs, as measured; a part of `per_step_ns`
    options: list[str] = []  # the options of torch.profiler that were on, sorted


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
    host_id: str  # a hash of the boot id; processes with the same one share a clock
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
    """Written after the trace. If it is there, the trace is complete."""

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
