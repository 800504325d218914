"""Write one rank's page: the tracks that tracekit adds, and every slice of its recordings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tracekit.analysis.events.kernel_launches import DEVICE_CATEGORIES
from tracekit.analysis.per_rank.options import SummaryOptions
from tracekit.analysis.per_rank.recording import Recording, recording_of
from tracekit.analysis.timeline.lanes import Lanes
from tracekit.limits import limits
from tracekit.model.events import Bool, EventTable, Track
from tracekit.read.cache.spool import DecodedSpool
from tracekit.read.decode.decoder import decode
from tracekit.read.files.storage import parse_path
from tracekit.render.merged.derived_tracks import (
    DERIVED_GROUP,
    DerivedTrack,
    track_name,
    tracks_of_rank,
    tracks_of_recording,
)
from tracekit.render.merged.input_slices import SliceFilter, chosen_time, slices_by_track
from tracekit.render.merged.memory_counters import MemoryCounter, joined, memory_counters
from tracekit.render.merged.plan import RankPlan
from tracekit.render.trace.slices import TraceWriter

__all__ = ["PageCounts", "write_rank"]


@dataclass(frozen=True, kw_only=True)
class PageCounts:
    """What is on a page, and what is not.

    Attributes:
        slices: Number of slices from the input.
        filtered: Number of slices that an option or a limit leaves out, by its name.
        other_phases: Number of events of the input that are neither slices nor records of memory, by phase in Chrome's
            format.
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
    memory: list[MemoryCounter] = []
    for path in plan.summary.files:
        recording: Recording | None = None if spool is None else spool.pop(parse_path(path))
        if recording is None:
            trace = decode(parse_path(path), extra_args=True, namer=options.pseudonyms)
            recording = recording_of(trace, options.rules, whole=options.steps.whole)
        events, lanes = recording.trace.events, recording.lanes
        if plan.summary.is_measured:  # others have no steps
            left_out = [step.step for step in plan.summary.left_out]
            for track in tracks_of_recording(recording, plan.clock, options.steps, left_out):
                page.add(track)
        kept, filtered = shown.of(events, lanes, options.steps)
        left_out_before = writer.left_out
        page.add_input(events, lanes, kept)
        without_lane = writer.left_out - left_out_before
        memory += memory_counters(events, plan.clock, chosen_time(lanes, options.steps))
        if without_lane:
            filtered[f"the {limits().named('lanes')}"] = without_lane
        counts += PageCounts(
            slices=int(kept.sum()) - without_lane,
            filtered=filtered,
            other_phases=Counter(events.other_phases),
            categories=events.categories,
        )
    for track in tracks_of_rank(plan, options.steps):
        page.add(track)
    for counter in joined(memory):
        page.add_counter(counter)
    return counts


class _Page:
    """The page of one rank and its tracks. A track is added once, however many recordings are written on it."""

    def __init__(self, writer: TraceWriter[Any], plan: RankPlan) -> None:
        self._writer = writer
        self._plan = plan
        page = writer.add_rank_page(plan.page_name, order=plan.order)
        self._derived = writer.add_track(DERIVED_GROUP, parent=page, order=0)
        on_gpu = plan.summary.device == "gpu"
        self._device = writer.add_track("device", parent=page, order=1) if on_gpu else None
        self._host = writer.add_track("host", parent=page, order=2)
        self._tracks: dict[Track | str, Any] = {}
        self._rows = 0  # events in the recordings so far

    def add(self, track: DerivedTrack) -> None:
        if len(track.slices) == 0:
            return
        if track.name not in self._tracks:
            name = track_name(track.name, self._plan.summary.rank)
            self._tracks[track.name] = self._writer.add_track(name, parent=self._derived, order=len(self._tracks))
        self._writer.write_slices(self._tracks[track.name], track.slices)

    def add_counter(self, counter: MemoryCounter) -> None:
        if len(counter.time_ns):
            track = self._writer.add_counter(counter.name, unit="bytes", parent=self._derived, order=len(self._tracks))
            self._tracks[counter.name] = track
            self._writer.write_counter(track, counter.time_ns, counter.values)

    def add_input(self, events: EventTable, lanes: Lanes, kept: Bool) -> None:
        """Write the slices in the mask `kept` [n], on a track for each thread or stream."""
        on_device = set(events.tracks_of(events.in_category(*DEVICE_CATEGORIES, "gpu_user_annotation")).tolist())
        first_row = self._rows
        self._rows += len(events)
        place, clock = self._plan.place, self._plan.clock
        for part in slices_by_track(events, lanes, clock, kept, place=place, first_row=first_row):
            track = self._track(events.tracks[part.track], on_device=part.track in on_device)
            self._writer.write_slices(track, part.slices)

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
