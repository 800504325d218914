"""Gradients that the training loop averages by hand: how long that is exposed, and what DDP would save."""

from __future__ import annotations

import statistics

from tracekit.analysis.ddp.parts import MANUAL_GRADIENTS
from tracekit.analysis.step_time.savings import saving_of_ns
from tracekit.model.communication import KINDS
from tracekit.model.run import Finding, Run

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
    saving_ns = saving_of_ns(run, {key: row.hideable_ns for key, row in rows.items()})
    how_many = f"{count:g} all-reduce{'s' * (count != 1)} a step"
    if parameters is not None and count == parameters:
        how_many += ", one a parameter"
    if 2 * in_backward < sum(row.count for row in rows.values()):
        when = "started only after the backward pass had ended, so that nothing could overlap"
    else:
        when = "issued one by one in the backward pass"
    text = (
        f"gradients are averaged by hand: {how_many}, {when} ({exposed_ns / 1e6:.1f} ms a step exposed, "
        f"{share:.0%}); DistributedDataParallel reduces them in buckets while the backward pass runs"
    )
    if saving_ns is not None and saving_ns > 0:
        text += f", which would save up to {saving_ns / 1e6:.1f} ms a step"
    evidence = {
        "all_reduces_per_step": count,
        "parameters": parameters,
        "in_backward": in_backward,
        "exposed_ns": int(exposed_ns),
        "exposed_share": share,
    }
    return (
        Finding(severity="warning" if share >= _NOTABLE else "info", text=text, saving_ns=saving_ns, evidence=evidence),
    )
