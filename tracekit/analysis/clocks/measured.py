"""The clock of a rank as the probe measured it, against the reference that the capture used."""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.model.metadata import ClockSample
from tracekit.model.run import ClockModel
from tracekit.model.summary import RankSummary

_SAME_OCCASION_NS = 1_000_000_000  # samples this close together are one measurement

__all__ = ["probe_clock"]


def probe_clock(summary: RankSummary) -> ClockModel:
    """Return the measured clock of a rank, from the best samples at the opening and at the closing of the window.

    The best sample is the one of least error.
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
            rank=summary.rank, method="probe", offset_ns=best.offset_ns, at_ns=best.at_ns, error_ns=best.error_ns
        )
    drift = (closed.offset_ns - opened.offset_ns) / apart_ns
    significant = abs(closed.offset_ns - opened.offset_ns) > opened.error_ns + closed.error_ns
    return ClockModel(
        rank=summary.rank,
        method="probe",
        offset_ns=opened.offset_ns,
        at_ns=opened.at_ns,
        drift_ppm=drift * 1e6 if significant else 0.0,
        error_ns=opened.error_ns + closed.error_ns,
    )


def _best(samples: Sequence[ClockSample]) -> ClockSample:
    return min(samples, key=lambda sample: (sample.error_ns, sample.at_ns))
