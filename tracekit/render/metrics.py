"""The numbers of a run as one flat dictionary, for trackers of experiments such as Weights & Biases and MLflow."""

from __future__ import annotations

from tracekit.explain.section import Unavailable
from tracekit.explain.step_time.step_lengths import step_lengths
from tracekit.gates.metrics import METRICS
from tracekit.model.table import rows_of
from tracekit.report.report import Report

_PARTS = ("compute", "exposed_comm", "exposed_copy", "idle")


def flat_metrics(report: Report) -> dict[str, float]:
    """Return numbers by name; what is not known is left out.

    `step_ms` is the median. The ratios of compute, exposed communication, exposed copies and idle time add up to 1,
    over the steps of all ranks. `..._saving_ms` is what the replay saves a step, by the id of the finding.
    """
    lengths = step_lengths(report.run)
    found: dict[str, float] = {"ranks": len(report.run.ranks), "steps": 0 if lengths is None else lengths.count}
    if lengths is not None:
        found["step_ms"] = lengths.median_ns / 1e6
    rows = [] if report.breakdown is None else rows_of(report.breakdown, "ranks")
    if step_ns := sum(row["step_ns"] for row in rows):
        found |= {f"{part}_ratio": sum(row[f"{part}_ns"] for row in rows) / step_ns for part in _PARTS}
    for metric in METRICS.values():
        value = metric.value(report)
        if metric.unit != "time" and not isinstance(value, Unavailable):
            found[f"{metric.name}{'_bytes' * (metric.unit == 'bytes')}"] = value
    for finding in reversed(report.findings):  # of several with one id the first, which saves most, stays
        if finding.saving_ns is not None:
            found[f"{finding.id.replace('-', '_')}_saving_ms"] = finding.saving_ns / 1e6
    return found
