"""One clock for the run: each rank's offset to the reference, the lowest rank that has one.

Comes in: what the probe measured on each rank. Goes out: a `ClockModel` a rank. Ranks without a measurement are taken
as they are and say so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracekit.model.events import Int64
from tracekit.model.metadata import ClockSample
from tracekit.model.run import ClockModel
from tracekit.model.summary import RankSummary

__all__ = ["align", "on_run_clock"]

_SAME_OCCASION_NS = 1_000_000_000  # pings this close together are one measurement


def align(ranks: Sequence[RankSummary]) -> tuple[ClockModel, ...]:
    """A model for each rank, in the order given, relative to the first that was measured."""
    raw = [_measured(summary) for summary in ranks]
    reference = next((model for model in raw if model.method != "none"), None)
    return tuple(raw) if reference is None else tuple(_relative(model, reference) for model in raw)


def on_run_clock(time_ns: Int64, clock: ClockModel) -> Int64:
    """int64 [n]: times of a rank on the run's clock; t_run = t_rank - offset."""
    shifted = time_ns - clock.offset_ns
    if clock.drift_ppm:
        shifted = shifted - np.rint((time_ns - clock.at_ns) * (clock.drift_ppm * 1e-6)).astype(shifted.dtype)
    return shifted


def _measured(summary: RankSummary) -> ClockModel:
    """Offset to whatever the capture used as reference: the sample of least error when the window opened and closed."""
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


def _relative(model: ClockModel, reference: ClockModel) -> ClockModel:
    if model.method == "none":
        return model
    drift_ppm = None
    if model.drift_ppm is not None and reference.drift_ppm is not None:
        drift_ppm = model.drift_ppm - reference.drift_ppm
    own = model.rank == reference.rank
    return ClockModel(
        rank=model.rank,
        method="probe",
        offset_ns=model.offset_ns - reference.offset_ns,
        at_ns=model.at_ns,
        drift_ppm=drift_ppm,
        error_ns=0 if own else (model.error_ns or 0) + (reference.error_ns or 0),
    )
