"""The checks of one recording, in a worker: whether the rank is excluded, and which steps do not count.

Some of them ask whether the steps can be those of one process on one clock, and whether a time must be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tracekit.health.check import NO_TIMES, Check, Doubt, Evidence
from tracekit.health.lost_records import (
    cut_off,
    lost_device_records,
    messages_of_loss,
    other_messages,
    unlinked_kernels,
)
from tracekit.model.communication import KINDS
from tracekit.model.events import ROUNDED_NS, Bool, DecodedTrace
from tracekit.model.notes import Note
from tracekit.model.run import format_ranges
from tracekit.rank.lanes import Lanes
from tracekit.rank.other_devices import other_device
from tracekit.read.files.ranks import rank_in_name

_SHOWN = 4  # processes
_MOST_OF_A_STEP = 0.5  # by which a device's clock may be off: more may be a jump of the host's clock
_TELLING_SHARE = 0.01  # of a step: device times that are moved by less change nothing that is said


def mixed_processes(evidence: Evidence) -> Iterator[Doubt]:
    """Yield that operators are of several processes.

    Kineto records one process, so the operators of others come from other files. Frames of Python may have pid 0.
    """
    events = evidence.trace.events
    tracks = np.flatnonzero(np.bincount(events.track[events.in_category("cpu_op")])).tolist()
    processes = sorted({str(events.tracks[track].pid) for track in tracks} - {""})
    if len(processes) > 1:
        shown = ", ".join(processes[:_SHOWN])
        yield Doubt(reason=f"it is a merge: it mixes the operators of {len(processes)} processes (pid {shown})")


def step_order(evidence: Evidence) -> Iterator[Doubt]:
    """Yield why the steps cannot follow each other in one recording."""
    steps = evidence.windows.host
    numbers, count = np.unique(steps.step, return_counts=True)
    overlaps = steps.closed[:-1] & (steps.end_ns[:-1] > steps.start_ns[1:] + ROUNDED_NS)
    if (count > 1).any():
        repeated = numbers[count > 1].tolist()
        what = f"step {repeated[0]} is" if len(repeated) == 1 else f"steps {format_ranges(repeated)} are"
        yield Doubt(reason=f"{what} in it more than once")
    elif (np.diff(steps.step) < 0).any():
        yield Doubt(reason="its steps are not in the order of their numbers (its clock was set back?)")
    elif overlaps.any():
        index = int(np.argmax(overlaps))
        pair = f"steps {steps.step[index]} and {steps.step[index + 1]}"
        yield Doubt(reason=f"{pair} overlap in time (its clock was set back?)")


def device_clock(evidence: Evidence) -> Iterator[Doubt]:
    """Yield by how much kernels begin before they are launched, for which all device times were shifted."""
    behind_ns, windows = evidence.lanes.device_behind_ns, evidence.windows
    if not behind_ns:
        return
    steps_ns = np.diff(np.append(windows.host_start_ns, windows.host_end_ns))
    if windows.source != "recording" and behind_ns > _MOST_OF_A_STEP * steps_ns.min():
        yield Doubt(
            reason=f"kernels begin {behind_ns / 1e6:,.3f} ms before they are launched, which is too much to correct"
        )
    else:
        yield Doubt(
            text=f"kernels begin up to {behind_ns / 1e6:,.3f} ms before they are launched: "
            "the device's clock is behind; all device times are taken as later by as much",
            severity="warning" if behind_ns > _TELLING_SHARE * steps_ns.min() else "info",
        )


def late_events(evidence: Evidence) -> Iterator[Doubt]:
    """Yield the steps behind an event that ends long after the profiler did.

    The profiler ends when its own span does, and the device has no work left then. An event may seem to end a little
    later, as clocks differ. If it ends later by more than the whole recording took, its duration is wrong, or the clock
    was set at any time since the last event before it.
    """
    events, windows = evidence.trace.events, evidence.windows
    by_profiler = events.in_category("Trace") & (events.duration_ns > 0)
    if not by_profiler.any():
        return
    begin_ns, end_ns = int(events.start_ns[by_profiler].min()), int(events.end_ns[by_profiler].max())
    end_ns = max(end_ns, int(windows.host_start_ns[-1]))  # where the clock was set before, the span tells too little
    is_late = events.end_ns > end_ns + (end_ns - begin_ns)
    if is_late.any():
        others_ns = int(events.start_ns[~is_late].max(initial=begin_ns))
        steps = windows.end_ns > min(int(events.start_ns[is_late].min()), others_ns)
        late_ns = int(events.end_ns[is_late].max()) - end_ns
        reason = f"its last event ends {late_ns / 1e6:,.3f} ms after the recording does"
        numbers = format_ranges(windows.step[steps].tolist())
        yield Doubt(text=f"{reason}: step {numbers} does not count", reason=reason, steps=steps)


def incomplete_steps(evidence: Evidence) -> Iterator[Doubt]:
    """Yield the steps whose end is not known."""
    incomplete = ~evidence.windows.complete & ~evidence.masked
    if evidence.trace.complete and incomplete.any():
        numbers = format_ranges(evidence.windows.step[incomplete].tolist())
        yield Doubt(text=f"step {numbers} is incomplete and does not count")


def steps_without_device(evidence: Evidence) -> Iterator[Doubt]:
    """Yield the steps of a GPU rank in which nothing ran on the device.

    A loop that ends behind `prof.step()` leaves such a step at its end, which is no defect.
    """
    windows, lanes = evidence.windows, evidence.lanes
    device = lanes.device_events
    if not device.is_kernel.any() or not device.linked.any():
        return
    index = windows.index_of_device(device, evidence.trace.events.start_ns[device.row])
    empty = np.bincount(index + 1, minlength=len(windows) + 1)[1:] == 0
    told = empty & windows.complete & ~evidence.masked
    if empty.any():
        is_end = not told[:-1].any()
        text = f"nothing ran on the device in step {format_ranges(windows.step[told].tolist())}: it does not count"
        yield Doubt(
            text=text if told.any() else "",
            steps=empty,
            severity="info" if is_end else "warning",
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class RankHealth:
    """What all checks of one recording found.

    Attributes:
        excluded: why the rank has no times; None if it has some.
        reasons: by number, why a step does not count; nothing is known of a rank that has no other.
        masked: the step windows that do not count, bool [s].
        notes: those of the decoder first.
    """

    excluded: str | None
    reasons: Mapping[int, str]
    masked: Bool
    notes: tuple[Note, ...]

    def unmeasured(self, steps: Sequence[int]) -> str | None:
        """Return why nothing is known of the rank's time in the selected steps; None if some of them is known."""
        if not steps or self.excluded is not None:
            return self.excluded if steps else None
        excluded = [self.reasons.get(step) for step in steps]
        return excluded[0] if None not in excluded else None


