"""The clock of one rank against that of another, given both against a third."""

from __future__ import annotations

from tracekit.model.clocks import ClockModel

__all__ = ["relative"]


def relative(model: ClockModel, reference: ClockModel) -> ClockModel:
    """Return the model of a rank against the reference. Both are given in one frame."""
    # Errors of fits are against the ends that all ranks share. Errors of measurements add up.
    error_ns = (model.error_ns or 0) + (reference.error_ns or 0 if reference.method == "probe" else 0)
    if model.rank == reference.rank:
        drift_ppm = None if model.drift_ppm is None else 0.0
        error_ns = 0 if model.method == "probe" else error_ns
        return ClockModel(
            rank=model.rank, method=model.method, at_ns=model.at_ns, drift_ppm=drift_ppm, error_ns=error_ns
        )
    drift, reference_drift = ((clock.drift_ppm or 0.0) * 1e-6 for clock in (model, reference))
    since_ns = model.at_ns - model.offset_ns + reference.offset_ns - reference.at_ns
    on_reference_ns = reference.at_ns + since_ns + round(since_ns * (reference_drift / (1 - reference_drift)))
    drift = (drift - reference_drift) / (1 - reference_drift)
    unknown = None in (model.drift_ppm, reference.drift_ppm) and not drift
    return ClockModel(
        rank=model.rank,
        method=model.method,
        offset_ns=model.at_ns - on_reference_ns,
        at_ns=model.at_ns,
        drift_ppm=None if unknown else drift * 1e6,
        error_ns=error_ns,
    )
