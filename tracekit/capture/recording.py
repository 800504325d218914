"""How one window of one rank is recorded: it runs the profiler, the observers and the step log, and writes the trace.

The order of calls is `prepare()` (warm-up), `open()`, `mark()` as each call begins, `close()`, `write()`. A recording
that is closed and never written leaves nothing. The caller (`probe_object.py`) catches what these raise.

As a recording closes, `JobFacts` collects what is known about the job: groups, collectives, meshes, clock and device.
The collectives of the window are read from torch's flight recorders.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tracekit.capture.default_observers import default_observers
from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.patching import remove_patches, take_failures
from tracekit.capture.hooks.torch_compile import hide_from_compiler
from tracekit.capture.job.clock import HostClock
from tracekit.capture.job.groups import DESTROYED_GROUP, GroupTable, Layout, choose_mesh, find_layouts
from tracekit.capture.job.process import Identity, accelerator_module, launch_settings, metadata_of, this_device
from tracekit.capture.job.run_agreement import AgreedStep
from tracekit.capture.observers import MetadataDraft, Observer
from tracekit.capture.output.packing import CheckedExport, export_trace
from tracekit.capture.output.paths import DiskBudget, RecordingPaths
from tracekit.capture.overhead import OverheadMeter
from tracekit.capture.profiler_session import ProfilerSession
from tracekit.capture.schedule import WindowPlan
from tracekit.capture.step_log import StepLog
from tracekit.model.metadata import (
    CaptureMetadata,
    ClockMeasurement,
    CollectiveRecord,
    Device,
    Overhead,
    RecordingNote,
    Window,
)
from tracekit.model.names.collectives import kind_of_collective

FAILED_DEVICE_LIMIT_S = 2.0  # how long to wait for the device of a program that fails
DEVICE_LIMIT_S = 10.0  # of one that ends; or this many times the longest step, if that is longer
LONGEST_STEP_FACTOR = 5


@dataclass
class _RecordingCost:
    """What this recording cost the job, in ns."""

    bookkeeping_ns: int = 0
    stop_ns: int = 0
    export_ns: int = 0


class Recording:
    """The recording of one window, from its warm-up to its trace file."""

    def __init__(
        self,
        plan: WindowPlan,
        options: dict[str, bool],
        clock: HostClock,
        watch: Sequence[Any],
        on_other_profiler: Callable[[], None],
    ) -> None:
        self.plan = plan
        self.log = StepLog()
        self.first_step = AgreedStep(first_step=0, source="calls")  # set before it is described
        self._clock = clock
        self._watch = watch
        self._prepared_objects: LiveObjects | None = None
        self._session = ProfilerSession(options, on_other_profiler)
        self._observers: list[Observer] = []
        self._options = sorted(name for name, on in options.items() if on)
        self._cost = _RecordingCost()
        self._meter = OverheadMeter(options)
        self._notes: list[RecordingNote] = []
        self._start_ns = self._end_ns = 0
        self._thread: int | None = None
        self._facts = JobFacts()
        self._draft = MetadataDraft(groups=self._facts.groups)

    @property
    def is_open(self) -> bool:
        return self._session.running

    @property
    def is_partial(self) -> bool:
        """Whether it has fewer whole steps than planned."""
        return sum(step.end_ns is not None for step in self.log.steps) < self.plan.steps

    @property
    def is_full(self) -> bool:
        """Whether all planned steps have returned, and this is the thread that may end it."""
        made = len(self.log.steps) + (self.log.returned_ns is not None)
        return made == self.plan.steps and self._thread == threading.get_ident()

    @property
    def saw_process_group(self) -> bool:
        return bool(self._facts.groups.groups)

    def prepare(self, objects: LiveObjects) -> None:
        """Do in the warm-up what takes long: a device runs dry while its host opens a window."""
        self._guarded(self._clock.measure)
        self._session.prepare()
        default_observers()  # imports them
        hide_from_compiler()
        self._prepared_objects = objects.later()

    def open(self, objects: LiveObjects) -> None:
        """Start recording; the next `mark` begins the first step.

        After a warm-up the observers attach to the objects that `prepare` found, and `close` uses them again: there may
        be millions of objects to search. A second search would add only what was created meanwhile.
        """
        is_prepared = self._prepared_objects is not None
        if not is_prepared:
            self._guarded(self._clock.measure)
        self._observers = default_observers()
        if not is_prepared:
            hide_from_compiler()
        if self._prepared_objects is not None:
            objects = self._prepared_objects
        for observer in self._observers:
            self._guarded(observer.attach, objects)
        self._prepared_objects = objects.later() if is_prepared else None
        self._attempt(self._meter.begin)
        self._session.start()
        self._thread = threading.get_ident()
        self._start_ns = time.time_ns()

    def mark(self, call: int) -> None:
        """End the step before `call`, and begin that of `call` if it is planned."""
        begin_ns = time.time_ns()
        self._end_step(begin_ns)
        if call < self.plan.stop:
            self.log.begin(call, begin_ns)
        self._cost.bookkeeping_ns += time.time_ns() - begin_ns

    def wait_for_device(self, *, failing: bool) -> None:
        """Wait for the device of a program that ends, whose queue may hang."""
        longest_s = self.log.longest_ns / 1e9
        limit_s = FAILED_DEVICE_LIMIT_S if failing else max(DEVICE_LIMIT_S, LONGEST_STEP_FACTOR * longest_s)
        if self.is_open and not self._session.wait_for_device(limit_s, failing=failing):
            self.note(
                f"the device was still at work {limit_s:.0f} s after the recording had ended: kernels and "
                "collectives that had not ended are missing"
            )

    def close(self, objects: LiveObjects | None = None) -> None:
        """Stop recording, and learn about groups and modules while they exist. May be called again."""
        if not self.is_open:
            self.discard()
            return
        in_step = self.log.is_in_step  # true when the job is killed
        self._end_step(self.log.returned_ns)
        prepared, self._prepared_objects = self._prepared_objects, None
        objects = prepared or objects or LiveObjects(self._watch)
        self._end_ns = time.time_ns()
        if not in_step:
            self._attempt(self._meter.while_recording)
        begin_ns = time.time_ns()
        try:
            self._session.stop()
        finally:
            self._cost.stop_ns = time.time_ns() - begin_ns
            self._detach(objects)
        self._attempt(self._meter.after_recording)
        self._collect_results(objects)

    def discard(self) -> None:
        """Stop in whatever state this recording is, and remove its patches and hooks from the program."""
        try:
            if self.is_open:
                self._session.wait_for_device(FAILED_DEVICE_LIMIT_S, failing=True)
            self._session.stop()
        finally:
            self._detach(LiveObjects(self._watch))

    def after_fork(self) -> None:
        """In a forked child: restore the functions that the parent's recording replaced, and record no more.

        Hooks on modules stay, where they open spans that nobody records. To find them, each worker of each data loader
        would have to search all objects.
        """
        with contextlib.suppress(Exception):
            self._session.after_fork()
        remove_patches()

    def _detach(self, objects: LiveObjects) -> None:
        self._attempt(self._meter.detach)  # first, as it was attached last
        for observer in reversed(self._observers):
            self._guarded(observer.detach, objects)
        remove_patches()
        for text in take_failures():
            self.note(text)

    def export(self, paths: RecordingPaths, budget: DiskBudget) -> None:
        """Let torch write its trace to `paths.export`. Raises OutputError."""
        begin_ns = time.time_ns()
        export_trace(paths, self._session.export, budget)
        self._cost.export_ns = time.time_ns() - begin_ns

    def describe(self, export: CheckedExport, run_id: str, identity: Identity, clock_limit_s: float) -> CaptureMetadata:
        """Return the metadata of the trace. Waits up to `clock_limit_s` for the measurements of the clock."""
        self._attempt(self._meter.count, export.counts)
        self._guarded(self._facts.read_clock, self._clock, clock_limit_s)
        return self._metadata(run_id, identity, export.notes)

    def note(self, text: str) -> None:
        self._notes.append(RecordingNote(kind="capture", text=text))

    def _end_step(self, end_ns: int | None) -> None:
        self.log.end(end_ns)
        self._guarded(self.log.end_span)

    def _guarded(self, action: Callable[..., None], *arguments: Any) -> None:
        """Run `action`; if it fails, note the error and lose only what it would have contributed."""
        try:
            action(*arguments)
        except Exception as error:
            name = action.__qualname__.rpartition("<locals>.")[2]
            self.note(f"{name} failed: {type(error).__name__}: {error}")

    @staticmethod
    def _attempt(action: Callable[..., None], *arguments: Any) -> None:
        """Run an action of the overhead meter; if it fails, the overhead stays unknown."""
        with contextlib.suppress(Exception):
            action(*arguments)

    def _collect_results(self, objects: LiveObjects) -> None:
        """Collect the facts about the job and the observers' contributions.

        Done as the recording closes: the process group may be destroyed, and the program's objects dropped, before the
        recording is written. Each part is guarded by itself, as private tables of torch differ between versions.
        """
        facts = self._facts
        self._guarded(self._clock.measure)
        self._guarded(facts.list_groups)
        self._guarded(facts.list_collectives, self._start_ns, self._end_ns, self._thread, self.note)
        self._guarded(facts.find_meshes, objects)
        self._guarded(facts.name_device)
        self._draft = MetadataDraft(groups=facts.groups, steps=len(self.log.steps), collectives=facts.collectives)
        for observer in self._observers:
            self._guarded(observer.contribute, self._draft)
        self._observers = []

    def _metadata(self, run_id: str, identity: Identity, notes: list[RecordingNote]) -> CaptureMetadata:
        draft = self._draft
        draft.groups.extend_to_job(identity.world_size)
        plan, cost_ns, first_step = self.plan, self._meter.recording_ns(), self.first_step.first_step
        return metadata_of(
            run_id,
            identity,
            device=self._facts.device,
            window=Window(index=plan.index, skip=plan.skip, warmup=plan.warmup, partial=self.is_partial),
            steps=[replace(step, step=step.step + first_step) for step in self.log.steps],
            first_step=first_step,
            first_step_source=self.first_step.source,
            strategies=sorted(set(draft.strategies)),
            mesh=choose_mesh(self._facts.layouts, draft.groups.groups, identity.rank, identity.world_size),
            groups=draft.groups.groups,
            collectives=self._facts.collectives,
            p2p=draft.p2p,
            clock=self._facts.clock,
            ddp=draft.ddp,
            fsdp=draft.fsdp,
            pipeline=draft.pipeline,
            memory=draft.memory,
            precision=draft.precision,
            overhead=Overhead(
                per_step_ns=None if cost_ns is None else (self._cost.bookkeeping_ns + cost_ns) // len(self.log.steps),
                stop_ns=self._cost.stop_ns,
                export_ns=self._cost.export_ns,
                clock_ns=self._clock.spent_ns,
                operation_ns=self._meter.operation_ns,
                options=self._options,
            ),
            notes=[*self._notes, *draft.notes, *notes],
            uses=draft.uses,
            rpc=draft.rpc,
            settings=[*draft.settings, *launch_settings()],
        )


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
        of_nccl_alone = "TORCH_NCCL_TRACE_BUFFER_SIZE, for NCCL's alone"  # torch 2.6
        variable = "TORCH_FR_BUFFER_SIZE" if hasattr(_bindings(), "_dump_fr_trace_json") else of_nccl_alone
        return f"the flight recorder is off, so collectives have no sequence ids: see {variable}"
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
    dumps = (getattr(_bindings(), name, None) for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"))
    return [json.loads(dump()) for dump in dumps if dump is not None]


def _bindings() -> Any:
    return getattr(getattr(sys.modules.get("torch"), "_C", None), "_distributed_c10d", None)
