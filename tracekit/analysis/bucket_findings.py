"""What to do about DDP's buckets.

Comes in: a run, and what other limits of their size would expose. Goes out: findings, each only where it is worth a
notable share of the step and more than its own error.
"""

from __future__ import annotations

import statistics

from tracekit.analysis.bucket_whatif import BucketWhatIf, CapOutcome
from tracekit.model.run import Finding, Run

__all__ = ["bucket_findings"]

_NOTABLE = 0.015  # of a step


def bucket_findings(run: Run, outcome: BucketWhatIf | None) -> tuple[Finding, ...]:
    step_ns = _step_ns(run)
    if step_ns is None or outcome is None:
        return ()
    return tuple(_other_cap(outcome, step_ns))


def _step_ns(run: Run) -> float | None:
    common = run.common_steps()
    steps = [step.step_ns for summary in run.ranks for step in summary.steps if step.step in common]
    return statistics.median(steps) if steps else None


def _other_cap(outcome: BucketWhatIf, step_ns: float) -> list[Finding]:
    """The limit that exposes least; of those that nothing tells apart, the one with the fewest buckets."""
    present = next((cap for cap in outcome.caps if cap.present), None)
    if present is None:
        return []
    least_ns = min(cap.exposed_ns for cap in outcome.caps)
    near_ns = max(_NOTABLE / 3 * step_ns, 0.05 * least_ns)
    best = min(
        (cap for cap in outcome.caps if cap.exposed_ns <= least_ns + near_ns),
        key=lambda cap: (cap.buckets, cap.exposed_ns),
    )
    gain_ns = min(present.exposed_ns - best.exposed_ns, best.saving_ns)
    error_ns = _error_ns(present, best)
    if best.present or gain_ns - error_ns < _NOTABLE * step_ns:
        return []
    text = (
        f"DDP's bucket_cap_mb={best.bucket_cap_mb:g} instead of {present.bucket_cap_mb:g} would make {best.buckets} "
        f"bucket{'s' * (best.buckets != 1)} of {present.buckets} and expose about {best.exposed_ns / 1e6:.1f} ms a step "
        f"of their reductions instead of {present.exposed_ns / 1e6:.1f}: {gain_ns / 1e6:.1f} ms less "
        f"(± {error_ns / 1e6:.1f}), {gain_ns / step_ns:.0%} of the step"
    )
    evidence = {
        "bucket_cap_mb": best.bucket_cap_mb,
        "present_bucket_cap_mb": present.bucket_cap_mb,
        "exposed_ns": best.exposed_ns,
        "error_ns": error_ns,
        "measured_exposed_ns": outcome.measured_ns,
    }
    return [Finding(severity="warning", text=text, saving_ns=gain_ns, evidence=evidence)]


def _error_ns(present: CapOutcome, other: CapOutcome) -> int:
    return max(present.error_ns, other.error_ns)
