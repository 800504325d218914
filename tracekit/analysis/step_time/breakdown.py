"""Where the time of each rank and step goes: compute, exposed communication, exposed copies, idle."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tracekit.analysis.step_time import columns
from tracekit.analysis.step_time.parts import NAMED_WAITS, PHASE_SUMS
from tracekit.analysis.step_time.savings import saving_without_ns
from tracekit.analysis.table import Frame
from tracekit.model.run import Finding, Run
from tracekit.model.summary import RankSummary

__all__ = ["Breakdown", "breakdown", "nothing_notable"]

_PARTS = ("step_ns", "compute_ns", "comm_ns", "overlapped_comm_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
_NOTABLY_IDLE = 0.2  # of a step
_NOTABLE = 0.05  # of a step


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """The parts of all steps.

    Attributes:
        ranks: rows of columns.RANKS, sums over complete steps.
        steps: rows of columns.STEPS.
    """

    ranks: Frame = Frame(columns.RANKS)
    steps: Frame = Frame(columns.STEPS)
    findings: tuple[Finding, ...]


def breakdown(run: Run) -> Breakdown:
    """Return tables over all ranks, and a finding when they are idle."""
    ranks = [_rank_row(summary) for summary in run.ranks]
    steps = [
        {"rank": summary.rank, "step": step.step, "start_ns": step.start_ns, "complete": step.complete}
        | {"data_ns": step.data_ns}
        | {part: getattr(step, part) for part in _PARTS}
        | {"overlap_ratio": _ratio(step.overlapped_comm_ns, step.comm_ns)}
        for summary in run.ranks
        for step in summary.steps
    ]
    return Breakdown(
        ranks=ranks,
        steps=steps,
        findings=tuple(_idle(run)),
    )


def _rank_row(summary: RankSummary) -> dict[str, object]:
    complete = [step for step in summary.steps if step.complete]
    sums = {part: sum(getattr(step, part) for step in complete) for part in _PARTS}
    ratio = _ratio(sums["overlapped_comm_ns"], sums["comm_ns"])
    return {"rank": summary.rank, "steps": len(complete), **sums, "overlap_ratio": ratio}


def _ratio(overlapped_ns: int, comm_ns: int) -> float | None:
    return overlapped_ns / comm_ns if comm_ns else None


def _idle(run: Run) -> list[Finding]:
    """Find time in which the ranks neither compute, communicate nor copy.

    Loading data and named waits have separate findings.
    """
    steps = [step for summary in run.ranks for step in summary.steps if step.complete]
    data_idle_ns = sum(
        part.idle_ns for summary in run.ranks for part in summary[PHASE_SUMS].parts if part.phase == "data"
    )
    waits_ns = Counter[str]()
    for summary in run.ranks:
        waits_ns.update({wait.what: wait.total_ns for wait in summary[NAMED_WAITS]})
    named_ns = waits_ns.total()
    step_ns, idle_ns = (
        sum(step.step_ns for step in steps),
        sum(step.idle_ns for step in steps) - data_idle_ns - named_ns,
    )
    if not step_ns or idle_ns < _NOTABLY_IDLE * step_ns:
        return []
    what = {"gpu": "nothing runs on the GPU", "cpu": "no operator and no communication runs", "mixed": "nothing runs"}
    text = f"{what[run.device]} for {idle_ns / step_ns:.0%} of the step ({idle_ns / len(steps) / 1e6:.1f} ms)"
    if data_idle_ns >= _NOTABLE * step_ns:
        text += ", data loading aside"
    for waited_for, wait_ns in waits_ns.items():
        if wait_ns >= _NOTABLE * step_ns:
            text += f", waits for {waited_for} aside"
    saving_ns = saving_without_ns(run, "idle_ns")
    if saving_ns is not None:
        saving_ns = max(saving_ns - (data_idle_ns + named_ns) // len(steps), 0)
    evidence = {"idle_share": idle_ns / step_ns, "data_idle_ns": data_idle_ns // len(steps)}
    return [Finding(severity="warning", text=text, saving_ns=saving_ns, evidence=evidence)]


def nothing_notable(run: Run) -> Finding:
    """Return the verdict when no analysis has a finding."""
    steps = [step for summary in run.ranks for step in summary.steps if step.complete]
    step_ns = sum(step.step_ns for step in steps)
    if not step_ns:
        return Finding(severity="warning", text="no step is complete, so nothing can be said about where time goes")
    compute_ns = sum(step.compute_ns for step in steps)
    text = (
        f"nothing stands out: compute takes {compute_ns / step_ns:.0%} of the step "
        f"({compute_ns / len(steps) / 1e6:.1f} of {step_ns / len(steps) / 1e6:.1f} ms)"
    )
    return Finding(severity="info", text=text, evidence={"compute_share": compute_ns / step_ns})
