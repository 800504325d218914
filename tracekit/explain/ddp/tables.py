"""Which columns the tables of DDP's buckets have, and what is kept of each rank's gradients for them.

A rank keeps its DDP modules, the reductions of their buckets, and the gradients that it reduced by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.model.columnar import Columnar
from tracekit.model.events import Bool, Int32, Int64
from tracekit.model.metadata import DdpModule
from tracekit.model.summary import Part, table_part
from tracekit.model.table import RANK, Column, Display, Table

_BUCKET = (
    Column("module", "str", "", "Name of the DDP module."),
    Column("index", "int", "", "Place in the order of launch; -1: all gradients at once, before rebuilding."),
)
BUCKET_MAP = Table(
    "bucket_map",
    (
        *_BUCKET,
        Column("size_bytes", "int", "bytes", "Size of the bucket."),
        Column("dtype", "str", "", "Data type of its gradients."),
        Column("parameters", "list[str]?", "", "Qualified names of its parameters."),
        Column("inferred", "bool", "", "Whether the bucket was inferred from the order and sizes of all-reduces."),
    ),
)
BUCKETS = Table(
    "buckets",
    (
        RANK,
        Column("step", "int", "", "Number of the step, as recorded."),
        *_BUCKET,
        Column("turn", "int", "", "How many times the module reduced before in the step."),
        Column("ready_ns", "int", "ns", "When its last gradient was there, from the step's start."),
        Column("launch_ns", "int", "ns", "When it was launched, from the step's start."),
        Column("start_ns", "int", "ns", "When its reduction began, from the step's start."),
        Column("end_ns", "int", "ns", "When its reduction ended, from the step's start."),
        Column("uncovered_ns", "int", "ns", "How much of its reduction no compute covers."),
        Column("added_ns", "int", "ns", "Of that what lies after the end of all reductions before it: adds up."),
        Column("busbw_bps", "float?", "B/s", "Bus bandwidth of its transfer, from the last rank's arrival on."),
    ),
)
BUCKETS_BY_INDEX = Table(
    "buckets_by_index",
    (
        *_BUCKET,
        Column("ready_ns", "float", "ns", "From the step's start; like what follows mean over ranks and steps."),
        Column("queued_ns", "float", "ns", "From its launch to its start."),
        Column("total_ns", "float", "ns", "From its start to its end, waiting for other ranks included."),
        Column("uncovered_ns", "float", "ns", "How much of that no compute covers."),
        Column("added_ns", "float", "ns", "Of that what lies after the end of all reductions before it: adds up."),
        Column("busbw_bps", "float?", "B/s", "Median bus bandwidth.", digits=2),
        Column("worst_rank", "int", "", "Rank with most of it."),
        Column("worst_uncovered_ns", "float", "ns", "How much, mean over its steps."),
    ),
)
BUCKETS_SHOWN = Table(
    "buckets_shown",
    (
        *BUCKET_MAP.columns,
        *BUCKETS_BY_INDEX.columns[len(_BUCKET) :],
        Column("params", "int?", "", "How many parameters it has."),
    ),
    Display(
        "DDP buckets, in order of launch (ms; ready: from the step's start){more}",
        "module? | first parameter=first | bucket=index | params | size_bytes | ready_ns? | queued_ns? "
        "| took=total_ns? | uncovered_ns? | bus GB/s=busbw_bps?",
        most=16,
    ),
)
"""What people see of buckets: what is in them, with their times where these are known."""
BUCKET_WHATIF = Table(
    "bucket_whatif",
    (
        Column("bucket_cap_mb", "float", "MiB", "Limit of the size of a bucket, as DDP's option of that name."),
        Column("buckets", "int", "", "How many buckets it makes."),
        Column("uncovered_ns", "int", "ns", "What no compute covers, a step: median over steps, mean over ranks."),
        Column("error_ns", "int", "ns", "What that may be off."),
        Column("saving_ns", "int", "ns", "How much sooner than now the last rank has its gradients back."),
        Column("present", "bool", "", "Whether this is the run's limit; its buckets are replayed like the others."),
    ),
)

WHOLE = -1
"""As an index: not one bucket, but all of them."""


@dataclass(frozen=True, kw_only=True)
class DdpModules:
    """The rank's DDP modules.

    Attributes:
        inferred: whether they were inferred from the order and sizes of all-reduces.
    """

    modules: tuple[DdpModule, ...] = ()
    inferred: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class BucketReductions(Columnar):
    """n reductions of one rank, in order of launch. Points of time are on the rank's wall clock.

    Attributes:
        module: int32 [n], the bucket's module, an index into the rank's DDP modules.
        index: int32 [n], the bucket's index. `WHOLE` means all gradients at once, as before the buckets were rebuilt.
        step: int64 [n].
        backward_pass: int32 [n], how many times the module has reduced before in the step.
        ready_ns: int64 [n], when the last gradient before the launch was computed.
        launch_ns: int64 [n].
        start_ns: int64 [n].
        end_ns: int64 [n].
        uncovered_ns: int64 [n], how much of start to end no compute covers.
        added_ns: int64 [n], the part of `uncovered_ns` after the end of every earlier reduction. A sum over reductions
            counts no time twice.
        size_bytes: int64 [n], as transferred.
    """

    module: Int32
    index: Int32
    step: Int64
    backward_pass: Int32
    ready_ns: Int64
    launch_ns: Int64
    start_ns: Int64
    end_ns: Int64
    uncovered_ns: Int64
    added_ns: Int64
    size_bytes: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientTimes(Columnar):
    """n gradients of one rank, in the order of time, of the backward passes that reduce.

    Attributes:
        module: int32 [n], an index into the rank's DDP modules.
        step: int64 [n].
        backward_pass: int32 [n], how many times the module has reduced before in the step.
        parameter: int32 [n], its index in the list of the module's buckets, one bucket after the other.
        ready_ns: int64 [n], when the gradient was in its bucket, on the rank's wall clock.
        back_ns: int64 [n], how long the copy back out of the bucket took, after the reduction.
        elements: int64 [n].
        compute_ns: int64 [n], how long the rank computed since the first gradient of the backward pass.
    """

    module: Int32
    step: Int64
    backward_pass: Int32
    parameter: Int32
    ready_ns: Int64
    back_ns: Int64
    elements: Int64
    compute_ns: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class ManualReductions(BucketReductions):
    """n reductions by which one rank's training loop averages gradients by hand, in order of launch.

    They are as those of one module. `index` counts the reductions of a backward pass.

    Attributes:
        backward_pass: int32 [n], the number of the latest backward pass in the step; -1 where its gradients are not
            known one by one, or are not what is reduced.
        in_backward: bool [n], whether a backward pass was running at the launch.
        parameters: int32 [n], how many parameters the loop reduces the gradients of; 0 where that is not known.
    """

    in_backward: Bool
    parameters: Int32


@dataclass(frozen=True, kw_only=True, eq=False)
class EarlyReductions(Columnar):
    """n reductions of gradients that a later micro-batch of the same update repeats, in order of launch.

    Attributes:
        launch_ns: int64 [n], as in `Collectives`.
        step: int64 [n].
        backward_passes: int32 [n], how many reduce the same before the update.
        exposed_ns: int64 [n].
    """

    launch_ns: Int64
    step: Int64
    backward_passes: Int32
    exposed_ns: Int64


@dataclass(frozen=True, kw_only=True)
class DdpPasses:
    """Forward passes of DDP modules in the complete steps."""

    forwards: int = 0

    def __add__(self, other: DdpPasses) -> DdpPasses:
        return DdpPasses(forwards=self.forwards + other.forwards)


def _last_known(windows: Sequence[DdpModules]) -> DdpModules:
    """Return the modules of the last window that has any: DDP rebuilds its buckets after the first steps."""
    return next((window for window in reversed(windows) if window.modules), DdpModules())


DDP_MODULES = Part(name="ddp_modules", type=DdpModules, empty=DdpModules, merge=_last_known)


DDP_PASSES: Part[DdpPasses] = Part(
    name="ddp_passes", type=DdpPasses, empty=DdpPasses, merge=lambda windows: sum(windows, DdpPasses())
)


BUCKET_REDUCTIONS = table_part("bucket_reductions", BucketReductions)
GRADIENT_TIMES = table_part("gradient_times", GradientTimes)
EARLY_REDUCTIONS = table_part("early_reductions", EarlyReductions)
MANUAL_REDUCTIONS = table_part("manual_reductions", ManualReductions)
MANUAL_GRADIENT_TIMES = table_part("manual_gradient_times", GradientTimes)
