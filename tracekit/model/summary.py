"""What a worker keeps of one rank: compact, picklable, no raw events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tracekit.model.communication import GroupKey
from tracekit.model.metadata import ClockMeasurement, DdpModule, Mesh
from tracekit.model.notes import Note

__all__ = ["CommunicationSum", "RankSummary", "StepParts"]


@dataclass(frozen=True, kw_only=True)
class StepParts:
    """One step of one rank: integer nanoseconds, `step_ns` the exact sum of the four parts of definitions.md."""

    step: int
    start_ns: int
    complete: bool
    data_ns: int | None  # in the wrapped data iterator
    step_ns: int
    compute_ns: int
    comm_ns: int
    overlapped_comm_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    idle_ns: int


@dataclass(frozen=True, kw_only=True)
class CommunicationSum:
    """Communication of one rank by group, kind and phase, over its complete steps."""

    group: GroupKey | None
    kind: str
    phase: str | None
    count: int
    size_bytes: int | None
    total_ns: int
    exposed_ns: int


@dataclass(frozen=True, kw_only=True)
class RankSummary:
    """One rank's recording, all its windows."""

    rank: int
    world_size: int | None
    files: tuple[str, ...]
    run_id: str | None
    attempt: int
    host: str | None
    device: Literal["gpu", "cpu"]
    device_name: str | None
    strategies: tuple[str, ...]
    strategies_inferred: bool
    groups: tuple[GroupKey, ...]
    mesh: Mesh | None
    clock: ClockMeasurement | None
    ddp: tuple[DdpModule, ...]
    overhead_per_step_ns: int | None
    recorded_steps: tuple[int, ...]  # all of them, selected or not
    steps: tuple[StepParts, ...]
    communication: tuple[CommunicationSum, ...]
    event_count: int
    first_event_ns: int | None  # on the rank's wall clock
    notes: tuple[Note, ...]
