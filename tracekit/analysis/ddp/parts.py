"""What is kept of one rank's gradients: its DDP modules, the reductions of their buckets, gradients reduced by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tracekit.model.columnar import Columnar
from tracekit.model.events import Int32, Int64
from tracekit.model.metadata import DdpModule
from tracekit.model.summary import Part

__all__ = [
    "BUCKET_REDUCTIONS",
    "DDP_MODULES",
    "DDP_PASSES",
    "GRADIENT_TIMES",
    "MANUAL_GRADIENTS",
    "WHOLE",
    "BucketReductions",
    "DdpModules",
    "DdpPasses",
    "GradientSum",
    "GradientTimes",
]

WHOLE = -1
"""As an index: not one bucket, but all of them."""


@dataclass(frozen=True, kw_only=True)
class DdpModules:
    """The rank's DDP modules.

    Attributes:
        inferred: from the order and sizes of all-reduces.
    """

    modules: tuple[DdpModule, ...] = ()
    inferred: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class BucketReductions(Columnar):
    """n reductions of one rank, in order of launch.

    module, index: int32 [n], of the bucket among the rank's DDP modules; index -1: all gradients at once, as before the
    buckets were rebuilt. step: int64 [n]. turn: int32 [n], how many
    times the module has reduced before in the step. On the rank's wall clock, int64 [n]: ready_ns, when the last
    gradient before the launch was there, launch_ns, start_ns, end_ns. exposed_ns: int64 [n], how much of start to end
    no compute covers. added_ns: int64 [n], of that what lies after the end of every reduction before it, so that the
    sum over reductions counts no time twice. size_bytes: int64 [n], as they travel.
    """

    module: Int32
    index: Int32
    step: Int64
    backward_pass: Int32
    ready_ns: Int64
    launch_ns: Int64
    start_ns: Int64
    end_ns: Int64
    exposed_ns: Int64
    added_ns: Int64
    size_bytes: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientTimes(Columnar):
    """n gradients of one rank, in the order in which they came, of the backward passes that reduce.

    module: int32 [n], among the rank's DDP modules. step: int64 [n]. turn: int32 [n], of the module's reductions in the
    step. place: int32 [n], of the parameter among those of the module's buckets, one bucket after the other. ready_ns:
    int64 [n], when the gradient was in its bucket, on the rank's wall clock. copy_ns: int64 [n], how long the copy into
    the bucket took, and back_ns: int64 [n], the one back out of it when it was reduced. elements: int64 [n].
    compute_ns: int64 [n], how much of the time since the turn's first gradient the rank computed.
    """

    module: Int32
    step: Int64
    backward_pass: Int32
    place: Int32
    ready_ns: Int64
    copy_ns: Int64
    back_ns: Int64
    elements: Int64
    compute_ns: Int64


@dataclass(frozen=True, kw_only=True)
class GradientSum:
    """Collectives by which a training loop reduced its gradients by hand in one step: how many, and how many of them
    were issued while a backward pass was running. `hideable_ns`: of their exposed time what the backward pass could
    cover. `parameters`: whose gradients these were, where that is known of each.
    """

    step: int
    count: int
    in_backward: int
    exposed_ns: int
    hideable_ns: int
    parameters: int | None


@dataclass(frozen=True, kw_only=True)
class DdpPasses:
    """Forward passes of DDP modules, and calls of optimizers, in the complete steps."""

    forwards: int = 0
    updates: int = 0

    def __add__(self, other: DdpPasses) -> DdpPasses:
        return DdpPasses(forwards=self.forwards + other.forwards, updates=self.updates + other.updates)


def _last_known(windows: Sequence[DdpModules]) -> DdpModules:
    """DDP builds its buckets anew after the first steps."""
    return next((window for window in reversed(windows) if window.modules), DdpModules())


DDP_MODULES = Part(name="ddp_modules", type=DdpModules, empty=DdpModules, merge=_last_known)
DDP_PASSES: Part[DdpPasses] = Part(
    name="ddp_passes", type=DdpPasses, empty=DdpPasses, merge=lambda windows: sum(windows, DdpPasses())
)
BUCKET_REDUCTIONS = Part(
    name="bucket_reductions", type=BucketReductions, empty=BucketReductions.empty, merge=BucketReductions.concatenate
)
GRADIENT_TIMES = Part(
    name="gradient_times", type=GradientTimes, empty=GradientTimes.empty, merge=GradientTimes.concatenate
)
MANUAL_GRADIENTS: Part[tuple[GradientSum, ...]] = Part(
    name="manual_gradients",
    type=tuple[GradientSum, ...],
    empty=tuple,
    merge=lambda windows: tuple(chain.from_iterable(windows)),
)
