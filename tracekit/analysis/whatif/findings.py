"""Which savings of a what-if are worth a finding."""

from __future__ import annotations

from tracekit.analysis.pipeline.advice import UnevenStage
from tracekit.analysis.whatif.changes import BALANCED_STAGES
from tracekit.analysis.whatif.whatif import WhatIf
from tracekit.model.run import Finding, Run

__all__ = ["whatif_findings"]

_NOTABLE_SHARE = 0.05


def whatif_findings(run: Run, result: WhatIf, uneven: UnevenStage | None = None) -> list[Finding]:
    """Return findings on uneven stages, and on a slow rank of a run without collectives.

    Where ranks meet in collectives, the section on stragglers names the slow rank. Exposed communication has a section
    too. uneven: a stage that the section on pipelines has named; it gets no second finding.
    """
    named = frozenset(uneven.ranks if uneven is not None else ())
    notable = [change for change in result.changes if change.share >= _NOTABLE_SHARE and change.rank not in named]
    if uneven is not None:
        notable = [change for change in notable if change.what != BALANCED_STAGES]
    ranks_meet = any(len(matched.ranks) > 1 and matched.row.size for matched in run.collectives)
    slow_rank = [] if ranks_meet else [change for change in notable if change.rank is not None][:1]
    findings = []
    for change in [*slow_rank, *(change for change in notable if change.what == BALANCED_STAGES)]:
        saving = f"{change.saves_ns_per_step / 1e6:.2f} ± {change.error_ns / 1e6:.2f} ms"
        text = f"{change.what}: -{saving} a step ({change.share:.0%})"
        if change.rank is not None:
            text = f"rank {change.rank} computes longer than its peers, which wait for its messages: at their median a "
            text += f"step would take {saving} ({change.share:.0%}) less"
        findings.append(
            Finding(
                severity="info" if change.rank is None else "warning",
                text=text,
                rank=change.rank,
                saving_ns=change.saves_ns_per_step,
                evidence={"error_ns": change.error_ns, "replay_error": result.replay_error},
            )
        )
    return findings
