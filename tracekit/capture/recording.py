"""One window of one rank: profiler, observers, steps, and in the end a trace file.

`prepare()` (warm-up), `open()`, then `mark()` at the entry of each call, `close()`, `write()`. A recording that is
closed and never written leaves nothing. The caller (`probe.py`) guards against what these raise.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracekit.capture.hooks.compiling import hide
from tracekit.capture.hooks.live import Program
from tracekit.capture.hooks.patching import release_patches, troubles
from tracekit.capture.hooks.span import span
from tracekit.capture.job.clock import HostClock
from tracekit.capture.job.groups import GroupTable, flight_recorder_dump, flight_recorder_is_on, flight_records
from tracekit.capture.job.meshes import Layout, layouts_of, mesh_of_run
from tracekit.capture.job.process import Identity, this_device
from tracekit.capture.job.provenance import metadata_of
from tracekit.capture.observers import Draft, Observer, default_observers
from tracekit.capture.output.disk import DiskBudget
from tracekit.capture.output.writer import trace_folder, write_trace
from tracekit.capture.overhead import OverheadMeter
from tracekit.capture.patience import patience_s
from tracekit.capture.rpc.serving import return_services
from tracekit.capture.schedule import Plan
from tracekit.capture.session import ProfilerSession
from tracekit.model.metadata import (
    CaptureMetadata,
    ClockMeasurement,
    CollectiveRecord,
    Device,
    Overhead,
    RecordedStep,
    RecordingNote,
    Window,
)
from tracekit.model.spans import DATA_SPAN

__all__ = ["Recording"]


@dataclass(kw_only=True)
class _OpenStep:
    step: int
    start_ns: int
    returned_ns: int | None = None
    failed: bool = False
    data_ns: int | None = None


@dataclass
class _Stopwatch:
    """What this recording cost the job, ns."""

    bookkeeping_ns: int = 0
    stop_ns: int = 0
    export_ns: int = 0


class Recording:
    def __init__(
        self,
        plan: Plan,
        options: dict[str, bool],
        clock: HostClock,
        watch: Sequence[Any],
        on_rival: Callable[[], None],
    ) -> None:
        self.plan = plan
        self.steps: list[RecordedStep] = []
        self._clock = clock
        self._watch = watch
        self._prepared_with: Program | None = None
        self._session = ProfilerSession(options, on_rival)
        self._observers: list[Observer] = []
        self._current: _OpenStep | None = None
        self._longest_step_ns = 0
        self._span: Any = None
        self._loading: Any = None
        self._loading_since_ns = 0
        self._options = sorted(name for name, on in options.items() if on)
        self._cost = _Stopwatch()
        self._meter = OverheadMeter(options)
        self._notes: list[RecordingNote] = []
        self._start_ns = self._end_ns = 0
        self._thread: int | None = None
        self._facts = _Facts()
        self._draft = Draft(groups=self._facts.groups)

    @property
    def is_open(self) -> bool:
        return self._session.running

    @property
    def is_partial(self) -> bool:
        """Fewer whole steps than planned, or an early recording: provisional by nature."""
        whole = sum(step.end_ns is not None for step in self.steps)
        return self.plan.early or whole < self.plan.steps

    @property
    def patience_s(self) -> float:
        """How long to wait for the next call, when one has returned."""
        step, longest_ns = self._current, self._longest_step_ns
        if step is not None and step.returned_ns is not None:
            longest_ns = max(longest_ns, step.returned_ns - step.start_ns)
        return patience_s(longest_ns, all_returned=self.has_all_steps)

    @property
    def has_all_steps(self) -> bool:
        """The last planned call was made; asked for between calls."""
        return self._current is not None and self._current.step == self.plan.stop - 1

    @property
    def is_loading(self) -> bool:
        return self._loading is not None

    @property
    def saw_process_group(self) -> bool:
        return bool(self._facts.groups.groups)

    def prepare(self, program: Program) -> None:
        self._session.prepare()
        self._prepared_with = program.later()

    def open(self, program: Program) -> None:
        """Start recording; the next `mark` begins the first step. After a warm-up the observers attach to what
        `prepare` has found: a second search would find the same, but for what a step of the warm-up has made."""
        if not self.plan.early:  # written in short jobs only, which should not wait for anything
            self._guarded(self._clock.measure)
        self._observers = default_observers()
        hide()
        if self._prepared_with is not None:
            program, self._prepared_with = self._prepared_with, None
        for observer in self._observers:
            self._guarded(observer.attach, program)
        self._attempt(self._meter.begin)
        self._session.start()
        self._thread = threading.get_ident()
        self._start_ns = time.time_ns()

    def mark(self, call: int) -> None:
        """A call begins, and with it the step before it ends."""
        begin_ns = time.time_ns()
        self._end_step(begin_ns)
        if call < self.plan.stop:
            self._span = sys.modules["torch"].profiler.record_function(f"ProfilerStep#{call}")
            self._span.__enter__()
            self._current = _OpenStep(step=call, start_ns=begin_ns)
        self._cost.bookkeeping_ns += time.time_ns() - begin_ns

    def returned(self, failed: bool) -> None:
        """The call has returned: if no other follows, its step ends here. One that raised never ends."""
        if self._current is not None:
            self._current.returned_ns = None if failed else time.time_ns()
            self._current.failed = failed

    def cancel_step(self) -> None:
        """The call that has just begun is no step: a generator was found exhausted."""
        self._end_span()
        self._current = None

    def begin_loading(self) -> None:
        """The wrapped data iterator is asked for its next item."""
        self._loading = None
        loading = span(DATA_SPAN)
        loading.__enter__()
        self._loading, self._loading_since_ns = loading, time.monotonic_ns()

    def end_loading(self, loaded: bool) -> None:
        """It has answered; the time it took belongs to the current step if there was an item."""
        if self._loading is None:
            return
        data_ns = time.monotonic_ns() - self._loading_since_ns
        loading, self._loading = self._loading, None
        loading.__exit__(None, None, None)
        if loaded and self._current is not None:
            self._current.data_ns = (self._current.data_ns or 0) + data_ns

    def close(self, program: Program | None = None, *, anywhere: bool = False) -> None:
        """Stop recording and take notes of groups and modules while they exist. Safe to call again. `anywhere`: the
        program is not at the begin or end of a call."""
        if not self.is_open:
            self.discard()
            return
        in_step = self._current is not None and self._current.returned_ns is None  # flushed as the job is killed
        if self._current is not None:
            self._end_step(self._current.returned_ns)
        program = program or Program(self._watch)
        self._end_ns = time.time_ns()
        if not in_step and not anywhere:
            self._attempt(self._meter.while_recording)
        begin_ns = time.time_ns()
        try:
            self._session.stop()
        finally:
            self._cost.stop_ns = time.time_ns() - begin_ns
            self._detach(program)
        self._attempt(self._meter.after_recording)
        self._gather(program)

    def discard(self) -> None:
        """Stop, wherever this recording is in its life, and take back what it does to the program."""
        try:
            self._session.stop()
        finally:
            self._detach(Program(self._watch))

    def drop(self) -> None:
        """It is closed, and nobody wants it any more: what it took from others is theirs again."""
        if self._draft.rpc is not None:
            return_services(self._draft.rpc.services)

    def forget(self) -> None:
        """In a forked child: take back the functions that the parent's recording replaced, and record no more. Hooks on
        modules stay in the copy, where they open spans that nobody records: to find them there would be a search of
        all objects in each worker of each data loader."""
        with contextlib.suppress(Exception):
            self._session.forget()
        release_patches()

    def _detach(self, program: Program) -> None:
        self._attempt(self._meter.detach)  # it came last, on top of what the observers put there
        for observer in reversed(self._observers):
            self._guarded(observer.detach, program)
        release_patches()
        for text in troubles():
            self.note(text)

    def write(self, root: Path, run_id: str, identity: Identity, budget: DiskBudget) -> Path:
        """Write the trace below `root`; returns its path. Raises OutputError."""
        begin_ns = time.time_ns()
        folder = trace_folder(root, run_id, identity.attempt, self.steps[0].step, identity.rank, identity.world_size)

        def describe(events: int, notes: list[RecordingNote]) -> CaptureMetadata:
            self._cost.export_ns = time.time_ns() - begin_ns
            return self._metadata(run_id, identity, notes)

        def export(file: Path) -> None:
            self._session.export(file)
            self._attempt(self._meter.count, file)

        return write_trace(folder, export, describe, identity.rank, budget)

    def note(self, text: str) -> None:
        self._notes.append(RecordingNote(kind="capture", text=text))

    def _end_step(self, end_ns: int | None) -> None:
        step, self._current = self._current, None
        if step is not None:
            ended_ns = None if step.failed else end_ns
            if ended_ns is not None:
                self._longest_step_ns = max(self._longest_step_ns, ended_ns - step.start_ns)
            self.steps.append(
                RecordedStep(step=step.step, start_ns=step.start_ns, end_ns=ended_ns, data_ns=step.data_ns)
            )
        self._guarded(self._end_span)

    def _end_span(self) -> None:
        opened, self._span = self._span, None
        if opened is not None:
            opened.__exit__(None, None, None)

    def _guarded(self, action: Callable[..., None], *arguments: Any) -> None:
        """What an observer raises costs its own contribution, nothing else."""
        try:
            action(*arguments)
        except Exception as error:
            name = action.__qualname__.rpartition("<locals>.")[2]
            self.note(f"{name} failed: {type(error).__name__}: {error}")

    @staticmethod
    def _attempt(action: Callable[..., None], *arguments: Any) -> None:
        """What the meter cannot measure stays unknown."""
        with contextlib.suppress(Exception):
            action(*arguments)

    def _gather(self, program: Program) -> None:
        """Learn what only exists until the process group is destroyed, and what the observers have found: they hold
        parts of the program, which may go before the recording is written, if it ever is. Part by part, as private
        tables of torch may be others in another version."""
        facts = self._facts
        if not self.plan.early:
            self._guarded(self._clock.measure)

        def list_groups() -> None:
            facts.groups = GroupTable.of_this_rank()

        def list_collectives() -> None:
            facts.collectives = self._collectives(facts.groups)

        def find_mesh() -> None:
            if facts.groups.groups:
                meshes = program.instances("torch.distributed.device_mesh", "DeviceMesh")
                facts.layouts = layouts_of(meshes, facts.groups)

        def read_clock() -> None:
            facts.clock = self._clock.result()

        def name_device() -> None:
            facts.device = this_device()

        for part in (list_groups, list_collectives, find_mesh, read_clock, name_device):
            self._guarded(part)
        self._draft = Draft(groups=facts.groups, collectives=facts.collectives)
        for observer in self._observers:
            self._guarded(observer.contribute, self._draft)
        self._observers = []

    def _collectives(self, groups: GroupTable) -> list[CollectiveRecord]:
        entries = flight_recorder_dump()
        if groups.groups and not entries and not flight_recorder_is_on():
            self.note("the flight recorder is off, so collectives have no sequence ids: see TORCH_FR_BUFFER_SIZE")
        elif entries and min(int(entry.get("record_id", 0)) for entry in entries) > 0:
            oldest_ns = min(int(entry["time_created_ns"]) for entry in entries)
            if oldest_ns > self._start_ns:
                self.note("the flight recorder lost the window's first collectives: raise TORCH_FR_BUFFER_SIZE")
        return flight_records(entries, groups, self._start_ns, self._end_ns, self._thread)

    def _metadata(self, run_id: str, identity: Identity, notes: list[RecordingNote]) -> CaptureMetadata:
        draft = self._draft
        draft.groups.place_in(identity.world_size)
        plan, cost_ns = self.plan, self._meter.recording_ns()
        return metadata_of(
            run_id,
            identity,
            device=self._facts.device,
            window=Window(index=plan.index, skip=plan.skip, warmup=plan.warmup, partial=self.is_partial),
            steps=self.steps,
            strategies=sorted(set(draft.strategies)),
            mesh=mesh_of_run(self._facts.layouts, draft.groups.groups, identity.rank, identity.world_size),
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
                per_step_ns=None if cost_ns is None else (self._cost.bookkeeping_ns + cost_ns) // len(self.steps),
                stop_ns=self._cost.stop_ns,
                export_ns=self._cost.export_ns,
                clock_ns=self._clock.spent_ns,
                operation_ns=self._meter.operation_ns,
                options=self._options,
            ),
            notes=[*self._notes, *draft.notes, *notes],
            uses=draft.uses,
            rpc=draft.rpc,
        )


@dataclass
class _Facts:
    groups: GroupTable = field(default_factory=GroupTable)
    collectives: list[CollectiveRecord] = field(default_factory=list)
    layouts: list[Layout] = field(default_factory=list)
    clock: ClockMeasurement | None = None
    device: Device = field(default_factory=lambda: Device(type="cpu", index=0, name="unknown"))
