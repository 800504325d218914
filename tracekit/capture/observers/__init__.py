"""Observers look at the training program while a window is open, and add what they learn to the metadata.

There is about one observer for each parallelism. A new one is a class with the three methods of `Observer`, listed in
`capture/default_observers.py`. It imports nothing that training has not imported. It may raise: the error becomes a
note.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.job.groups import GroupTable
from tracekit.capture.output.paths import DiskBudget
from tracekit.model.metadata import (
    CollectiveRecord,
    CommunicationUse,
    DdpModule,
    FsdpUnit,
    MemoryUse,
    PipelineLayout,
    PointToPointRecord,
    Precision,
    RecordingNote,
    RpcUse,
    Settings,
)

__all__ = ["MetadataDraft", "Observer", "ProcessRecorder"]


@dataclass(kw_only=True)
class MetadataDraft:
    """The part of the metadata that observers fill in.

    Attributes:
        groups: all groups of this rank.
        steps: how many steps the window recorded.
        collectives: of the window, on any group, as far as the flight recorder knows them.
    """

    groups: GroupTable
    steps: int = 0
    collectives: list[CollectiveRecord] = field(default_factory=list)
    strategies: list[str] = field(default_factory=list)
    ddp: list[DdpModule] = field(default_factory=list)
    fsdp: list[FsdpUnit] = field(default_factory=list)
    p2p: list[PointToPointRecord] = field(default_factory=list)
    pipeline: PipelineLayout | None = None
    memory: MemoryUse | None = None
    precision: Precision | None = None
    uses: list[CommunicationUse] = field(default_factory=list)
    rpc: RpcUse | None = None
    settings: list[Settings] = field(default_factory=list)
    notes: list[RecordingNote] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(RecordingNote(kind="capture", text=text))


class Observer(Protocol):
    """What a recording calls.

    `attach` is called before the first recorded step and `detach` after the last. Both run on the training thread,
    outside a backward pass unless the job is being killed. `contribute` is called once after `detach`, as the recording
    closes, whether or not it is written.

    `detach` undoes what `attach` did to the program; it may be called twice, or without `attach`. An observer holds
    objects of the program until `contribute` at most.
    """

    def attach(self, objects: LiveObjects) -> None: ...

    def detach(self, objects: LiveObjects) -> None: ...

    def contribute(self, draft: MetadataDraft) -> None: ...


class ProcessRecorder(Protocol):
    """Records what a process does beside its windows, also if it has none: a module with these functions."""

    def probe_created(self, path: Path, number: int, budget: DiskBudget) -> None:
        """Record from now on, below `path`, in the run of probe `number`, within its `budget`."""

    def step_began(self) -> None:
        """Note that a training step has begun: from now on windows record this process."""
