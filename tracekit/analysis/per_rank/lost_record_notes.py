"""What a reader must know of device records that are lost, and what the profiler itself wrote of it."""

from __future__ import annotations

import re
from collections import Counter

from tracekit.analysis.timeline.lanes import Lanes
from tracekit.model.events import Bool, DecodedTrace
from tracekit.model.notes import Note
from tracekit.model.ranks import format_ranges

__all__ = ["lost_record_notes"]

# Messages of Kineto after which device records are missing (CuptiActivityApi.cpp, GenericActivityProfiler.cpp,
# RocprofLogger.cpp, init.cpp, and the macro CUPTI_CALL).
_TELLS_OF_LOSS = re.compile(
    r"max GPU buffer count|Dropped \d+ activity records|stopped by|stopped early|profiler activities will be missing|"
    r"failed with error CUPTI_"
)
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_SHOWN = 3

_REMEDY = "ProfilerActivity.CUDA must be among the profiler's activities, and nothing else may use CUPTI"


def lost_record_notes(trace: DecodedTrace, lanes: Lanes, file: str) -> list[Note]:
    """Return the notes about one recording; `file` is its name. A file that was cut off has a note of its own."""
    notes = _missing_kernels(lanes, file) if trace.complete else []
    return [*notes, *_missing_launches(lanes, file), *_messages(trace.header.profiler_messages, file)]


def _missing_launches(lanes: Lanes, file: str) -> list[Note]:
    without, count = lanes.kernels_without_launch, int(lanes.computes.sum())
    if 2 * without <= count:
        return []
    text = (
        f"{file}: {without:,} of {count:,} kernels that compute have no launch: each counts in the step in which it "
        "begins, though the host may have launched it in an earlier one"
    )
    return [Note(kind="lost_device_records", severity="warning", file=file, text=text)]


def _missing_kernels(lanes: Lanes, file: str) -> list[Note]:
    windows, launches = lanes.windows, lanes.launches

    def warning(text: str) -> Note:
        return Note(kind="lost_device_records", severity="warning", file=file, text=f"{file}: {text}")

    if lanes.unrecorded is not None:
        return [warning(f"{lanes.unrecorded}: its times are n/a and join no comparison; {_REMEDY}")]
    window = windows.index_of(launches.start_ns)
    in_lost = (window >= 0) & windows.lost[window]
    notes = []
    if windows.lost.any():
        notes.append(warning(f"{_what_counts_not(lanes)} ({_what_is_missing(lanes, in_lost)})"))
    elsewhere = launches.missing & (window >= 0) & ~in_lost & ~launches.later
    if elsewhere.any():
        text = f"{file}: {elsewhere.sum():,} of {len(launches):,} launches have no kernel; sums lack what these took"
        notes.append(Note(kind="lost_device_records", severity="info", file=file, text=text))
    return notes


def _what_counts_not(lanes: Lanes) -> str:
    lost = lanes.windows.lost
    steps = format_ranges(lanes.windows.step[lost].tolist())
    if lost.all():
        times = "its times are n/a and join no comparison"
        return f"{'device records are' if len(lost) == 1 else 'in each step device records are'} missing: {times}"
    if lost.sum() == 1:
        return f"step {steps} lacks device records and does not count"
    return f"steps {steps} lack device records and do not count"


def _what_is_missing(lanes: Lanes, in_lost: Bool) -> str:
    """Return how many of the launches in lost windows, bool [launches], have no kernel."""
    missing, copies = in_lost & lanes.launches.missing, lanes.copies
    if not missing.any():
        if copies.missing.any():
            return (
                f"{copies.missing.sum():,} of {len(copies.missing):,} copies that the host waited for are not recorded"
            )
        if lanes.windows.without_compute.any():
            steps = format_ranges(lanes.windows.step[lanes.windows.without_compute].tolist())
            return f"no kernel of the operators in step {steps} is recorded, and those in other steps have kernels"
        return "from some moment on none is recorded, though operators go on"
    text = f"{missing.sum():,} of {in_lost.sum():,} launches there have no kernel"
    if lanes.launches.later[missing].all():
        text += ": they had not run when the recording ended, or are lost"
    return text


def _messages(messages: tuple[str, ...], file: str) -> list[Note]:
    """Return a note for each sort of message: of all that tell of lost records, and of the first few others."""
    first: dict[str, str] = {}
    count = Counter[str]()
    for message in messages:
        sort = _NUMBER.sub("#", message)
        first.setdefault(sort, message)
        count[sort] += 1
    notes, others = [], 0
    for sort, message in first.items():
        lost = _TELLS_OF_LOSS.search(message) is not None
        others += not lost
        if not lost and others > _SHOWN:
            continue
        more = f" (and {count[sort] - 1} more of this sort)" if count[sort] > 1 else ""
        notes.append(
            Note(
                kind="lost_device_records" if lost else "profiler",
                severity="warning" if lost else "info",
                file=file,
                text=f"{file}: the profiler wrote: {message}{more}",
            )
        )
    return notes
