"""A run to a report: the sections that were asked for.

Comes in: a `Run`. Goes out: a `Report`, which renderers draw. Each section is one analysis, `Run -> result`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

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
from tracekit.analysis.summarize import SummaryOptions
from tracekit.analysis.tensor import Tensor, tensor
from tracekit.analysis.whatif import WhatIf, what_if_of_run
from tracekit.analysis.whatif_findings import whatif_findings
from tracekit.errors import UsageError
from tracekit.model.links import LinkMeasurements
from tracekit.model.run import Finding, Run
from tracekit.read.cache import CacheChoice

__all__ = ["SECTIONS", "Report", "analyze", "wanted_sections"]

T = TypeVar("T")

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


def wanted_sections(only: str | Iterable[str] | None) -> frozenset[str] | None:
    """The names in `only`; None: all. Raises UsageError for a name that is no section."""
    if only is None:
        return None
    wanted = frozenset((only,) if isinstance(only, str) else only)
    if unknown := wanted - set(SECTIONS):
        raise UsageError(f"no section {', '.join(sorted(unknown))}", hint=f"there are {', '.join(SECTIONS)}")
    return wanted


def analyze(
    run: Run | Paths,
    *,
    only: str | Iterable[str] | None = None,
    links: LinkMeasurements | str | os.PathLike[str] | None = None,
    work: KnownWork | None = None,
    executor: Executor | None = None,
    cache: CacheChoice = False,
) -> Report:
    """Analyse a run, or the newest run below the given paths; `only` names sections (all of `SECTIONS` by default);
    `links` is a result of `tracekit links`, or its file, to compare transfers with; `work`: what is known of the
    model's operations and the device's peak; `executor` and `cache` are `load`'s, of no use with a run that is loaded.

    Raises UsageError for a name that is no section, and whatever `load` raises.
    """
    wanted = wanted_sections(only)
    asked = frozenset(SECTIONS) if wanted is None else wanted
    if links is not None and not isinstance(links, LinkMeasurements):
        links = read_links(Path(links))
    if not isinstance(run, Run):
        run = load(run, options=SummaryOptions(sections=wanted), executor=executor, cache=cache)
    if run.sections is not None and (lacking := asked - run.sections):
        hint = f"load it with these sections too; it has {', '.join(sorted(run.sections))}"
        raise UsageError(f"the run was loaded without what {', '.join(sorted(lacking))} needs", hint=hint)
    chosen = run

    def section(name: str, analysis: Callable[[Run], T]) -> T | None:
        return analysis(chosen) if name in asked else None

    arrivals = arrivals_of(run, frozenset(counted_steps(run))) if asked & {"stragglers", "critical_path"} else None
    report = Report(
        run=run,
        breakdown=section("breakdown", breakdown),
        overlap=section("overlap", overlap),
        collectives=section("collectives", partial(collective_times, links=links)),
        phases=section("phases", step_phases),
        memory=section("memory", memory),
        buckets=section("buckets", buckets),
        fsdp=section("fsdp", fsdp),
        tensor=section("tensor", tensor),
        expert_load=section("tensor", expert_load),
        pipeline=section("pipeline", pipeline),
        dimensions=section("dimensions", mesh_dimensions),
        roofline=section("roofline", partial(roofline, known=work)),
        rpc=section("rpc", rpc),
        stragglers=section("stragglers", partial(stragglers, arrivals=arrivals)),
        critical_path=None if arrivals is None else section("critical_path", partial(critical_path, arrivals=arrivals)),
        whatif=section("whatif", what_if_of_run),
        sections=asked,
        findings=(),
    )
    return replace(report, findings=tuple(_findings(report)))


def _findings(report: Report) -> list[Finding]:
    """Of all sections, the gravest first, and of these the one that would save most."""
    run = report.run
    sections = (
        *(report.breakdown, report.stragglers, report.phases, report.overlap, report.collectives, report.pipeline),
        *(report.buckets, report.rpc, report.dimensions, report.roofline, report.fsdp, report.expert_load),
    )
    findings = [finding for section in sections if section is not None for finding in section.findings]
    if report.overlap is not None:
        findings += manual_data_parallel(run)
    if not findings and report.breakdown is not None:
        findings.append(nothing_notable(run))
    if report.whatif is not None:
        findings += whatif_findings(run, report.whatif, report.pipeline.uneven_stage if report.pipeline else None)
    findings += overhead_findings(run)
    severity = ("error", "warning", "info")
    return sorted(findings, key=lambda f: (severity.index(f.severity), -(f.saving_ns or 0)))
