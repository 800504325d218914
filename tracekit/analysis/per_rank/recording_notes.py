"""What a reader must know of one recording: what is missing in it, and what could not be understood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tracekit.analysis.events.flight_recorder import flight_recorder_notes
from tracekit.analysis.per_rank.lost_record_notes import lost_record_notes
from tracekit.analysis.per_rank.unmeasured import nothing_ran
from tracekit.analysis.timeline.lanes import Lanes
from tracekit.model.communication import KINDS
from tracekit.model.events import DecodedTrace
from tracekit.model.notes import Note
from tracekit.model.ranks import format_ranges
from tracekit.read.files.identify import rank_in_name

__all__ = ["recording_notes", "with_steps_that_count"]


def recording_notes(trace: DecodedTrace, lanes: Lanes, own_rank: int | None) -> list[Note]:
    """Return the notes about one recording. `own_rank` is the rank that the trace itself names."""
    file = Path(trace.file).name
    notes = []
    named_rank = rank_in_name(Path(trace.file))
    if own_rank is not None and named_rank is not None and own_rank != named_rank:
        text = (
            f"{file}: the trace names rank {own_rank}, the file's name rank {named_rank}; it counts as rank {own_rank}"
        )
        notes.append(Note(kind="rank_mismatch", severity="warning", file=file, text=text))
    metadata = trace.header.metadata
    serves = metadata is not None and metadata.rpc is not None and not metadata.steps
    if lanes.windows.source == "recording" and not serves:
        text = f"{file}: no steps recorded; the whole recording counts as one step"
        notes.append(Note(kind="no_steps", severity="info", file=file, text=text))
    device = lanes.device_events
    early_kernels = device.row[device.before_recording & device.is_kernel]
    if len(early_kernels):
        communication = int(np.isin(early_kernels, lanes.communication_events.row).sum())
        text = (
            f"{file}: {len(early_kernels)} kernels ({communication} of them communication) were launched before the "
            f"recording; the first step begins when the computing ones have ended"
        )
        notes.append(Note(kind="before_recording", severity="info", file=file, text=text))
    ambiguous = int(device.is_ambiguous.sum())
    if ambiguous:
        text = (
            f"{file}: {ambiguous} kernels and copies have the correlation id of several launches; the last one counts"
        )
        notes.append(Note(kind="duplicate_event", severity="warning", file=file, text=text))
    unclassified = int((lanes.communication_events.kind == KINDS.index("unclassified")).sum())
    if unclassified:
        text = f"{file}: {unclassified} kernels look like communication and match no rule: listed as unclassified"
        notes.append(Note(kind="unclassified", severity="warning", file=file, text=text))
    notes += [] if serves else lost_record_notes(trace, lanes, file)
    idle = nothing_ran(trace, lanes)
    if idle is not None and lanes.unrecorded is None:
        text = f"{file}: {idle}: its times are n/a and join no comparison"
        notes.append(Note(kind="no_device_records", severity="warning", file=file, text=text))
    windows = lanes.windows
    if windows.contradiction is not None:
        text = f"{file}: {windows.contradiction}: its times are n/a and join no comparison"
        notes.append(Note(kind="step_mismatch", severity="warning", file=file, text=text))
    elif lanes.device_behind_ns:
        text = (
            f"{file}: kernels begin up to {lanes.device_behind_ns / 1e6:,.3f} ms before they are launched: "
            "the device's clock is behind; all device times are taken as later by as much"
        )
        notes.append(Note(kind="clock_step", severity="warning", file=file, text=text))
    if windows.lacking.any():
        steps = format_ranges(windows.step[windows.lacking].tolist())
        text = f"{file}: step {steps} may lack an operator that cannot be read, and does not count"
        notes.append(Note(kind="lost_operator", severity="warning", file=file, text=text))
    incomplete = ~(windows.complete | windows.lost | windows.lacking)
    if trace.complete and lanes.unrecorded is None and windows.contradiction is None and incomplete.any():
        steps = f"step {format_ranges(windows.step[incomplete].tolist())}"
        kind, text = "unterminated", f"{file}: {steps} is incomplete and does not count"
        if windows.overrun_ns:
            late = f"its last event ends {windows.overrun_ns / 1e6:,.3f} ms after the recording does"
            kind, text = "out_of_range", f"{file}: {late}: {steps} does not count"
        notes.append(Note(kind=kind, severity="warning", file=file, text=text))
    notes += flight_recorder_notes(lanes.flight_recorder, file)
    if metadata is not None:
        if metadata.window.partial:
            text = f"{file}: the job ended before the window was full; {len(metadata.steps)} steps were recorded"
            notes.append(Note(kind="partial", severity="warning", file=file, text=text))
        notes += [
            Note(kind="capture", severity="info", file=file, text=f"{file}: {note.text}") for note in metadata.notes
        ]
    return notes


def with_steps_that_count(notes: Sequence[Note], lanes: Lanes) -> tuple[Note, ...]:
    """Return a decoder's notes, of which the one about a file that was cut off says which steps count, and why."""
    windows = lanes.windows
    place = next((i for i, note in enumerate(notes) if note.kind in ("truncated", "limit")), None)
    if place is None or windows.cut is None or windows.contradiction is not None:
        return tuple(notes)
    whole, lacking = (format_ranges(windows.step[mask].tolist()) for mask in (windows.complete, ~windows.complete))
    if lanes.unrecorded is not None or not windows.complete.any():
        what = f"no step counts: {lanes.unrecorded or windows.cut}"
    else:
        lack = f" and step {lacking} does not" if not windows.complete.all() else ""
        what = f"step {whole} counts{lack}: {windows.cut}"
    cut = notes[place]
    return (*notes[:place], replace(cut, text=f"{cut.text}; {what}"), *notes[place + 1 :])
