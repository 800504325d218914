"""A run to a report: the sections that were asked for.

Comes in: a `Run`. Goes out: a `Report`, which renderers draw. Each section is one analysis, `Run -> result`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tracekit.analysis.arrivals import arrivals_of
from tracekit.analysis.breakdown import Breakdown, breakdown, nothing_notable
from tracekit.analysis.buckets import Buckets, buckets
from tracekit.analysis.collectives import CollectiveTimes, collective_times
from tracekit.analysis.critical_path import CriticalPath, critical_path
from tracekit.analysis.expert_load import ExpertLoad, expert_load
from tracekit.analysis.fsdp import Fsdp, fsdp
from tracekit.analysis.link_comparison import read_links
from tracekit.analysis.load import Paths, load
from tracekit.analysis.manual_data_parallel import manual_data_parallel
from tracekit.analysis.memory import Memory, memory
from tracekit.analysis.mesh_dimensions import MeshDimensions, mesh_dimensions
from tracekit.analysis.overhead import overhead_findings
from tracekit.analysis.overlap import Overlap, overlap
from tracekit.analysis.pipeline import Pipeline, pipeline
from tracekit.analysis.roofline import KnownWork, Roofline, roofline
from tracekit.analysis.rpc import Rpc, rpc
from tracekit.analysis.step_phases import StepPhases, step_phases
from tracekit.analysis.stragglers import Stragglers, counted_steps, stragglers
from tracekit.analysis.tensor import Tensor, tensor
from tracekit.analysis.whatif import WhatIf, what_if_of_run
from tracekit.analysis.whatif_findings import whatif_findings
from tracekit.errors import UsageError
from tracekit.model.links import LinkMeasurements
from tracekit.model.run import Finding, Run

__all__ = ["SECTIONS", "Report", "analyze"]

SECTIONS = (
    *("breakdown", "phases", "memory", "overlap", "collectives", "buckets", "fsdp", "tensor", "pipeline", "rpc"),
    *("dimensions", "roofline", "stragglers", "critical_path", "whatif"),
)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of an analysis; a section that was not asked for (is not in `sections`) is None, and so is `pipeline`
    of a run without one. `findings`: the most worthwhile first.
    """

    run: Run
    breakdown: Breakdown | None
    overlap: Overlap | None
    collectives: CollectiveTimes | None
    phases: StepPhases | None
    memory: Memory | None
    buckets: Buckets | None
    fsdp: Fsdp | None
    tensor: Tensor | None
    expert_load: ExpertLoad | None
    pipeline: Pipeline | None
    dimensions: MeshDimensions | None
    roofline: Roofline | None
    rpc: Rpc | None
    stragglers: Stragglers | None
    critical_path: CriticalPath | None
    whatif: WhatIf | None
    sections: frozenset[str]
    findings: tuple[Finding, ...]


def analyze(
    run: Run | Paths,
    *,
    only: str | Iterable[str] | None = None,
    links: LinkMeasurements | str | os.PathLike[str] | None = None,
    work: KnownWork | None = None,
) -> Report:
    """Analyse a run, or the newest run below the given paths; `only` names sections (all of `SECTIONS` by default);
    `links` is a result of the bandwidth probe, or its file, to compare transfers with; `work`: what is known of the
    model's operations and the device's peak.

    Raises UsageError for a name that is no section, and whatever `load` raises.
    """
    wanted = {only} if isinstance(only, str) else set(SECTIONS if only is None else only)
    if unknown := wanted - set(SECTIONS):
        raise UsageError(f"no section {', '.join(sorted(unknown))}", hint=f"there are {', '.join(SECTIONS)}")
    if links is not None and not isinstance(links, LinkMeasurements):
        links = read_links(Path(links))
    if not isinstance(run, Run):
        run = load(run)
    breakdown_result = breakdown(run) if "breakdown" in wanted else None
    phases_result = step_phases(run) if "phases" in wanted else None
    overlap_result = overlap(run) if "overlap" in wanted else None
    collectives_result = collective_times(run, links) if "collectives" in wanted else None
    buckets_result = buckets(run) if "buckets" in wanted else None
    rpc_result = rpc(run) if "rpc" in wanted else None
    arrivals = arrivals_of(run, frozenset(counted_steps(run))) if wanted & {"stragglers", "critical_path"} else None
    stragglers_result = stragglers(run, arrivals) if arrivals is not None and "stragglers" in wanted else None
    pipeline_result = pipeline(run) if "pipeline" in wanted else None
    dimensions_result = mesh_dimensions(run) if "dimensions" in wanted else None
    roofline_result = roofline(run, work) if "roofline" in wanted else None
    fsdp_result = fsdp(run) if "fsdp" in wanted else None
    expert_result = expert_load(run) if "tensor" in wanted else None
    with_findings = (
        *(breakdown_result, stragglers_result, phases_result, overlap_result, collectives_result, pipeline_result),
        *(buckets_result, rpc_result, dimensions_result, roofline_result, fsdp_result, expert_result),
    )
    findings = [f for section in with_findings if section is not None for f in section.findings]
    if overlap_result is not None:
        findings += manual_data_parallel(run)
    if not findings and breakdown_result is not None:
        findings.append(nothing_notable(run))
    whatif_result = what_if_of_run(run) if "whatif" in wanted else None
    uneven = None if pipeline_result is None else pipeline_result.uneven_stage
    findings += [] if whatif_result is None else whatif_findings(run, whatif_result, uneven)
    findings += overhead_findings(run)
    severity = ("error", "warning", "info")
    findings.sort(key=lambda f: (severity.index(f.severity), -(f.saving_ns or 0)))
    return Report(
        run=run,
        breakdown=breakdown_result,
        overlap=overlap_result,
        collectives=collectives_result,
        phases=phases_result,
        memory=memory(run) if "memory" in wanted else None,
        buckets=buckets_result,
        fsdp=fsdp_result,
        tensor=tensor(run) if "tensor" in wanted else None,
        expert_load=expert_result,
        pipeline=pipeline_result,
        dimensions=dimensions_result,
        roofline=roofline_result,
        rpc=rpc_result,
        stragglers=stragglers_result,
        critical_path=critical_path(run, arrivals) if arrivals is not None and "critical_path" in wanted else None,
        whatif=whatif_result,
        sections=frozenset(wanted),
        findings=tuple(findings),
    )
