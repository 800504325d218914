"""Collects what is known about the job as a recording closes: groups, collectives, meshes, clock and device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.job.clock import HostClock
from tracekit.capture.job.device import accelerator_module, this_device
from tracekit.capture.job.flight_recorder import collective_records, flight_recorder_dump, missing_collectives
from tracekit.capture.job.groups import GroupTable
from tracekit.capture.job.meshes import Layout, find_layouts
from tracekit.model.metadata import ClockMeasurement, CollectiveRecord, Device

__all__ = ["JobFacts"]


@dataclass(kw_only=True)
class JobFacts:
    """Filled in part by part, before the process group is destroyed.

    Each method reads private tables of torch, which may differ in another version: the caller guards each by itself.
    """

    groups: GroupTable = field(default_factory=GroupTable)
    collectives: list[CollectiveRecord] = field(default_factory=list)
    layouts: list[Layout] = field(default_factory=list)
    clock: ClockMeasurement | None = None
    device: Device = field(default_factory=lambda: Device(type="cpu", index=0, name="unknown"))

    def list_groups(self) -> None:
        self.groups = GroupTable.of_this_rank()

    def list_collectives(self, start_ns: int, end_ns: int, thread: int | None, note: Callable[[str], None]) -> None:
        """List the collectives from `start_ns` to `end_ns`; `thread` runs the steps."""
        entries = flight_recorder_dump()
        # On an accelerator the profiler itself records groups and sequence ids of collectives.
        if accelerator_module() is None and (reason := missing_collectives(entries, self.groups, start_ns)):
            note(reason)
        self.collectives = collective_records(entries, self.groups, start_ns, end_ns, thread)

    def find_meshes(self, objects: LiveObjects) -> None:
        if self.groups.groups:
            meshes = objects.instances("torch.distributed.device_mesh", "DeviceMesh")
            self.layouts = find_layouts(meshes, self.groups)

    def read_clock(self, clock: HostClock, limit_s: float) -> None:
        self.clock = clock.result(limit_s)

    def name_device(self) -> None:
        self.device = this_device()
