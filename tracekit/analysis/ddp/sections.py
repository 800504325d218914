"""The section on data parallelism: DDP's buckets, and gradients that are averaged by hand."""

from __future__ import annotations

from tracekit.analysis.ddp import tables
from tracekit.analysis.ddp.buckets import Buckets, buckets
from tracekit.analysis.ddp.per_rank.bucket_reductions import Reductions, bucket_reductions, gradient_reductions
from tracekit.analysis.ddp.per_rank.gradient_times import gradient_times
from tracekit.analysis.ddp.per_rank.inferred_buckets import ddp_passes, inferred_modules
from tracekit.analysis.ddp.per_rank.manual_gradients import manual_gradients
from tracekit.analysis.ddp.tables import (
    BUCKET_REDUCTIONS,
    DDP_MODULES,
    DDP_PASSES,
    GRADIENT_TIMES,
    MANUAL_GRADIENT_TIMES,
    MANUAL_REDUCTIONS,
    BucketReductions,
    DdpModules,
    DdpPasses,
    GradientTimes,
)
from tracekit.analysis.section import Section
from tracekit.analysis.timeline.recorded_steps import RecordedSteps

__all__ = ["BUCKETS_SECTION"]


def _reductions(recorded: RecordedSteps) -> Reductions:
    return gradient_reductions(recorded.lanes, recorded.phases)


def _modules(recorded: RecordedSteps) -> DdpModules:
    metadata = recorded.trace.header.metadata
    if metadata is not None:
        return DdpModules(modules=tuple(metadata.ddp))
    modules = inferred_modules(recorded.trace, recorded.lanes, recorded.once(_reductions))
    return DdpModules(modules=modules, inferred=bool(modules))


def _passes(recorded: RecordedSteps) -> DdpPasses:
    if not recorded.once(_modules).modules:
        return DdpPasses()
    return ddp_passes(recorded.trace, recorded.lanes, recorded.steps)


def _bucket_reductions(recorded: RecordedSteps) -> BucketReductions:
    modules = recorded.once(_modules).modules
    return bucket_reductions(recorded.trace, recorded.lanes, recorded.once(_reductions), modules)


def _gradient_times(recorded: RecordedSteps) -> GradientTimes:
    modules = recorded.once(_modules).modules
    return gradient_times(recorded.trace, recorded.lanes, recorded.once(_bucket_reductions), modules)


BUCKETS_SECTION: Section[Buckets] = Section(
    name="buckets",
    reads=(DDP_MODULES, DDP_PASSES, BUCKET_REDUCTIONS, GRADIENT_TIMES, MANUAL_REDUCTIONS, MANUAL_GRADIENT_TIMES),
    keeps={
        DDP_MODULES: _modules,
        DDP_PASSES: _passes,
        BUCKET_REDUCTIONS: _bucket_reductions,
        GRADIENT_TIMES: _gradient_times,
        MANUAL_REDUCTIONS: lambda recorded: recorded.once(manual_gradients)[0],
        MANUAL_GRADIENT_TIMES: lambda recorded: recorded.once(manual_gradients)[1],
    },
    analyze=lambda given: buckets(given.run),
    tables=(tables.BUCKET_MAP, tables.BUCKETS, tables.BUCKETS_BY_INDEX, tables.BUCKET_WHATIF),
)
