"""Select the slices of a recording that the user wants to see, with all their arguments and their arrows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tracekit.analysis.per_rank.options import StepSelection
from tracekit.analysis.timeline.lanes import Lanes
from tracekit.model.clocks import ClockModel
from tracekit.model.events import ABSENT, Bool, EventTable
from tracekit.model.intervals import Intervals
from tracekit.read.decode.extra_args import IDS
from tracekit.render.merged.arrows import autograd_arrows, launch_arrows
from tracekit.render.trace.slices import Argument, Slices

__all__ = ["InputSlices", "SliceFilter", "chosen_time", "slices_by_track"]


@dataclass(frozen=True, kw_only=True)
class SliceFilter:
    """Which slices of the input to show. Slices that tracekit adds are not filtered.

    Attributes:
        categories: Categories to show; None: all.
        min_duration_ns: Shortest duration to show.
    """

    categories: frozenset[str] | None = None
    min_duration_ns: int = 0

    def of(self, events: EventTable, lanes: Lanes, steps: StepSelection) -> tuple[Bool, Counter[str]]:
        """Return a mask [n] of the slices to show, and the number of slices that each option leaves out.

        Slices that overlap the chosen steps are shown. A slice counts for the first option that leaves it out.
        """
        kept = np.ones(len(events), dtype=np.bool_)
        left_out: Counter[str] = Counter()
        if (time := chosen_time(lanes, steps)) is not None:
            within = time.covers(events.start_ns) | (time.covered_ns(events.start_ns, events.end_ns) > 0)
            left_out["--steps"], kept = int((kept & ~within).sum()), kept & within
        if self.categories is not None:
            within = events.in_category(*sorted(self.categories))
            left_out["--categories"], kept = int((kept & ~within).sum()), kept & within
        if self.min_duration_ns:
            within = events.duration_ns >= self.min_duration_ns
            left_out["--min-dur"], kept = int((kept & ~within).sum()), kept & within
        return kept, +left_out


def chosen_time(lanes: Lanes, steps: StepSelection) -> Intervals | None:
    """Return when the chosen steps were, on host and device; None if the whole recording is wanted or has no steps."""
    windows = lanes.windows
    if steps.is_everything or windows.source == "recording":
        return None
    chosen = steps.mask(windows.step)
    return Intervals.union_of(windows.start_ns[chosen], windows.end_ns[chosen]) | windows.host_time(chosen)


@dataclass(frozen=True, kw_only=True, eq=False)
class InputSlices:
    """The slices of one track.

    Attributes:
        track: Index into the events' tracks.
        slices: The slices to show.
    """

    track: int
    slices: Slices


def slices_by_track(
    events: EventTable, lanes: Lanes, clock: ClockModel, kept: Bool, *, place: int, first_row: int = 0
) -> Iterator[InputSlices]:
    """Yield the slices in the mask `kept` [n] by track, the thread of the steps first.

    place: index of the rank in the run. first_row: number of events in the rank's earlier recordings, so that arrows of
    different recordings have different ids.
    """
    start_ns, end_ns = clock.intervals_to_run(events.start_ns, events.end_ns)
    arrows = (
        launch_arrows(events, lanes.device_events, kept, place=place, first_row=first_row),
        autograd_arrows(events, kept, place=place, first_row=first_row),
    )
    slices_of = partial(
        Slices,
        name=events.name,
        category=events.category,
        strings=events.strings,
        arguments=tuple(_ids(events)),
        extra_args=events.extra_args,
        flows=tuple(flows for flows in arrows if flows.ids.any()),
    )
    order = np.flatnonzero(kept).astype(np.int32)
    order = order[np.argsort(events.track[order].astype(np.min_scalar_type(len(events.tracks))), kind="stable")]
    edges = np.searchsorted(events.track[order], np.arange(len(events.tracks) + 1))
    for track in _by_interest(len(events.tracks), lanes):
        rows = order[edges[track] : edges[track + 1]]
        if len(rows):
            starts_ns = start_ns[rows]
            slices = slices_of(start_ns=starts_ns, duration_ns=end_ns[rows] - starts_ns, rows=rows)
            yield InputSlices(track=track, slices=slices)


def _by_interest(tracks: int, lanes: Lanes) -> Sequence[int]:
    return sorted(range(tracks), key=lambda track: (track != lanes.windows.thread, track not in lanes.threads, track))


def _ids(events: EventTable) -> Iterator[Argument]:
    """Yield the ids that events have as arguments. Events without an id have no such argument."""
    for name, column in IDS.items():
        values = getattr(events, column)
        present = values != ABSENT
        if present.any():
            yield Argument(name=name, values=values, present=None if present.all() else present)
