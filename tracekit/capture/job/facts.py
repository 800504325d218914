"""Collects what is known about the job as a recording closes: groups, collectives, meshes, clock and device.

The collectives of a window are read from torch's flight recorders.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.job.clock import HostClock
from tracekit.capture.job.device import accelerator_module, this_device
from tracekit.capture.job.groups import DESTROYED_GROUP, GroupTable
from tracekit.capture.job.meshes import Layout, find_layouts
from tracekit.model.metadata import ClockMeasurement, CollectiveRecord, Device
from tracekit.model.names.collectives import kind_of_collective

__all__ = ["JobFacts", "collective_records", "flight_recorder_dump", "flight_recorder_is_on", "missing_collectives"]


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


def flight_recorder_dump() -> list[dict[str, Any]]:
    """Return all entries of the flight recorders of the CPU backends and of NCCL; none where they are off or absent."""
    entries: dict[tuple[Any, ...], dict[str, Any]] = {}
    for dump in _dumps():
        for entry in dump.get("entries") or ():
            # NCCL's recorder answers to both names in some versions.
            key = (*entry["process_group"], entry.get("op_id"), entry["profiling_name"], entry["time_created_ns"])
            entries[key] = entry
    return list(entries.values())


def flight_recorder_is_on() -> bool:
    """Return whether a recorder is on: it then lists its groups even before the first collective."""
    return any(dump.get("entries") or dump.get("pg_config") for dump in _dumps())


def missing_collectives(entries: Sequence[dict[str, Any]], groups: GroupTable, start_ns: int) -> str | None:
    """Return why collectives since `start_ns` may not be among the entries, or None if all are."""
    if groups.groups and not entries and not flight_recorder_is_on():
        return "the flight recorder is off, so collectives have no sequence ids: see TORCH_FR_BUFFER_SIZE"
    if entries and min(int(entry.get("record_id", 0)) for entry in entries) > 0:
        oldest_ns = min(int(entry["time_created_ns"]) for entry in entries)
        if oldest_ns > start_ns:
            return "the flight recorder lost the window's first collectives: raise TORCH_FR_BUFFER_SIZE"
    return None


def collective_records(
    entries: Iterable[dict[str, Any]], groups: GroupTable, start_ns: int, end_ns: int, thread: int | None = None
) -> list[CollectiveRecord]:
    """Return the collectives created in `[start_ns, end_ns)`, in order of creation.

    `thread` is the one that runs the steps, as Python and the recorder number it.
    """
    records = []
    for entry in entries:
        group = groups.id_named(str(entry["process_group"][0]))
        created_ns = int(entry["time_created_ns"])
        if entry.get("is_p2p") or not start_ns <= created_ns < end_ns:
            continue
        created_on = entry.get("thread_id")
        records.append(
            CollectiveRecord(
                group=DESTROYED_GROUP if group is None else group,
                on_step_thread=None if created_on is None or thread is None else str(created_on) == str(thread),
                seq=int(entry["collective_seq_id"]),
                kind=kind_of_collective(str(entry["profiling_name"])),
                dtypes=[str(dtype) for dtype in entry.get("input_dtypes") or ()],
                in_shapes=[[int(size) for size in shape] for shape in entry.get("input_sizes") or ()],
                out_shapes=[[int(size) for size in shape] for shape in entry.get("output_sizes") or ()],
                created_ns=created_ns,
            )
        )
    return sorted(records, key=lambda record: record.created_ns)


def _dumps() -> list[dict[str, Any]]:
    bindings = getattr(getattr(sys.modules.get("torch"), "_C", None), "_distributed_c10d", None)
    dumps = (getattr(bindings, name, None) for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"))
    return [json.loads(dump()) for dump in dumps if dump is not None]
