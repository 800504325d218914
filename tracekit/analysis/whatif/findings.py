"""What of a what-if is worth saying.

Comes in: a run, its `WhatIf`, and what the section on pipelines named already. Goes out: findings.
"""

from __future__ import annotations

from tracekit.analysis.pipeline.advice import UnevenStage
from tracekit.analysis.whatif.whatif import BALANCED, WhatIf
from tracekit.model.run import Finding, Run

__all__ = ["whatif_findings"]

_NOTABLE_SHARE = 0.05


def whatif_findings(run: Run, result: WhatIf, uneven: UnevenStage | None = None) -> list[Finding]:
    """What costs much: uneven stages, and a slow rank of a run whose ranks only send each other messages; less the
    stage that is `uneven`, which has a finding already. Where ranks meet in collectives, who holds up whom is for the
    section on stragglers to find, as exposed communication is for its own.
    """
    explained = frozenset(uneven.ranks if uneven is not None else ())
    notable = [fix for fix in result.fixes if fix.share >= _NOTABLE_SHARE and fix.rank not in explained]
    if uneven is not None:
        notable = [fix for fix in notable if fix.what != BALANCED]
    meet = any(len(matched.ranks) > 1 and matched.row.size for matched in run.collectives)
    slow = [] if meet else [fix for fix in notable if fix.rank is not None][:1]
    findings = []
    for fix in [*slow, *(fix for fix in notable if fix.what == BALANCED)]:
        saving = f"{fix.saves_ns_per_step / 1e6:.2f} ± {fix.error_ns / 1e6:.2f} ms"
        text = f"{fix.what}: -{saving} a step ({fix.share:.0%})"
        if fix.rank is not None:
            text = f"rank {fix.rank} computes longer than its peers, which wait for its messages: at their median a "
            text += f"step would take {saving} ({fix.share:.0%}) less"
        findings.append(
            Finding(
                severity="info" if fix.rank is None else "warning",
                text=text,
                rank=fix.rank,
                saving_ns=fix.saves_ns_per_step,
                evidence={"error_ns": fix.error_ns, "replay_error": result.replay_error},
            )
        )
    return findings
