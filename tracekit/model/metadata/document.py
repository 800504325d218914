"""The key itself, with all that it holds, and the manifest."""

from __future__ import annotations

import msgspec

from tracekit.model.metadata.communication import CollectiveRecord, CommunicationUse, PointToPointRecord
from tracekit.model.metadata.job import (
    ClockMeasurement,
    Device,
    Group,
    Mesh,
    Overhead,
    RecordedStep,
    RecordingNote,
    Window,
)
from tracekit.model.metadata.limits import Integer, Rank, WorldSize
from tracekit.model.metadata.rpc import RpcUse
from tracekit.model.metadata.training import DdpModule, FsdpUnit, MemoryUse, PipelineLayout, Precision, Settings

__all__ = [
    "MERGED_KEY",
    "METADATA_KEY",
    "METADATA_VERSION",
    "CaptureMetadata",
    "Manifest",
]

METADATA_VERSION = 1
METADATA_KEY = "tracekit"
MERGED_KEY = "tracekit_merged"
"""The key of a trace that was merged from those of a run; such a trace is not a recording."""


class CaptureMetadata(msgspec.Struct, frozen=True, kw_only=True):
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
    settings: list[Settings] = []
    first_step: Integer = 0  # the number of the job's step at the probe's first call
    first_step_source: str = "calls"  # who says that: "argument", "framework", "optimizer", or nobody


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
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
