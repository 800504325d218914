"""Where the time of the mean step goes, and what of it is worth a finding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tracekit.analysis.communication.overlap import exposed_findings
from tracekit.analysis.diagnosis import columns
from tracekit.analysis.diagnosis.causes import StepCause, step_causes
from tracekit.analysis.diagnosis.critical_path import CriticalPath
from tracekit.analysis.events.pauses.pause_times import PAUSES
from tracekit.analysis.fsdp.units import gathers_block
from tracekit.analysis.pipeline.bubbles import Pipeline
from tracekit.analysis.stragglers.arrivals.arrivals import Arrivals
from tracekit.analysis.stragglers.verdict import Verdict
from tracekit.analysis.table import Frame
from tracekit.findings.communication import exposed_transfers, late_by_turns
from tracekit.findings.finding import Finding
from tracekit.findings.thresholds import NOTABLE_SHARE
from tracekit.model.run import Run

__all__ = ["Diagnosis", "diagnose"]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The mean step by cause.

    Attributes:
        step_ns: the mean step, from the last rank's begin to the last rank's end.
        steps: how many steps it is the mean of.
        causes: rows of columns.CAUSES, the longest first; their times sum to `step_ns`.
        findings: on transfers, and on ranks that are late by turns.
    """

    step_ns: int
    steps: int
    causes: Frame = Frame(columns.CAUSES)
    findings: tuple[Finding, ...] = ()


def diagnose(
    run: Run, arrivals: Arrivals, path: CriticalPath, verdict: Verdict, pipeline: Pipeline | None
) -> Diagnosis:
    """Return the causes of the mean step of a run, and findings on those that no other section reports on.

    Without chains, or with one rank alone, waiting for others cannot be told from transfers.
    """
    step_ns, causes = step_causes(run, arrivals, path, verdict, pipeline)
    if not path.steps or sum(summary.is_measured for summary in run.ranks) < 2:
        findings = exposed_findings(run)
    else:
        findings = [*_transfers(run, causes, step_ns), *_variation(causes, step_ns)]
    return Diagnosis(
        step_ns=step_ns,
        steps=path.steps,
        causes=[columns.CAUSES.row(cause, time_ns=time_ns) for cause, time_ns in causes.items()],
        findings=tuple(findings),
    )


def _transfers(run: Run, causes: Mapping[StepCause, int], step_ns: int) -> Iterator[Finding]:
    """Yield a finding if the chain that bounds the step consists of transfers to a notable share.

    A chain of transfers may run beside compute, which hides it. So no more counts than the ranks' exposed time.
    Transfers of checkpoints and evaluations do not count: the findings on these pauses contain them.
    """
    in_training = {cause: time_ns for cause, time_ns in causes.items() if cause.phase not in PAUSES}
    transfers = {cause: time_ns for cause, time_ns in in_training.items() if cause.cause == "transfer"}
    on_path_ns = sum(transfers.values())
    time_ns = min(on_path_ns, _exposed_ns(run))
    if not transfers:
        return
    largest = max(transfers, key=lambda cause: transfers[cause])
    yield exposed_transfers(
        cause="transfer",
        time_ns=time_ns,
        evidence={
            "transfer_ns": on_path_ns,
            "exposed_ns": time_ns,
            "share": time_ns / max(step_ns, 1),
            "unseen": bool(run.missing_ranks) or any(summary.unmeasured is not None for summary in run.ranks),
            "kind": largest.kind,
            "group": largest.group,
            "phase": largest.phase,
        },
        remedy="network" if gathers_block(run) else "communication",
        conditions=[NOTABLE_SHARE.reached_by(time_ns / max(step_ns, 1))],
    )


def _exposed_ns(run: Run) -> int:
    """Return the exposed communication of a step, mean over the ranks and the steps that all completed."""
    common = run.common_steps()
    exposed_ns = [s.exposed_comm_ns for summary in run.ranks for s in summary.steps if s.step in common]
    return sum(exposed_ns) // max(len(exposed_ns), 1)


def _variation(causes: Mapping[StepCause, int], step_ns: int) -> Iterator[Finding]:
    """Yield a finding if ranks that take turns at being late take a notable share of the step."""
    time_ns = causes.get(StepCause(cause="variation"), 0)
    share = time_ns / max(step_ns, 1)
    yield late_by_turns(
        severity="info",
        cause="variation",
        time_ns=time_ns,
        evidence={"variation_ns": time_ns, "share": share, "no_replay": "no change of one rank or link removes it"},
        conditions=[NOTABLE_SHARE.reached_by(share)],
    )
