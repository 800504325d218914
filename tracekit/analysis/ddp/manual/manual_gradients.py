"""Gradients that the training loop averages by hand: how long that is exposed, and what DDP would save."""

from __future__ import annotations

import statistics
from dataclasses import replace

from tracekit.analysis.ddp.manual.manual_whatif import ManualWhatIf, manual_whatif
from tracekit.analysis.ddp.parts import MANUAL_GRADIENTS
from tracekit.analysis.finding import Finding
from tracekit.analysis.section import Unavailable
from tracekit.model.notes import Severity
from tracekit.model.run import Run

_NOTABLE = 0.05  # of a step
_LEAST_ERRORS = 2  # a saving below this many times its uncertainty may be none
_LEAST_SHARE = 0.01  # of a step
_NOTHING_SAVED = "a replay with the buckets of DistributedDataParallel saves no more than its error"

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
    }
    severity: Severity = "warning" if share >= _NOTABLE else "info"
    finding = Finding(
        severity=severity,
        text=text,
        cause="transfer",
        time_ns=int(exposed_ns),
        action=_action(),
        evidence=evidence,
    )
    return (_with_saving(finding, manual_whatif(run), run.mean_rank_step_ns()),)


def _action(option: str = "") -> str:
    return f"use DistributedDataParallel{option}, which reduces them in buckets while the backward pass runs"


def _with_saving(finding: Finding, outcome: ManualWhatIf | Unavailable, step_ns: float) -> Finding:
    """Return the finding with what a replay with buckets saves, or the reason why it has no saving."""
    if isinstance(outcome, Unavailable):
        return replace(finding, evidence={**finding.evidence, "no_replay": outcome.reason})
    evidence = {**finding.evidence, "buckets": outcome.buckets, "bucket_cap_mb": outcome.bucket_cap_mb}
    if outcome.saving_ns <= max(_LEAST_ERRORS * outcome.error_ns, _LEAST_SHARE * step_ns):
        return replace(finding, evidence={**evidence, "no_replay": _NOTHING_SAVED})
    option = "" if outcome.bucket_cap_mb is None else f" with bucket_cap_mb={outcome.bucket_cap_mb:g}"
    return replace(
        finding,
        saving_ns=outcome.saving_ns,
        saving_error_ns=outcome.error_ns,
        action=_action(option),
        evidence=evidence,
    )
