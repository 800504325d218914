"""What of a table's analysis is worth a sentence, and what to do about it, the largest saving first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracekit.analysis.finding import Finding
from tracekit.analysis.operation_tables.outliers import Outliers
from tracekit.analysis.operation_tables.slow_ranks import SlowRank
from tracekit.analysis.operation_tables.stalls import Stalls
from tracekit.analysis.pipeline.bubbles import Pipeline
from tracekit.analysis.whatif.changes import Change
from tracekit.analysis.whatif.whatif import WhatIf
from tracekit.model.quantities import count_text
from tracekit.model.ranks import ranks_text

__all__ = ["table_findings"]

_CAUSES_OF_STALLS = "garbage collection, data loading, checkpoints or other jobs"
_NOTABLE = 0.005  # of the mean step
_NOTABLE_OF_ITS_STEP = 0.02


def table_findings(
    result: WhatIf, pipeline: Pipeline | None, slow_ranks: Sequence[SlowRank], stalls: Stalls | None, outliers: Outliers
) -> tuple[Finding, ...]:
    """Return the findings: slow ranks, an uneven stage, stalls, bubbles."""
    slow = {one.rank for one in slow_ranks}
    found = [_slow_rank(one, result) for one in slow_ranks]
    if stalls is not None and _are_notable(outliers, result):
        found.append(_stalls(stalls, outliers, result, others_are_slow=bool(slow_ranks)))
    found += _slow_transfers(outliers, result)
    for finding in pipeline.findings if pipeline is not None else ():
        if finding.remedy != "stages":
            found.append(finding)
        elif not slow & set(finding.ranks):  # a slow rank makes its stage uneven
            found.append(_with_saving(finding, _change(result, "stages")))
    return tuple(sorted(found, key=lambda finding: (finding.severity == "info", -(finding.saving_ns or 0))))


def _are_notable(outliers: Outliers, result: WhatIf) -> bool:
    """Return whether stalls cost the mean step something, or one of them costs its own step more."""
    largest_ns = max((outlier.saves_ns for outlier in outliers.outliers if not outlier.waits_on_others), default=0)
    return (
        outliers.stalls_ns >= _NOTABLE * result.measured_ns or largest_ns >= _NOTABLE_OF_ITS_STEP * result.measured_ns
    )


def _slow_rank(slow: SlowRank, result: WhatIf) -> Finding:
    text = (
        f"rank {slow.rank} computes {slow.beyond_ns / 1e6:.1f} ms a step ({slow.share:.0%}) longer than its "
        f"{'peer' if slow.peers == 1 else 'peers'} of the same stage, in {slow.shown} of {slow.steps} steps: a "
        "persistent straggler"
    )
    finding = Finding(
        severity="warning",
        text=text,
        rank=slow.rank,
        certainty=slow.certainty,
        cause="slow_compute",
        action=f"compare rank {slow.rank}'s device and machine with those of its peers",
        evidence={"beyond_ns": slow.beyond_ns, "share": slow.share, "shown": slow.shown, "steps": slow.steps},
        remedy="ranks",
        ranks=(slow.rank,),
    )
    return _with_saving(finding, _change(result, "ranks", slow.rank))


def _stalls(stalls: Stalls, outliers: Outliers, result: WhatIf, *, others_are_slow: bool) -> Finding:
    operations = count_text(stalls.count, "operation")
    in_steps = f"in {stalls.steps} of {result.steps} steps"
    longer = f"{stalls.beyond_ns / 1e6:.1f} ms longer than usual"
    action = f"look for {_CAUSES_OF_STALLS} at these times"
    if stalls.pattern == "wandering":
        text = f"stalls wander: {operations} on {len(stalls.ranks)} ranks, {in_steps}, last {longer} in all"
        action = f"no rank is to blame for them; {action}"
    elif stalls.pattern == "microbatches":
        text = (
            f"microbatches differ in their work: forward and backward of the same ones are longer, {operations} on "
            f"{len(stalls.ranks)} ranks, {in_steps}"
        )
        action = "make microbatches even, such as by the length of their sequences"
    elif stalls.pattern == "recurring":
        text = f"rank {stalls.rank} stalls again and again: {operations}, {in_steps}, last {longer} in all"
    else:
        verb = "lasts" if stalls.count == 1 else "last"
        text = f"{operations} of {ranks_text(stalls.ranks)} {verb} {longer}, {in_steps}"
        text += "" if others_are_slow else "; no rank is slow otherwise"
    work = [outlier for outlier in outliers.outliers if not outlier.waits_on_others]
    return Finding(
        severity="info" if stalls.pattern == "single" else "warning",
        text=text,
        rank=stalls.rank,
        step=work[0].step,
        saving_ns=outliers.stalls_ns,
        saving_error_ns=round(abs(outliers.stalls_ns * result.replay_error)),
        certainty="sure" if all(outlier.certainty == "sure" for outlier in work[:3]) else "likely",
        cause="imbalance" if stalls.pattern == "microbatches" else "stall",
        action=action,
        evidence={"pattern": stalls.pattern, "operations": stalls.count, "steps": stalls.steps},
        ranks=stalls.ranks,
    )


def _slow_transfers(outliers: Outliers, result: WhatIf) -> list[Finding]:
    transfers = [outlier for outlier in outliers.outliers if outlier.waits_on_others]
    if not transfers or outliers.transfers_ns < _NOTABLE * result.measured_ns:
        return []
    longest = max(transfers, key=lambda outlier: outlier.duration_ns - outlier.usual_ns)
    steps = len({outlier.step for outlier in transfers})
    text = (
        f"ranks wait far longer than usual for messages or collectives in {steps} of {result.steps} steps: in step "
        f"{longest.step} a {longest.operation} takes {longest.duration_ns / 1e6:.1f} ms instead of "
        f"{longest.usual_ns / 1e6:.1f}"
    )
    return [
        Finding(
            severity="info",
            text=text,
            step=longest.step,
            saving_ns=outliers.transfers_ns,
            saving_error_ns=round(abs(outliers.transfers_ns * result.replay_error)),
            certainty=longest.certainty,
            cause="transfer",
            action="look at the network and at the hosts at these times",
            evidence={"operations": len(transfers), "steps": steps},
        )
    ]


def _change(result: WhatIf, remedy: str, rank: int | None = None) -> Change | None:
    fitting = (change for change in result.changes if change.remedy == remedy and change.rank == rank)
    return next(fitting, None)


def _with_saving(finding: Finding, change: Change | None) -> Finding:
    if change is None:
        return finding
    return replace(finding, saving_ns=change.saves_ns_per_step, saving_error_ns=change.error_ns)
