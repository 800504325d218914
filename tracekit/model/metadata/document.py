"""What the `tracekit` key holds as a whole, and what the manifest holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracekit.model.metadata.communication import CollectiveRecord, CommunicationUse, PointToPointRecord, RpcUse
from tracekit.model.metadata.job import (
    ClockMeasurement,
    Device,
    Group,
    Integer,
    Mesh,
    Overhead,
    Rank,
    RecordedStep,
    RecordingNote,
    Window,
    WorldSize,
)
from tracekit.model.metadata.training import DdpModule, FsdpUnit, MemoryUse, PipelineLayout, Precision, Settings

METADATA_VERSION = 1
METADATA_KEY = "tracekit"
MANIFEST_SUFFIX = ".manifest.json"
"""Of the names of manifests: that of the trace is in front of it."""

MERGED_KEY = "tracekit_merged"
"""The key of a trace that was merged from those of a run; such a trace is not a recording."""


@dataclass(frozen=True, kw_only=True)
class CaptureMetadata:
    """The value of the top-level key `tracekit`.

    Attributes:
        version: of this format, METADATA_VERSION.
        tracekit, torch, python: the versions that recorded.
        run_id: equal for all ranks and attempts of a job.
        attempt: how often the job had been restarted.
        rank: global rank.
        local_rank: rank among those of its host.
        world_size: ranks of the job.
        pid: id of the process.
        host: name of the host.
        host_id: a hash of the boot id; processes with the same one share a clock.
        device: the device on which the rank trains.
        window: which recording this is.
        steps: the recorded steps.
        strategies: how the job is parallel: ddp, fsdp1, fsdp2, hsdp, zero1 to zero3, tp, sp, pp, ep, cp, dp,
            manual_dp, manual_fsdp, local_sgd, rpc.
        mesh: the device mesh, and the place of the rank in it.
        groups: the process groups of the rank.
        collectives: entries of the flight recorder.
        p2p: sends and receives that Python code issued.
        clock: how far the rank's clock is ahead.
        ddp: the modules that DDP wraps, with their buckets.
        fsdp: parameters that are gathered together.
        pipeline: the schedule of a pipeline, and the stages of the rank.
        memory: bytes of parameters, gradients and optimizer state.
        precision: the number formats in use.
        overhead: what recording cost.
        notes: what could not be recorded, and why.
        uses: what Python code communicated on each group.
        rpc: remote calls.
        settings: how torch and frameworks are configured.
        first_step: the number of the job's step at the probe's first call.
        first_step_source: who says that: "argument", "framework", "optimizer", or "calls" if nobody does.
    """

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
    host_id: str
    device: Device
    window: Window
    steps: list[RecordedStep]
    strategies: list[str] = field(default_factory=list)
    mesh: Mesh | None = None
    groups: list[Group] = field(default_factory=list)
    collectives: list[CollectiveRecord] = field(default_factory=list)
    p2p: list[PointToPointRecord] = field(default_factory=list)
    clock: ClockMeasurement | None = None
    ddp: list[DdpModule] = field(default_factory=list)
    fsdp: list[FsdpUnit] = field(default_factory=list)
    pipeline: PipelineLayout | None = None
    memory: MemoryUse | None = None
    precision: Precision | None = None
    overhead: Overhead | None = None
    notes: list[RecordingNote] = field(default_factory=list)
    uses: list[CommunicationUse] = field(default_factory=list)
    rpc: RpcUse | None = None
    settings: list[Settings] = field(default_factory=list)
    first_step: Integer = 0
    first_step_source: str = "calls"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Written after the trace. If it is there, the trace is complete.

    Attributes:
        version: of this format, METADATA_VERSION.
        run_id, attempt, rank, world_size, host: as in the trace.
        file: name of the trace.
        bytes: size of the file.
        sha256: digest of the file, in hexadecimal.
        events: how many events the trace has.
        steps: first and last recorded step.
    """

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
    steps: tuple[Integer, Integer]
