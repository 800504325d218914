"""Write one rank's page: the tracks that tracekit adds, and every slice of its recordings.

Counters that were recorded, such as clock rates, are in a group `counters`, and in the view of that name in SQL.

Memory over time comes from the records that the profiler writes with `profile_memory`. A device has one or two
counters, in bytes:

* `GPU 0 · allocated`, `GPU 0 · reserved`: the allocator's totals in tensors and in all, as
  `torch.cuda.memory_allocated()` and `memory_reserved()` return them;
* `CPU · allocated less freed`: bytes allocated since the recording began, less bytes freed, as far as they were
  recorded. PyTorch writes totals for the CPU too, but they are wrong: they miss what was allocated while nothing was
  recorded, and still contain what was freed then. Any device without totals has this counter.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tracekit.limits import limits
from tracekit.loading.options import SummaryOptions
from tracekit.loading.recording import Recording, recording_of
from tracekit.model.events import ABSENT, Bool, EventTable, Float64, Int64, MemoryRecords, Track
from tracekit.model.intervals import Intervals
from tracekit.model.run import ClockModel
from tracekit.rank.kernel_launches import DEVICE_CATEGORIES
from tracekit.rank.lanes import Lanes
from tracekit.read.cache.cache_dir import DecodedSpool
from tracekit.read.decode.decoder import decode
from tracekit.read.files.storage import parse_path
from tracekit.render.merged.derived_tracks import (
    DERIVED_GROUP,
    DerivedTrack,
    SliceFilter,
    chosen_time,
    slices_by_track,
    track_name,
    tracks_of_rank,
    tracks_of_recording,
)
from tracekit.render.merged.plan import RankPlan
from tracekit.render.palette import look_of
from tracekit.render.slices import TraceWriter

_CPU = 0
_DEVICES = {_CPU: "CPU", 1: "GPU", 6: "GPU", 12: "XPU", 13: "MPS", 15: "HPU", 19: "MTIA"}
"""Names of device types, by number in c10::DeviceType."""


@dataclass(frozen=True, kw_only=True)
class PageCounts:
    """What is on a page, and what is not.

    Attributes:
        slices: Number of slices from the input.
        filtered: Number of slices that an option or a limit leaves out, by its name.
        other_phases: Number of events of the input that are no slices, counters or records of memory, by phase in
            Chrome's format.
        categories: Categories of the input's slices.
    """

    slices: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    other_phases: Counter[str] = field(default_factory=Counter)
    categories: frozenset[str] = frozenset()

    def __add__(self, other: PageCounts) -> PageCounts:
        return PageCounts(
            slices=self.slices + other.slices,
            filtered=self.filtered + other.filtered,
            other_phases=self.other_phases + other.other_phases,
            categories=self.categories | other.categories,
        )


def write_rank(
    writer: TraceWriter[Any],
    plan: RankPlan,
    options: SummaryOptions,
    shown: SliceFilter,
    spool: DecodedSpool | None = None,
) -> PageCounts:
    """Decode the rank's files, or take the decoded traces from the `spool`, and write the rank's page.

    Raises InputError if a file has become unreadable.
    """
    page = _Page(writer, plan)
    counts = PageCounts()
    counters: list[CounterValues] = []
    for path in plan.summary.files:
        recording: Recording | None = None if spool is None else spool.pop(parse_path(path))
        if recording is None:
            trace = decode(parse_path(path), extra_args=True, namer=options.pseudonyms)
            recording = recording_of(trace, options.rules, replace(options.search, first=plan.summary.first_step))
        events, lanes = recording.trace.events, recording.lanes
        if plan.summary.is_measured:  # others have no steps
            left_out = [step.step for step in plan.summary.left_out]
            for track in tracks_of_recording(recording, plan.clock, options.steps, left_out):
                page.add(track)
        kept, filtered = shown.of(events, lanes, options.steps)
        left_out_before = writer.left_out
        page.add_input(events, lanes, kept)
        without_track_row = writer.left_out - left_out_before
        counters += counters_of(events, plan.clock, chosen_time(lanes, options.steps))
        if without_track_row:
            filtered[f"the {limits().named('lanes')}"] = without_track_row
        counts += PageCounts(
            slices=int(kept.sum()) - without_track_row,
            filtered=filtered,
            other_phases=Counter(events.other_phases),
            categories=events.categories,
        )
    for track in tracks_of_rank(plan, options.steps):
        page.add(track)
    for counter in joined(counters):
        page.add_counter(counter)
    return counts


class _Page:
    """The page of one rank and its tracks. A track is added once, however many recordings are written on it."""

    def __init__(self, writer: TraceWriter[Any], plan: RankPlan) -> None:
        self._writer = writer
        self._plan = plan
        self._page = page = writer.add_rank_page(plan.page_name, order=plan.order)
        self._derived = writer.add_track(DERIVED_GROUP, parent=page, order=0)
        on_gpu = plan.summary.device == "gpu"
        self._device = writer.add_track("device", parent=page, order=1) if on_gpu else None
        self._host = writer.add_track("host", parent=page, order=2)
        self._counters: Any = None  # only where some were recorded
        self._tracks: dict[Track | str, Any] = {}
        self._rows = 0  # events in the recordings so far

    def add(self, track: DerivedTrack) -> None:
        if len(track.slices) == 0:
            return
        if track.name not in self._tracks:
            name = track_name(track.name, self._plan.summary.rank)
            self._tracks[track.name] = self._writer.add_track(name, parent=self._derived, order=len(self._tracks))
        self._writer.write_slices(self._tracks[track.name], replace(track.slices, look=look_of(track.name)))

    def add_counter(self, counter: CounterValues) -> None:
        if len(counter.time_ns):
            parent = self._derived
            if not counter.unit:
                if self._counters is None:
                    self._counters = self._writer.add_track("counters", parent=self._page, order=3)
                parent = self._counters
            track = self._writer.add_counter(counter.name, unit=counter.unit, parent=parent, order=len(self._tracks))
            self._tracks[counter.name] = track
            self._writer.write_counter(track, counter.time_ns, counter.values)

    def add_input(self, events: EventTable, lanes: Lanes, kept: Bool) -> None:
        """Write the slices in the mask `kept` [n], on a track for each thread or stream."""
        on_device = set(events.tracks_of(events.in_category(*DEVICE_CATEGORIES, "gpu_user_annotation")).tolist())
        first_row = self._rows
        self._rows += len(events)
        rank_index, clock = self._plan.rank_index, self._plan.clock
        for on_track in slices_by_track(events, lanes, clock, kept, rank_index=rank_index, first_row=first_row):
            track = self._track(events.tracks[on_track.track], on_device=on_track.track in on_device)
            self._writer.write_slices(track, on_track.slices)

    def _track(self, source: Track, *, on_device: bool) -> Any:
        if source not in self._tracks:
            if on_device and self._device is not None:
                name = f"GPU {source.pid} stream {source.tid}"
                track = self._writer.add_track(name, parent=self._device, order=len(self._tracks))
            else:
                name = source.thread_name or f"{source.pid} {source.tid}".strip()
                track = self._writer.add_track(name, parent=self._host, order=len(self._tracks))
            self._tracks[source] = track
        return self._tracks[source]


@dataclass(frozen=True, kw_only=True, eq=False)
class CounterValues:
    """A counter of n values.

    Attributes:
        name: Name of the counter.
        time_ns: Time from which each value holds, on the run's clock, ascending, int64 [n].
        values: float64 [n].
        unit: Empty for a counter that was recorded.
    """

    name: str
    time_ns: Int64
    values: Float64
    unit: str = ""


def counters_of(events: EventTable, clock: ClockModel, shown: Intervals | None) -> Iterator[CounterValues]:
    """Yield the counters of one recording. `shown`: the time to show, on the rank's clock; None: all."""
    begin_ns = int(events.start_ns.min())

    def counter(name: str, unit: str, time_ns: Int64, values: Int64 | Float64) -> CounterValues:
        time_ns = np.maximum(time_ns, begin_ns)  # values from before the first event hold when that begins
        if shown is not None:
            time_ns, values = _within(shown, time_ns, values)
        kept = _changes(time_ns, values)
        of_run_ns = clock.to_run(time_ns[kept])
        return CounterValues(name=name, unit=unit, time_ns=of_run_ns, values=values[kept].astype(np.float64))

    samples = events.counters
    for series, name in enumerate(samples.names):
        rows = np.flatnonzero(samples.series == series)
        rows = rows[np.argsort(samples.time_ns[rows], kind="stable")]
        yield counter(name, "", samples.time_ns[rows], samples.value[rows])
    records = events.memory
    if not len(records):
        return
    order = np.lexsort((records.time_ns, records.device_id, records.device_type))
    device = np.stack((records.device_type[order], records.device_id[order]))
    for rows in np.split(order, np.flatnonzero(np.any(device[:, 1:] != device[:, :-1], axis=0)) + 1):
        kind, number = int(records.device_type[rows[0]]), int(records.device_id[rows[0]])
        label = _DEVICES.get(kind, f"device of type {kind}") + ("" if number == ABSENT else f" {number}")
        for name, time_ns, values in _curves(records, rows, begin_ns):
            yield counter(f"{label} · {name}", "bytes", time_ns, values)


