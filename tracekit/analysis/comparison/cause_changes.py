"""What the change of the step consists of: the causes of the baseline's mean step against those of the candidate's.

The verdict is on the pseudomedian of the steps, and causes divide the mean. What the pseudomedian changed by beyond the
mean is the row `uneven_steps`. A single step that is longer, such as one with a checkpoint, changes the mean alone. So
the rows sum to the change of the step that is judged, exactly, in integers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from tracekit.analysis.report import Report
from tracekit.analysis.stats.apportion import apportion
from tracekit.analysis.table import rows_of
from tracekit.model.run import Run

__all__ = ["UNEVEN_STEPS", "Basis", "cause_changes"]

UNEVEN_STEPS = "uneven_steps"

Basis = Literal["causes", "breakdown"]
"""causes: those of the diagnosis. breakdown: compute, exposed communication, exposed copies and idle time, over ranks,
because the chain that bounds the steps of a run is not known."""

_Key = tuple[str, tuple[int, ...]]
_PARTS = ("compute", "exposed_comm", "exposed_copy", "idle")


def cause_changes(
    baselines: Sequence[Report], candidate: Report, baseline_ns: int, candidate_ns: int
) -> tuple[Basis, list[dict[str, object]]]:
    """Return what the causes are from, and rows of tables.CAUSE_CHANGES, the largest change first, then the longest.

    baseline_ns, candidate_ns: the pseudomedians of their steps.
    """
    reports = [*baselines, candidate]
    is_known = all(report.diagnosis is not None and report.diagnosis.steps for report in reports)
    times = [_causes_ns(report) if is_known else _parts_ns(report.run) for report in reports]
    before, after = _mean(times[:-1]), times[-1]
    before[UNEVEN_STEPS, ()] = baseline_ns - before.total()
    after[UNEVEN_STEPS, ()] = candidate_ns - after.total()
    changes = {key: after[key] - before[key] for key in {**before, **after}}
    rows = [
        {
            "cause": cause,
            "ranks": list(ranks),
            "baseline_ns": before[cause, ranks],
            "candidate_ns": after[cause, ranks],
            "change_ns": changes[cause, ranks],
        }
        for cause, ranks in sorted(changes, key=lambda key: (-abs(changes[key]), -after[key], key))
    ]
    return "causes" if is_known else "breakdown", [row for row in rows if row["baseline_ns"] or row["candidate_ns"]]


def _causes_ns(report: Report) -> Counter[_Key]:
    """Return the times of the diagnosis by cause and ranks; phases, groups and stages of one cause count as one."""
    times: Counter[_Key] = Counter()
    for row in rows_of(report.diagnosis, "causes"):
        times[row["cause"], tuple(row["ranks"])] += row["time_ns"]
    return times


def _parts_ns(run: Run) -> Counter[_Key]:
    """Return the parts of the mean step over ranks."""
    common = run.common_steps()
    steps = [step for summary in run.ranks for step in summary.steps if step.step in common]
    sums = np.array([sum(getattr(step, f"{part}_ns") for step in steps) for part in _PARTS])
    means_ns = apportion(round(int(sums.sum()) / len(steps)), sums).tolist()
    return Counter({(part, ()): mean_ns for part, mean_ns in zip(_PARTS, means_ns, strict=True)})


def _mean(runs: Sequence[Mapping[_Key, int]]) -> Counter[_Key]:
    """Return the mean of several runs, whose sum is the mean of their sums."""
    keys = sorted({key for times in runs for key in times})
    sums = np.array([sum(times.get(key, 0) for times in runs) for key in keys])
    return Counter(dict(zip(keys, apportion(round(int(sums.sum()) / len(runs)), sums).tolist(), strict=True)))
