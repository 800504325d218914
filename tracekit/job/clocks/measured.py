"""What the probe measured of a rank's clock, against the reference that the capture used, and the table of clocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tracekit.job.clocks.fit import LARGEST_DRIFT, STEEPEST
from tracekit.model.events import ABSENT
from tracekit.model.metadata import ClockSample
from tracekit.model.run import ClockModel
from tracekit.model.summary import RankSummary
from tracekit.model.table import RANK, Column, Table

_SAME_OCCASION_NS = 1_000_000_000  # samples this close together are one measurement

CLOCK = Table(
    "clock",
    (
        RANK,
        Column(
            "method",
            "str",
            "",
            "probe: measured while recording; host: of the reference's host; wall: wall clocks agree within the error; "
            "collectives: fitted to their ends; messages: bounded by them; none.",
        ),
        Column("offset_ns", "int", "ns", "This rank's clock minus the reference's; t_run = t_rank - offset."),
        Column("drift_ppm", "float?", "ppm", "Change of the offset over time; null when unknown."),
        Column("error_ns", "int?", "ns", "Half-width of the uncertainty anywhere in the recording; null when unknown."),
        Column("at_ns", "int", "ns", "When the offset holds, on the rank's clock: a drift counts from there."),
        Column("jump_ns", "int?", "ns", "By how much it jumps within the recording: such a rank is not compared."),
    ),
)


def probe_clock(summary: RankSummary) -> ClockModel:
    """Return the measured clock of a rank, from the best samples at the opening and at the closing of the window.

    The best sample is the one of least error. The error of the model holds for the whole recording.
    """
    clock = summary.clock
    if clock is None or clock.method == "none" or not clock.samples:
        return ClockModel(rank=summary.rank, method="none")
    samples = sorted(clock.samples, key=lambda sample: sample.at_ns)
    opened = _best([s for s in samples if s.at_ns - samples[0].at_ns < _SAME_OCCASION_NS])
    closed = _best([s for s in samples if samples[-1].at_ns - s.at_ns < _SAME_OCCASION_NS])
    apart_ns = closed.at_ns - opened.at_ns
    if apart_ns <= _SAME_OCCASION_NS:
        best = _best(samples)
        return ClockModel(
            rank=summary.rank,
            method="probe",
            offset_ns=best.offset_ns,
            at_ns=best.at_ns,
            error_ns=_error_without_drift_ns(samples, best, recorded_time(summary, best.at_ns)),
        )
    changed_ns = closed.offset_ns - opened.offset_ns
    error_ns = opened.error_ns + closed.error_ns
    # No clock drifts by more than the steepest slew: it was set meanwhile, and only collectives may tell when.
    significant = error_ns < abs(changed_ns) <= error_ns + STEEPEST * apart_ns
    return ClockModel(
        rank=summary.rank,
        method="probe",
        offset_ns=opened.offset_ns,
        at_ns=opened.at_ns,
        drift_ppm=changed_ns / apart_ns * 1e6 if significant else 0.0,
        error_ns=opened.error_ns + closed.error_ns
        if significant
        else max(opened.error_ns, abs(changed_ns) + closed.error_ns),
    )


def recorded_time(summary: RankSummary, otherwise_ns: int) -> tuple[int, int]:
    """Return when a rank's part of the recording begins and ends, on its clock; `otherwise_ns` if it shows nothing.

    That is the time of its communication and of the steps in which it communicates, or of all steps if it does not.
    Steps without communication are not compared with those of other ranks.
    """
    collectives, messages = summary.collectives, summary.messages
    times_ns = np.concatenate((collectives.released_ns, collectives.end_ns, messages.ready_ns, messages.end_ns))
    times_ns = times_ns[times_ns != ABSENT]
    result = [(int(times_ns.min()), int(times_ns.max()))] if len(times_ns) else []
    for step in summary.steps:
        begin_ns, end_ns = step.start_ns, step.start_ns + step.step_ns
        if not len(times_ns) or (begin_ns <= result[0][1] and end_ns >= result[0][0]):
            result.append((begin_ns, end_ns))
    begins_ns, ends_ns = zip(*result, strict=True) if result else ((otherwise_ns,), (otherwise_ns,))
    return min(begins_ns), max(ends_ns)


def _best(samples: Sequence[ClockSample]) -> ClockSample:
    return min(samples, key=lambda sample: (sample.error_ns, sample.at_ns))


def _error_without_drift_ns(samples: Sequence[ClockSample], best: ClockSample, recorded_ns: tuple[int, int]) -> int:
    """Return the largest error of the best sample's offset in a recording.

    The clock may drift by `LARGEST_DRIFT` from each sample on, so the error is largest at an end or halfway between two
    samples. A clock without any error is the reference itself, or that of its machine.
    """
    if not any(sample.error_ns or sample.rtt_ns for sample in samples):
        return 0
    at_ns = np.array([sample.at_ns for sample in samples], dtype=np.int64)
    halfway_ns = at_ns[:-1] + np.diff(at_ns) // 2
    times_ns = np.clip(np.concatenate((recorded_ns, halfway_ns)), *recorded_ns)
    errors_ns = [
        abs(sample.offset_ns - best.offset_ns) + sample.error_ns + LARGEST_DRIFT * np.abs(times_ns - sample.at_ns)
        for sample in samples
    ]
    largest_ns = float(np.min(errors_ns, axis=0).max())
    return max(best.error_ns, math.ceil(largest_ns))