def _curves(records: MemoryRecords, rows: Int64, begin_ns: int) -> Iterator[tuple[str, Int64, Int64]]:
    """Yield name, times and values of each counter of one device, whose records are `rows`, in order of time."""
    time_ns, allocated, reserved = records.time_ns[rows], records.allocated_bytes[rows], records.reserved_bytes[rows]
    has_reserve = bool((reserved > 0).any())
    if records.device_type[rows[0]] == _CPU or not (has_reserve or (allocated > 0).any()):
        since_begin = np.append(0, np.cumsum(records.change_bytes[rows]))
        yield "allocated less freed", np.append(begin_ns, time_ns), since_begin
        return
    yield "allocated", time_ns[allocated >= 0], allocated[allocated >= 0]
    if has_reserve:
        yield "reserved", time_ns[reserved >= 0], reserved[reserved >= 0]


def _changes(time_ns: Int64, values: Int64 | Float64) -> Int64:
    """Return the indexes at which another value begins to hold. Of several values at one time the last holds."""
    last = np.flatnonzero(np.append(time_ns[1:] != time_ns[:-1], True)[: len(time_ns)])
    differs = values[last[1:]] != values[last[:-1]]
    changes: Int64 = last[np.append(True, differs)[: len(last)]]
    return changes


def _within(shown: Intervals, time_ns: Int64, values: Int64 | Float64) -> tuple[Int64, Int64 | Float64]:
    """Return times and values inside the intervals `shown`. Each interval begins with the value that holds there."""
    before = np.searchsorted(time_ns, shown.start_ns, side="right") - 1
    known = before >= 0
    within = shown.covers(time_ns)
    time_ns = np.concatenate((shown.start_ns[known], time_ns[within]))
    values = np.concatenate((values[before[known]], values[within]))
    order = np.argsort(time_ns, kind="stable")
    return time_ns[order], values[order]


def joined(counters: Iterable[CounterValues]) -> Iterator[CounterValues]:
    """Join the counters of several recordings that have the same name."""
    by_name: defaultdict[str, list[CounterValues]] = defaultdict(list)
    for counter in counters:
        by_name[counter.name].append(counter)
    for name, counters in by_name.items():
        time_ns = np.concatenate([counter.time_ns for counter in counters])
        order = np.argsort(time_ns, kind="stable")
        values = np.concatenate([counter.values for counter in counters])
        yield CounterValues(name=name, unit=counters[0].unit, time_ns=time_ns[order], values=values[order])