def rank_health(trace: DecodedTrace, lanes: Lanes) -> RankHealth:
    """Run the checks of one recording."""
    evidence = Evidence(trace=trace, lanes=lanes, masked=np.zeros(len(lanes.windows), dtype=np.bool_))
    excluded: str | None = None
    reasons: dict[int, str] = {}
    notes: list[Note] = []
    cut: Doubt | None = None
    for check in RANK_CHECKS:
        if check.scope != "note" and (excluded is not None or evidence.serves_only):
            continue
        for doubt in check.find(evidence):
            if check.scope == "rank":
                excluded = doubt.reason or None
            if doubt.steps is not None:
                if doubt.reason:
                    reasons = dict.fromkeys(lanes.windows.step[doubt.steps].tolist(), doubt.reason) | reasons
                evidence = replace(evidence, masked=evidence.masked | doubt.steps)
                excluded = (doubt.reason or None) if doubt.steps.all() else None
            if check.id == "truncated":  # the decoder has a note about it
                cut = doubt
            else:
                notes += _notes(check, doubt, trace.file, is_excluded=excluded is not None)
    whole = lanes.windows.complete & ~evidence.masked
    of_decoder = trace.notes if cut is None else _with_steps_that_count(trace.notes, lanes, whole, cut)
    return RankHealth(excluded=excluded, reasons=reasons, masked=evidence.masked, notes=(*of_decoder, *notes))


def _notes(check: Check[Evidence], doubt: Doubt, path: str, *, is_excluded: bool) -> list[Note]:
    """Return the note about what a check found, if there is anything to say."""
    file, text = Path(path).name, doubt.text
    if is_excluded and doubt.reason:
        text = f"{doubt.reason}: {NO_TIMES}"
    if not text:
        return []
    text += f" ({doubt.detail})" * bool(doubt.detail)
    text += f"; {check.remedy}" * bool(is_excluded and check.scope == "rank" and check.remedy)
    return [Note(id=check.id, severity=doubt.severity, file=file, text=f"{file}: {text}")]


