"""The section on data parallelism: DDP's buckets, and gradients that are averaged by hand."""

from __future__ import annotations

from tracekit.analysis.ddp import columns
from tracekit.analysis.ddp.buckets import Buckets, buckets
from tracekit.analysis.ddp.parts import (
    ACCUMULATED_GRADIENTS,
    BUCKET_REDUCTIONS,
    DDP_MODULES,
    DDP_PASSES,
    GRADIENT_TIMES,
    MANUAL_GRADIENTS,
    MANUAL_REDUCTIONS,
    AccumulatedGradients,
    BucketReductions,
    DdpModules,
    DdpPasses,
    GradientSum,
    GradientTimes,
    ManualReductions,
)
from tracekit.analysis.ddp.per_rank.bucket_reductions import Reductions, bucket_reductions, gradient_reductions
from tracekit.analysis.ddp.per_rank.gradient_times import gradient_times
from tracekit.analysis.ddp.per_rank.inferred_buckets import inferred_modules
from tracekit.analysis.ddp.per_rank.manual_gradients import gradient_sums
from tracekit.analysis.ddp.per_rank.manual_passes import manual_passes
from tracekit.analysis.ddp.per_rank.passes import ddp_passes
from tracekit.analysis.section import Section
from tracekit.analysis.timeline.recorded_steps import RecordedSteps

__all__ = ["BUCKETS_SECTION"]

_MANUAL = (MANUAL_GRADIENTS, ACCUMULATED_GRADIENTS, MANUAL_REDUCTIONS)


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


def _manual_gradients(recorded: RecordedSteps) -> tuple[GradientSum, ...]:
    return tuple(gradient_sums(recorded.trace, recorded.lanes, recorded.phases, recorded.steps))


def _manual_passes(recorded: RecordedSteps) -> tuple[AccumulatedGradients, ManualReductions]:
    return manual_passes(recorded.trace, recorded.lanes, recorded.phases)


BUCKETS_SECTION: Section[Buckets] = Section(
    name="buckets",
    reads=(DDP_MODULES, DDP_PASSES, BUCKET_REDUCTIONS, GRADIENT_TIMES, *_MANUAL),
    keeps={
        DDP_MODULES: _modules,
        DDP_PASSES: _passes,
        BUCKET_REDUCTIONS: _bucket_reductions,
        GRADIENT_TIMES: _gradient_times,
        MANUAL_GRADIENTS: _manual_gradients,
        ACCUMULATED_GRADIENTS: lambda recorded: recorded.once(_manual_passes)[0],
        MANUAL_REDUCTIONS: lambda recorded: recorded.once(_manual_passes)[1],
    },
    analyze=lambda given: buckets(given.run),
    tables=(columns.BUCKET_MAP, columns.BUCKETS, columns.BUCKETS_BY_INDEX, columns.BUCKET_WHATIF),
)
