"""A run against one or several baseline runs of the same job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.comparison import columns
from tracekit.analysis.comparison.cause_changes import Basis, cause_changes
from tracekit.analysis.comparison.change_estimate import ChangeEstimate, estimate_change
from tracekit.analysis.comparison.comparability import find_differences, why_incomparable
from tracekit.analysis.comparison.exploration import explored_changes
from tracekit.analysis.comparison.run_noise import DEFAULT_RUN_NOISE
from tracekit.analysis.comparison.step_verdict import DEFAULT_MARGIN, StepVerdict, judge
from tracekit.analysis.report import Report
from tracekit.analysis.step_time.step_lengths import job_steps_ns
from tracekit.analysis.table import Frame
from tracekit.errors import InputError
from tracekit.model.events import Float64
from tracekit.model.run import Run

__all__ = ["SECTIONS_READ", "Comparison", "compare", "steps_ns"]

SECTIONS_READ = ("breakdown", "configuration", "memory", "critical_path", "diagnosis", "kernels")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A comparison of runs.

    Attributes:
        baselines: the runs of the baseline.
        candidate: the run that is compared with them.
        change: the change of the typical length of a step.
        verdict: what that means.
        basis: what `causes` are from.
        causes: rows of columns.CAUSE_CHANGES; they sum to the change of the typical length.
        explored: rows of columns.EXPLORED_CHANGES.
        differences: rows of columns.RUN_DIFFERENCES.
    """

    baselines: tuple[Run, ...]
    candidate: Run
    change: ChangeEstimate
    verdict: StepVerdict
    basis: Basis
    causes: Frame = Frame(columns.CAUSE_CHANGES)
    explored: Frame = Frame(columns.EXPLORED_CHANGES)
    differences: Frame = Frame(columns.RUN_DIFFERENCES)

    @property
    def baseline_ns(self) -> int:
        """Return the typical length of a step of the baseline."""
        return round(self.change.baseline)

    @property
    def candidate_ns(self) -> int:
        """Return the typical length of a step of the candidate."""
        return round(self.change.candidate)


def compare(
    baselines: Sequence[Report],
    candidate: Report,
    *,
    margin: float = DEFAULT_MARGIN,
    run_noise: float = DEFAULT_RUN_NOISE,
) -> Comparison:
    """Compare a run with one or several baseline runs, of whose reports the sections `SECTIONS_READ` are needed.

    margin: changes of the step by less than this share do not matter. run_noise: the share by which two runs of one job
    are taken to differ where fewer than three baseline runs show it.

    Raises InputError with the reason if the runs cannot be compared.
    """
    runs = tuple(report.run for report in baselines)
    for run in runs:
        if reason := why_incomparable(run, candidate.run):
            raise InputError(
                f"these runs cannot be compared: {reason}", hint="record the same job, on as many ranks, and compare it"
            )
    change = estimate_change([steps_ns(run) for run in runs], steps_ns(candidate.run), run_noise=run_noise)
    basis, causes = cause_changes(baselines, candidate, round(change.baseline), round(change.candidate))
    return Comparison(
        baselines=runs,
        candidate=candidate.run,
        change=change,
        verdict=judge(change, margin),
        basis=basis,
        causes=causes,
        explored=explored_changes(baselines, candidate, change),
        differences=find_differences(runs, candidate.run),
    )


def steps_ns(run: Run) -> Float64:
    """Return the lengths of the job's steps in order, at least 1, float64 [n]."""
    return np.array([max(step_ns, 1) for step_ns in job_steps_ns(run).values()], dtype=np.float64)
