"""The slices of one recording as they are shown: which of them, with all their arguments, and with arrows.

Comes in: a decoded trace, its lanes, the clock of its rank, and what the user wants to see. Goes out: `Slices`, a track
at a time; all that is left out is counted with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tracekit.analysis.clocks.align import ends_on_run_clock
from tracekit.analysis.per_rank.summarize import StepSelection
from tracekit.analysis.timeline.lanes import Lanes
from tracekit.model.events import ABSENT, Bool, EventTable
from tracekit.model.intervals import Intervals
from tracekit.model.run import ClockModel
from tracekit.read.decode.extra_args import IDS
from tracekit.render.merged.arrows import autograd_arrows, launch_arrows
from tracekit.render.trace.slices import Argument, Slices

__all__ = ["InputSlices", "SliceFilter", "chosen_time", "slices_by_track"]


@dataclass(frozen=True, kw_only=True)
class SliceFilter:
    """Which slices of the input to show: those of `categories` (None: of all), of at least `min_duration_ns`. What
    tracekit adds is not filtered.
    """

    categories: frozenset[str] | None = None
    min_duration_ns: int = 0

    def of(self, events: EventTable, lanes: Lanes, steps: StepSelection) -> tuple[Bool, Counter[str]]:
        """Mask [n] of the slices to show, those with a part in the chosen steps; and how many are left out by which
        option, the first that applies."""
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
    """When the chosen steps were, on host and device; None: all of the recording is wanted, or no step is known."""
    windows = lanes.windows
    if steps.is_everything or windows.source == "recording":
        return None
    chosen = steps.mask(windows.step)
    return Intervals.union_of(windows.start_ns[chosen], windows.end_ns[chosen]) | windows.host_time(chosen)


@dataclass(frozen=True, kw_only=True, eq=False)
class InputSlices:
    """The slices of one track (index into the events' tracks)."""

    track: int
    slices: Slices


def slices_by_track(
    events: EventTable, lanes: Lanes, clock: ClockModel, kept: Bool, *, place: int, first_row: int = 0
) -> Iterator[InputSlices]:
    """All slices in the mask `kept` [n], the step's thread first; `place`: of the rank in the run; `first_row`: how
    many events its recordings before had, so that arrows of different ones are different.
    """
    start_ns, end_ns = ends_on_run_clock(events.start_ns, events.end_ns, clock)
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
        details=events.extra_args,
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
    """Of all events; those that only some have are said of these alone."""
    for name, column in IDS.items():
        values = getattr(events, column)
        present = values != ABSENT
        if present.any():
            yield Argument(name=name, values=values, present=None if present.all() else present)
