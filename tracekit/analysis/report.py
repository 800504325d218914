"""A run to a report: the sections that were asked for.

Comes in: a `Run`. Goes out: a `Report`, which renderers draw. Each section is one analysis, `Run -> result`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tracekit.analysis.breakdown import Breakdown, breakdown, nothing_notable
from tracekit.analysis.buckets import Buckets, buckets
from tracekit.analysis.fsdp import Fsdp, fsdp
from tracekit.analysis.load import Paths, load
from tracekit.analysis.manual_data_parallel import manual_data_parallel
from tracekit.analysis.memory import Memory, memory
from tracekit.analysis.overhead import overhead_findings
from tracekit.analysis.overlap import Overlap, overlap
from tracekit.analysis.pipeline import Pipeline, pipeline
from tracekit.analysis.rpc import Rpc, rpc
from tracekit.analysis.step_phases import StepPhases, step_phases
from tracekit.analysis.tensor import Tensor, tensor
from tracekit.errors import UsageError
from tracekit.model.run import Finding, Run

__all__ = ["SECTIONS", "Report", "analyze"]

SECTIONS = ("breakdown", "phases", "memory", "overlap", "buckets", "fsdp", "tensor", "pipeline", "rpc")


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of an analysis; a section that was not asked for (is not in `sections`) is None, and so is `pipeline`
    of a run without one. `findings`: the most worthwhile first.
    """

    run: Run
    breakdown: Breakdown | None
    overlap: Overlap | None
    phases: StepPhases | None
    memory: Memory | None
    buckets: Buckets | None
    fsdp: Fsdp | None
    tensor: Tensor | None
    pipeline: Pipeline | None
    rpc: Rpc | None
    sections: frozenset[str]
    findings: tuple[Finding, ...]


def analyze(run: Run | Paths, *, only: str | Iterable[str] | None = None) -> Report:
    """Analyse a run, or the newest run below the given paths; `only` names sections (all of `SECTIONS` by default).

    Raises UsageError for a name that is no section, and whatever `load` raises.
    """
    wanted = {only} if isinstance(only, str) else set(SECTIONS if only is None else only)
    if unknown := wanted - set(SECTIONS):
        raise UsageError(f"no section {', '.join(sorted(unknown))}", hint=f"there are {', '.join(SECTIONS)}")
    if not isinstance(run, Run):
        run = load(run)
    breakdown_result = breakdown(run) if "breakdown" in wanted else None
    phases_result = step_phases(run) if "phases" in wanted else None
    overlap_result = overlap(run) if "overlap" in wanted else None
    rpc_result = rpc(run) if "rpc" in wanted else None
    with_findings = (breakdown_result, phases_result, overlap_result, rpc_result)
    findings = [f for section in with_findings if section is not None for f in section.findings]
    if overlap_result is not None:
        findings += manual_data_parallel(run)
    if not findings and breakdown_result is not None:
        findings.append(nothing_notable(run))
    findings += overhead_findings(run)
    severity = ("error", "warning", "info")
    findings.sort(key=lambda f: (severity.index(f.severity), -(f.saving_ns or 0)))
    return Report(
        run=run,
        breakdown=breakdown_result,
        overlap=overlap_result,
        phases=phases_result,
        memory=memory(run) if "memory" in wanted else None,
        buckets=buckets(run) if "buckets" in wanted else None,
        fsdp=fsdp(run) if "fsdp" in wanted else None,
        tensor=tensor(run) if "tensor" in wanted else None,
        pipeline=pipeline(run) if "pipeline" in wanted else None,
        rpc=rpc_result,
        sections=frozenset(wanted),
        findings=tuple(findings),
    )
