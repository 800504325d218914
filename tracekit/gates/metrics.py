"""The numbers of a run that a gate can limit."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tracekit.comparison.comparison import steps_ns
from tracekit.explain.section import Unavailable
from tracekit.model.events import Float64
from tracekit.model.run import clocks_are_comparable
from tracekit.model.table import rows_of
from tracekit.report.report import Report
from tracekit.stats.uncertainty import pseudomedian

Unit = Literal["time", "ratio", "bytes"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number of a run.

    Attributes:
        name: as in `[gates.NAME]`.
        meaning: one sentence for the user's documentation.
        unit: time is in ns.
        worse: whether a higher or a lower value is worse.
        sections: of the report, which `value` reads.
        value: returns the number of a run, or why there is none.
        by_step: returns the number in each step, float64 [n], for the noise of the steps; None where it is one number.
    """

    name: str
    meaning: str
    unit: Unit
    worse: Literal["higher", "lower"]
    sections: tuple[str, ...]
    value: Callable[[Report], float | Unavailable]
    by_step: Callable[[Report], Float64] | None = None


_NO_STEP = Unavailable(reason="there is no step that all ranks completed")


def _step_time(report: Report) -> float | Unavailable:
    lengths_ns = steps_ns(report.run)
    return pseudomedian(lengths_ns) if len(lengths_ns) else _NO_STEP


def _exposed_comm_ratio(report: Report) -> float | Unavailable:
    steps = [(step.exposed_comm_ns, step.step_ns) for s in report.run.ranks for step in s.steps if step.complete]
    step_ns = sum(length_ns for _, length_ns in steps)
    return sum(exposed_ns for exposed_ns, _ in steps) / step_ns if step_ns else _NO_STEP


def _exposed_comm_ratios(report: Report) -> Float64:
    """Return the exposed communication of all ranks as a share of their time, in each step that all completed."""
    step_indexes = {number: step_index for step_index, number in enumerate(sorted(report.run.common_steps()))}
    exposed_ns, step_ns = np.zeros(len(step_indexes)), np.zeros(len(step_indexes))
    for summary in report.run.ranks:
        for step in summary.steps:
            if step.step in step_indexes:
                exposed_ns[step_indexes[step.step]] += step.exposed_comm_ns
                step_ns[step_indexes[step.step]] += step.step_ns
    return exposed_ns / np.maximum(step_ns, 1.0)


def _bubble_ratio(report: Report) -> float | Unavailable:
    if (pipeline := report.pipeline) is None:
        return Unavailable(reason="the run has no pipeline")
    if pipeline.bubble_ratio is None:
        return Unavailable(reason="the bubbles are not known: ranks are missing, or clocks cannot be compared")
    return float(pipeline.bubble_ratio)


def _straggler_share(report: Report) -> float | Unavailable:
    run = report.run
    if not run.common_steps():
        return _NO_STEP
    if report.stragglers is None or not clocks_are_comparable(run.ranks, run.clocks):
        return Unavailable(reason="the clocks of different hosts are not known well enough to name a straggler")
    verdict = report.stragglers.verdict
    return float(verdict.share_of_step) if verdict.cause is not None else 0.0


def _mfu(report: Report) -> float | Unavailable:
    if (roofline := report.roofline) is None:
        return _NO_STEP
    values = [row["mfu"] for row in rows_of(roofline, "by_rank")]
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        reasons = [each.reason for name, each in roofline.unavailable.items() if name in {"mfu", "flops", "peak"}]
        return Unavailable(reason=next(iter(reasons), "the work of a rank is not known"))
    return statistics.fmean(known)


def _mfu_by_step(report: Report) -> Float64:
    """Return the utilisation in each step: its work is the same in all steps, and its time is not."""
    mfu, lengths_ns = _mfu(report), steps_ns(report.run)
    assert not isinstance(mfu, Unavailable)
    return np.asarray(mfu * lengths_ns.mean() / lengths_ns)


def _peak_memory(report: Report) -> float | Unavailable:
    rows = [] if report.memory is None else rows_of(report.memory, "ranks")
    peaks = [row["peak_bytes"] for row in rows if row["peak_bytes"] is not None]
    if not peaks:
        return Unavailable(reason="the peak of memory was not recorded")
    return float(max(peaks))


_LISTED = (
    Metric(
        name="step_time",
        meaning="The typical length of a step of the job.",
        unit="time",
        worse="higher",
        sections=("breakdown",),
        value=_step_time,
        by_step=lambda report: steps_ns(report.run),
    ),
    Metric(
        name="exposed_comm_ratio",
        meaning="Communication that no compute hides, as a share of the time of all ranks.",
        unit="ratio",
        worse="higher",
        sections=("breakdown",),
        value=_exposed_comm_ratio,
        by_step=_exposed_comm_ratios,
    ),
    Metric(
        name="bubble_ratio",
        meaning="Bubbles as a share of the pipeline's time.",
        unit="ratio",
        worse="higher",
        sections=("pipeline",),
        value=_bubble_ratio,
    ),
    Metric(
        name="straggler_share",
        meaning="The delay that the named rank, ranks or link causes, as a share of the step; 0 if none is named.",
        unit="ratio",
        worse="higher",
        sections=("stragglers",),
        value=_straggler_share,
    ),
    Metric(
        name="mfu",
        meaning="Model FLOPs utilisation, the mean over ranks.",
        unit="ratio",
        worse="lower",
        sections=("roofline",),
        value=_mfu,
        by_step=_mfu_by_step,
    ),
    Metric(
        name="peak_memory",
        meaning="The most memory that any rank's allocator held.",
        unit="bytes",
        worse="higher",
        sections=("memory",),
        value=_peak_memory,
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _LISTED}
"""The metrics by name."""
