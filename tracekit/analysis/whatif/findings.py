"""Which savings of a what-if are worth a finding."""

from __future__ import annotations

from tracekit.analysis.finding import Finding
from tracekit.analysis.pipeline.uneven_stage import UnevenStage
from tracekit.analysis.step_time.step_rates import slow_rates_of_ranks
from tracekit.analysis.whatif.kept_parameters import kept_parameters_findings
from tracekit.analysis.whatif.whatif import WhatIf
from tracekit.model.run import Run

__all__ = ["whatif_findings"]

_NOTABLE_SHARE = 0.05


def whatif_findings(run: Run, result: WhatIf, uneven: UnevenStage | None = None) -> list[Finding]:
    """Return findings on uneven stages, on parameters gathered twice, and on a slow rank of a run without collectives.

    Where ranks meet in collectives, the section on stragglers names the slow rank. Elsewhere a rank is named only if a
    replay shows that others wait for it. Exposed communication has a section too. A rank of a pipeline has no peers,
    for its stage differs from theirs. Where nobody waits, a slow rank has a low rate.

    uneven: a stage that the section on pipelines has named; it gets no second finding.
    """
    stages = {summary.rank for summary in run.ranks if summary.pipeline is not None}
    named = frozenset(uneven.ranks if uneven is not None else ())
    notable = [change for change in result.changes if change.share >= _NOTABLE_SHARE and change.rank not in named]
    if uneven is not None:
        notable = [change for change in notable if change.remedy != "stages"]
    slow_rank = [change for change in notable if change.remedy == "ranks" and change.rank in result.waited_for]
    slow_rank = [change for change in slow_rank if change.rank not in stages][:1]
    slow_rank = [] if run.has_collectives else slow_rank
    kept = next((change for change in result.changes if change.remedy == "reshard"), None)
    findings = list(kept_parameters_findings(run, kept))
    if not (run.has_collectives or stages or result.waited_for):  # messages that nobody waits for
        findings += slow_rates_of_ranks(run)
    for change in [*slow_rank, *(change for change in notable if change.remedy == "stages")]:
        text, action = "the stages do not take equally long", "move layers from slow stages to quick ones"
        if change.rank is not None:
            text = f"rank {change.rank} computes longer than its peers, which wait for its messages"
            action = f"compare what rank {change.rank} runs with its peers"
        findings.append(
            Finding(
                severity="info" if change.rank is None else "warning",
                text=text,
                rank=change.rank,
                saving_ns=change.saves_ns_per_step,
                saving_error_ns=change.error_ns,
                evidence={"replay_error": result.replay_error},
                cause="imbalance" if change.rank is None else "slow_compute",
                action=action,
                remedy=change.remedy,
                ranks=change.ranks,
            )
        )
    return findings
