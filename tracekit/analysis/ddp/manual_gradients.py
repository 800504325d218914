"""Gradients that the training loop averages by hand: how long that is exposed, and what DDP would save."""

from __future__ import annotations

import statistics

from tracekit.analysis.ddp.parts import MANUAL_GRADIENTS
from tracekit.analysis.finding import Finding
from tracekit.model.communication import KINDS
from tracekit.model.notes import Severity
from tracekit.model.run import Run

_REDUCES = tuple(KINDS.index(kind) for kind in ("all_reduce", "reduce", "reduce_scatter"))
_SCALAR_BYTES = 8  # scalars, such as a loss
_NOTABLE = 0.05  # of a step

__all__ = ["manual_data_parallel"]


def manual_data_parallel(run: Run) -> tuple[Finding, ...]:
    """Return one finding about the steps in which gradients were reduced by hand, if it takes a notable time."""
    rows = {(s.rank, row.step): row for s in run.ranks for row in s[MANUAL_GRADIENTS]}
    steps = {(s.rank, step.step): step.step_ns for s in run.ranks for step in s.steps}
    if not rows:
        return ()
    share = sum(row.exposed_ns for row in rows.values()) / max(sum(steps[key] for key in rows), 1)
    exposed_ns = statistics.fmean(row.exposed_ns for row in rows.values())
    count = statistics.median(row.count for row in rows.values())
    in_backward = sum(row.in_backward for row in rows.values())
    parameters = next((row.parameters for row in rows.values() if row.parameters), None)
    how_many = f"{count:g} all-reduce{'s' * (count != 1)} a step"
    if parameters is not None and count == parameters:
        how_many += ", one a parameter"
    if 2 * in_backward < sum(row.count for row in rows.values()):
        when = "after the backward pass"
    else:
        when = "one by one in the backward pass"
    text = f"gradients are averaged by hand: {how_many}, {when}; compute does not hide {share:.0%} of the step"
    evidence = {
        "all_reduces_per_step": count,
        "parameters": parameters,
        "in_backward": in_backward,
        "exposed_ns": int(exposed_ns),
        "exposed_share": share,
        "no_replay": "the buckets that DistributedDataParallel would make are not known",
    }
    severity: Severity = "warning" if share >= _NOTABLE else "info"
    action = "use DistributedDataParallel, which reduces them in buckets while the backward pass runs"
    return (
        Finding(
            severity=severity,
            text=text,
            cause="transfer",
            time_ns=int(exposed_ns),
            action=action,
            evidence=evidence,
        ),
    )