def _with_steps_that_count(notes: Sequence[Note], lanes: Lanes, whole: Bool, cut: Doubt) -> list[Note]:
    """Return a decoder's notes, of which the one about a file that was cut off says which steps count, and why."""
    counting, lacking = (format_ranges(lanes.windows.step[mask].tolist()) for mask in (whole, ~whole))
    lack = "" if whole.all() else f" and step {lacking} does not"
    what = f"step {counting} counts{lack}: {cut.text}" if whole.any() else f"no step counts: {cut.text}"
    index = next((i for i, note in enumerate(notes) if note.id in ("truncated", "limit")), None)
    if index is None:
        return list(notes)
    return [*notes[:index], replace(notes[index], text=f"{notes[index].text}; {what}"), *notes[index + 1 :]]


def _other_device(evidence: Evidence) -> Iterator[Doubt]:
    if evidence.lanes.unrecorded is not None and other_device(evidence.trace) is not None:
        yield Doubt(reason=evidence.lanes.unrecorded)


def _no_device_records(evidence: Evidence) -> Iterator[Doubt]:
    if evidence.lanes.unrecorded is not None:
        yield Doubt(reason=evidence.lanes.unrecorded)


def _nothing_ran(evidence: Evidence) -> Iterator[Doubt]:
    """A process of RPC may only call others. A rank that issues a collective may wait for it until its recording
    ends.
    """
    metadata, events = evidence.trace.header.metadata, evidence.trace.events
    serves_or_calls = metadata is not None and metadata.rpc is not None
    if (
        evidence.lanes.is_empty
        and not serves_or_calls
        and not events.duration_ns[events.collective_arguments.row].any()
    ):
        reason = "it has no kernel, operator or collective that took any time"
        if len(events) and not events.categories - {""}:
            reason = "its events have no categories, as those of the profiler before torch.profiler (torch 1.8)"
        yield Doubt(reason=reason)


def _overlapping(evidence: Evidence) -> Iterator[Doubt]:
    count = evidence.lanes.overlapping
    if count:
        of_all = f"{count} of {int(evidence.lanes.device_events.is_kernel.sum()):,} kernels"
        yield Doubt(text=f"{of_all} end over 1 ms after the next one of their stream begins: each is cut off there")


def _rank_mismatch(evidence: Evidence) -> Iterator[Doubt]:
    header = evidence.trace.header
    own = header.rank if header.metadata is None else header.metadata.rank
    named = rank_in_name(Path(evidence.trace.file))
    if own is not None and named is not None and own != named:
        yield Doubt(text=f"the trace names rank {own}, the file's name rank {named}; it counts as rank {own}")


def _no_steps(evidence: Evidence) -> Iterator[Doubt]:
    if evidence.windows.source == "recording" and not evidence.serves_only:
        events, lanes = evidence.trace.events, evidence.lanes
        begin_ns, end_ns = int(lanes.windows.start_ns[0]), int(lanes.windows.end_ns[0])
        recorded = ~events.in_category("Trace", "overhead")
        before_ns = begin_ns - int(events.start_ns[recorded].min(initial=begin_ns))
        behind_ns = int(events.end_ns[recorded].max(initial=end_ns)) - end_ns
        yield Doubt(
            text="no steps: what lies between the first and the last event on the "
            f"{'device' if lanes.device == 'gpu' else 'host'} counts as one, {(end_ns - begin_ns) / 1e6:,.1f} ms; the "
            f"{before_ns / 1e6:,.1f} ms before and {behind_ns / 1e6:,.1f} ms behind it do not count",
            severity="info",
        )


def _before_recording(evidence: Evidence) -> Iterator[Doubt]:
    device = evidence.lanes.device_events
    early = device.row[device.before_recording & device.is_kernel]
    if len(early):
        communication = int(np.isin(early, evidence.lanes.communication_events.row).sum())
        yield Doubt(
            text=f"{len(early)} kernels ({communication} of them communication) were launched before the "
            "recording; the first step begins when the computing ones have ended",
            severity="info",
        )


def _unclassified(evidence: Evidence) -> Iterator[Doubt]:
    count = int((evidence.lanes.communication_events.kind == KINDS.index("unclassified")).sum())
    if count:
        yield Doubt(text=f"{count} kernels look like communication and match no rule: listed as unclassified")


def _not_joined(evidence: Evidence) -> Iterator[Doubt]:
    match = evidence.lanes.flight_recorder
    if match is not None and match.unjoined:
        unjoined = "; ".join(f"{unjoined.count} {unjoined.kind} {unjoined.reason}" for unjoined in match.unjoined)
        count = f"{match.recorded - match.joined} of {match.recorded} collectives of the flight recorder"
        is_expected = all(unjoined.expected for unjoined in match.unjoined)
        yield Doubt(
            text=f"{count} are not joined to an event: {unjoined}", severity="info" if is_expected else "warning"
        )


def _partial(evidence: Evidence) -> Iterator[Doubt]:
    metadata = evidence.trace.header.metadata
    if metadata is not None and metadata.window.partial:
        steps = f"{len(metadata.steps)} steps were recorded"
        yield Doubt(text=f"the job ended before the window was full; {steps}")


def _of_capture(evidence: Evidence) -> Iterator[Doubt]:
    metadata = evidence.trace.header.metadata
    for note in () if metadata is None else metadata.notes:
        yield Doubt(text=note.text, severity="info")


RANK_CHECKS: tuple[Check[Evidence], ...] = (
    Check(
        *("mixed-processes", "rank", mixed_processes),
        "Operators of several processes are in one file, such as in a merged trace.",
        "give the file of each rank",
    ),
    Check(
        *("step-order", "rank", step_order),
        "A step is there twice, steps are not in the order of their numbers, or they overlap.",
    ),
    Check(
        *("device-clock", "rank", device_clock),
        "Kernels begin before their launch: device times are shifted, or are n/a if it is by more than half a step.",
    ),
    Check(
        *("truncated", "steps", cut_off),
        "The file ends too early, or a part of it is damaged: only steps count that are certainly whole.",
        "copy the file again, or let the job end before it is killed",
    ),
    Check("other-device", "rank", _other_device, "The rank computes on an accelerator whose records are not read."),
    Check(
        *("no-device-records", "rank", _no_device_records),
        "A rank that computes on a GPU has no kernels.",
        "ProfilerActivity.CUDA, of Intel's ProfilerActivity.XPU, must be recorded, and nothing else may use CUPTI",
    ),
    Check(
        *("lost-device-records", "steps", lost_device_records),
        "More than 1 % of the kernels that a step launched are missing, or all records end before it does.",
        "record fewer steps, or without stacks",
    ),
    Check(
        *("out-of-range", "steps", late_events),
        "An event ends after the profiler did, by more than the whole recording took.",
    ),
    Check(
        *("empty-step", "steps", steps_without_device),
        "Nothing ran on the GPU in a step, such as in the one behind the last `prof.step()`.",
    ),
    Check("nothing-ran", "rank", _nothing_ran, "No kernel, operator or collective took any time."),
    Check("unterminated", "steps", incomplete_steps, "The end of a step is not recorded."),
    Check(
        *("overlapping", "note", _overlapping),
        "Kernels end after the next one of their stream begins: they are cut off there.",
    ),
    Check("rank-mismatch", "note", _rank_mismatch, "The trace names another rank than the file: the trace is right."),
    Check(
        "no-steps",
        "note",
        _no_steps,
        "There are no steps: what lies between the first and the last event counts as one.",
        "call `prof.step()`",
    ),
    Check(
        *("before-recording", "note", _before_recording),
        "Kernels were launched before the recording: the first step begins behind them.",
    ),
    Check(
        *("unclassified", "note", _unclassified),
        "Kernels look like communication, and no rule names them.",
        "name them with `--communication-rule`",
    ),
    Check("unlinked-kernels", "note", unlinked_kernels, "Most kernels have no launch: steps are less certain."),
    Check("profiler-loss", "note", messages_of_loss, "The profiler wrote that it lost records."),
    Check("profiler", "note", other_messages, "The profiler wrote something else."),
    Check("unlinked", "note", _not_joined, "Collectives of the flight recorder have no event."),
    Check("partial", "note", _partial, "The job ended before the probe's window was full."),
    Check("capture", "note", _of_capture, "What the probe wrote about its recording."),
)
"""In the order in which they run. Of a rank that is excluded only the checks that exclude nothing run on."""
