"""Which columns the tables of a rank's time and memory have, and what is kept of each rank's steps for them.

A rank keeps causes of idle time, phases, floating-point work, memory, and the cost of recording.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Literal

from tracekit.explain.section import Unavailable
from tracekit.model.metadata import MemoryUse, Precision
from tracekit.model.summary import Part, merge_sums, sums_part
from tracekit.model.table import RANK, Column, Display, Table
from tracekit.rank.phases import STEP_PHASES

_PARTS = (
    Column("step_ns", "int", "ns", "Length of the window: compute + exposed_comm + exposed_copy + idle, exactly."),
    Column("compute_ns", "int", "ns", "Time covered by compute."),
    Column("comm_ns", "int", "ns", "Time covered by communication."),
    Column("overlapped_comm_ns", "int", "ns", "Communication under compute."),
    Column("exposed_comm_ns", "int", "ns", "Communication that no compute covers."),
    Column("exposed_copy_ns", "int", "ns", "Copies that neither compute nor communication cover."),
    Column("idle_ns", "int", "ns", "Time that no lane covers, measured as gaps."),
    Column("overlap_ratio", "float?", "ratio", "overlapped_comm / comm; null without communication.", digits=2),
)
RANKS = Table(
    "ranks",
    (RANK, Column("steps", "int", "", "Complete steps that the sums are over."), *_PARTS),
    Display(
        "Where each rank's time goes (ms a step, mean of its complete steps)",
        "rank | {step_ns/steps} | {compute_ns/steps} {compute_ns%step_ns} "
        "| {exposed_comm_ns/steps} {exposed_comm_ns%step_ns} "
        "| {exposed_copy_ns/steps} {exposed_copy_ns%step_ns} | {idle_ns/steps} {idle_ns%step_ns} "
        "| overlap_ratio",
        bars="compute={compute_ns/steps} | exposed communication={exposed_comm_ns/steps} "
        "| exposed copies={exposed_copy_ns/steps} | idle={idle_ns/steps}",
    ),
)
STEPS = Table(
    "steps",
    (
        RANK,
        Column("step", "int", "", "Number of the step, as recorded."),
        Column("start_ns", "int", "ns", "Begin of the window, on the rank's wall clock."),
        Column("complete", "bool", "", "Whether the step was closed and its device events recorded."),
        Column("data_ns", "int?", "ns", "Time in the wrapped data iterator; null when none was wrapped."),
        *_PARTS,
    ),
)
_CAUSE = Column(
    "cause",
    "str",
    "",
    "host_bound, kernel_gap, synchronisation, data, checkpoint, logging, graph_capture, allocator, garbage_collection, "
    "host_compute, between_steps or other.",
    form="words",
)
IDLE = Table(
    "idle_causes",
    (
        RANK,
        _CAUSE,
        Column("total_ns", "int", "ns", "In complete steps: the causes of a rank sum to its idle_ns."),
    ),
)
IDLE_LOCATIONS = Table(
    "idle_locations",
    (
        _CAUSE,
        Column("operator", "str?", "", "The outermost operator that hosts were in; null: they were in Python."),
        Column("annotation", "str?", "", "The innermost annotation, where there is no operator."),
        Column("source", "str?", "", "The innermost function of the program; null without recorded stacks."),
        Column("ranks", "int", "", "On how many ranks."),
        Column("total_ns", "int", "ns", "Of the longest intervals of this cause in complete steps."),
        Column("worst_rank", "int", "", "The rank with the most."),
        Column("worst_ns", "int", "ns", "Its time."),
    ),
    Display(
        "What hosts did while their ranks idled (ms a step, mean of all ranks)",
        "cause | the host was in=location | source? | time={total_ns/steps}",
        most=8,
        sort="total_ns",
    ),
)
PHASE_PARTS = ("total_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
_COUNTED = [
    "backward_passes",
    "recompute_count",
    "recompute_ns",
    "recompute_compute_ns",
    "scaled_steps",
    "skipped_steps",
]
_PHASE_PART_MEANINGS = {
    "total_ns": "Time in the phase: the phases sum to step_ns, the four parts to this.",
    "compute_ns": "Time covered by compute.",
    "exposed_comm_ns": "Communication that no compute covers.",
    "exposed_copy_ns": "Copies that neither compute nor communication cover.",
    "idle_ns": "Time that no lane covers.",
}
_STEP_PHASE = Column(
    "phase",
    "str",
    "",
    "data, forward, backward, optimizer (clipping, zero_grad ... included), evaluation, checkpoint, logging or other.",
)
PHASES = Table(
    "phases",
    (RANK, _STEP_PHASE, *(Column(part, "int", "ns", _PHASE_PART_MEANINGS[part]) for part in PHASE_PARTS)),
)
PHASES_BY_PHASE = Table(
    "phases_by_phase",
    (
        _STEP_PHASE,
        Column("ranks", "int", "", "Ranks that the means are over, and over their complete steps."),
        Column("share", "float", "ratio", "Of the mean step."),
        *(Column(part, "float", "ns", f"Mean a step. {_PHASE_PART_MEANINGS[part]}") for part in PHASE_PARTS),
        Column("worst_rank", "int", "", "The rank with the most time in the phase."),
        Column("worst_total_ns", "float", "ns", "Its time a step."),
    ),
    Display(
        "What the step does by device, of CPU ranks by host (ms a step, mean over ranks)",
        "phase | share | time=total_ns | compute_ns | exposed_comm_ns | idle_ns "
        "| most on rank={worst_rank}: {worst_total_ns}",
    ),
)
PHASE_FACTS = Table(
    "phase_facts",
    (
        RANK,
        Column("steps", "int", "", "Complete steps that the sums are over."),
        Column("backward_passes", "int?", "", "Backward passes in them; null without tracekit's capture."),
        Column("micro_steps", "float?", "", "Backward passes a step."),
        Column("recompute_count", "int?", "", "Checkpointed forwards that backward passes ran again."),
        Column("recompute_ns", "int?", "ns", "Time in them; part of backward."),
        Column("recompute_compute_ns", "int?", "ns", "The part of it covered by compute."),
        Column("scaled_steps", "int?", "", "Optimizer steps by way of a gradient scaler."),
        Column("skipped_steps", "int?", "", "Those skipped for infinite gradients; null when the device decided."),
        Column("autocast", "list[str]?", "", "Data types that autocast was used with."),
        Column("parameter_dtypes", "list[str]?", "", "Data types of parameters, the one with the most bytes first."),
    ),
)
MEMORY = Table(
    "memory",
    (
        RANK,
        Column("parameter_bytes", "int?", "bytes", "Parameters of live modules on this rank; shared ones count once."),
        Column("gradient_bytes", "int?", "bytes", "Their gradients after a backward pass."),
        Column("optimizer_bytes", "int?", "bytes", "Optimizer state, and parameters that only an optimizer has."),
        Column("peak_bytes", "int?", "bytes", "Most that the device's allocator held; of a CPU rank, the process."),
    ),
)
ROOFLINE = Table(
    "roofline",
    (
        RANK,
        Column("steps", "int", "", "Complete steps that the sums are over."),
        Column("flops", "int?", "FLOP", "Of matrix products, convolutions and attention, recomputation included."),
        Column("recomputed_flops", "int?", "FLOP", "Of forwards that backward passes ran again; null when unknown."),
        Column("recompute", "str?", "", "recorded: by the capture; inferred: by autograd numbers; null: unknown."),
        Column("lower_bound", "bool", "", "Whether some work of the kind could not be counted."),
        Column("dtypes", "list[str]", "", "Data types of it, the most first; tf32: float32 on tensor cores."),
        Column("step_ns", "int", "ns", "Length of the steps."),
        Column("compute_ns", "int", "ns", "Time covered by compute."),
        Column("flops_per_s", "float?", "FLOP/s", "By the length of the steps."),
        Column("computing_flops_per_s", "float?", "FLOP/s", "By the time covered by compute."),
        Column("peak_flops_per_s", "float?", "FLOP/s", "What its devices can do at most in these data types."),
        Column("mfu", "float?", "ratio", "flops less recomputed_flops, by what the device can do in the steps."),
        Column("hfu", "float?", "ratio", "The same with recomputation."),
    ),
)

RecomputeSource = Literal["recorded", "inferred"]

MOST_LOCATIONS = 20  # of a rank and cause


@dataclass(frozen=True, kw_only=True)
class PhasePart:
    """One phase of one rank over its complete steps. `total_ns` is the exact sum of the other four times."""

    phase: str
    total_ns: int
    compute_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    idle_ns: int


@dataclass(frozen=True, kw_only=True)
class PhaseSums:
    """What one rank did in its complete steps; None: not known.

    Attributes:
        parts: by phase.
        backward_passes: how many there were.
        recompute_count: how many checkpointed forwards the backward passes ran again.
        recompute_ns: time in these.
        recompute_compute_ns: the part of it covered by compute.
        scaled_steps: steps of a gradient scaler.
        skipped_steps: those of them that did not step their optimizer.
        precision: of the last recording that knows it.
    """

    parts: tuple[PhasePart, ...] = ()
    backward_passes: int | None = None
    recompute_count: int | None = None
    recompute_ns: int | None = None
    recompute_compute_ns: int | None = None
    scaled_steps: int | None = None
    skipped_steps: int | None = None
    precision: Precision | None = None


@dataclass(frozen=True, kw_only=True)
class FlopSum:
    """Operators of one rank on one data type, over its complete steps.

    Attributes:
        dtype: `tf32` is float32 on tensor cores.
        recomputed: whether these are forwards that a backward pass ran again.
    """

    dtype: str
    recomputed: bool
    count: int
    flops: int


@dataclass(frozen=True, kw_only=True)
class FlopSums:
    """Floating-point work of one rank over its complete steps.

    Attributes:
        uncounted: names of operators and kernels that do such work, which the rows lack.
        unavailable: why there are no rows.
        recompute: how recomputation was identified; None where there are no rows.
        scalar_float32: whether kernels multiplied float32 without tensor cores.
        devices: on how many GPUs the process computes; 1 without any.
    """

    rows: tuple[FlopSum, ...] = ()
    uncounted: tuple[str, ...] = ()
    unavailable: Unavailable | None = None
    recompute: RecomputeSource | None = None
    scalar_float32: bool = False
    devices: int = 1


@dataclass(frozen=True, kw_only=True)
class RecordingCost:
    """What recording cost this rank.

    Attributes:
        per_step_ns: mean over its steps.
        steps: over which the mean is.
        options: options of torch.profiler that were on.
    """

    per_step_ns: int
    steps: int
    options: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NamedWait:
    """Time in complete steps in which the step's thread waited for something that another section reports on.

    Attributes:
        what: as a sentence names it: "remote calls".
    """

    what: str
    total_ns: int


@dataclass(frozen=True, kw_only=True)
class UnclassifiedKernel:
    """Kernels of one function that look like communication and that no rule is for, in the complete steps of one rank.

    Attributes:
        pattern: a regular expression for their names.
        kind: what the function's name says it does, one of `KINDS`; often "unknown".
        total_ns: the union of their times.
    """

    pattern: str
    kind: str
    count: int
    total_ns: int


@dataclass(frozen=True, kw_only=True)
class HostLocation:
    """What the host was in. None: nothing of the kind is recorded.

    Attributes:
        operator: the outermost one, or the action of an optimizer.
        annotation: the innermost one, where there is no operator: then the host runs Python.
        source: the innermost function of the program's own, with the line at which it begins; without stacks None.
        total_ns: of the idle time of one cause.
    """

    operator: str | None
    annotation: str | None
    source: str | None
    total_ns: int


@dataclass(frozen=True, kw_only=True)
class IdleSum:
    """Idle time of one rank in its complete steps, of one of `rank.idle_causes.IDLE_CAUSES`.

    Attributes:
        locations: what the host was in then, the longest first. They are kept for causes that are the host's and take
            5 % of the steps or more. Of synchronisation: what called for it.
    """

    cause: str
    total_ns: int
    locations: tuple[HostLocation, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LaunchCalls:
    """Calls of one rank that launch one kernel each, which lasts long enough to show whether they block.

    Attributes:
        api: "cuda" or "hip".
        count: how many, in the complete steps.
        behind: how many ended no earlier than their kernels.
    """

    api: str
    count: int
    behind: int


def _merged_idle(windows: Sequence[tuple[IdleSum, ...]]) -> tuple[IdleSum, ...]:
    """Return the sums over all recordings of a rank, in the order of causes of the first that has any."""
    sums: Counter[str] = Counter()
    locations: dict[str, Counter[tuple[str | None, str | None, str | None]]] = defaultdict(Counter)
    for idle in (idle for window in windows for idle in window):
        sums[idle.cause] += idle.total_ns
        for location in idle.locations:
            locations[idle.cause][location.operator, location.annotation, location.source] += location.total_ns
    return tuple(
        IdleSum(
            cause=cause,
            total_ns=total_ns,
            locations=tuple(
                HostLocation(operator=operator, annotation=annotation, source=source, total_ns=location_ns)
                for (operator, annotation, source), location_ns in locations[cause].most_common(MOST_LOCATIONS)
            ),
        )
        for cause, total_ns in sums.items()
    )


def _last_known(windows: Sequence[MemoryUse | None]) -> MemoryUse | None:
    return next((memory for memory in reversed(windows) if memory is not None), None)


def _merged_costs(windows: Sequence[RecordingCost | None]) -> RecordingCost | None:
    """Return the mean over the steps of all windows that measured it."""
    measured = [window for window in windows if window is not None]
    steps = sum(window.steps for window in measured)
    if not steps:
        return None
    return RecordingCost(
        per_step_ns=sum(window.per_step_ns * window.steps for window in measured) // steps,
        steps=steps,
        options=tuple(dict.fromkeys(option for window in measured for option in window.options)),
    )


def merge_phase_sums(windows: Sequence[PhaseSums]) -> PhaseSums:
    """Return the sums over all windows of one rank. A number that one of them does not know is not known."""

    def total(name: str) -> int | None:
        values = [getattr(window, name) for window in windows]
        return None if None in values else sum(values)

    parts: dict[str, Counter[str]] = {phase: Counter() for phase in STEP_PHASES}
    for window in windows:
        for part in window.parts:
            parts[part.phase].update({field: getattr(part, field) for field in PHASE_PARTS})
    return PhaseSums(
        parts=tuple(PhasePart(phase=phase, **{f: sums[f] for f in PHASE_PARTS}) for phase, sums in parts.items()),
        **{name: total(name) for name in _COUNTED},
        precision=next((window.precision for window in reversed(windows) if window.precision is not None), None),
    )


def merge_flop_sums(windows: Sequence[FlopSums]) -> FlopSums:
    """Return the sums over all windows of one rank. A number that one of them does not know is not known."""
    if unavailable := next((window.unavailable for window in windows if window.unavailable is not None), None):
        return FlopSums(unavailable=unavailable)
    rows = merge_sums(
        chain.from_iterable(window.rows for window in windows), key=("dtype", "recomputed"), amounts=("count", "flops")
    )
    return FlopSums(
        rows=tuple(sorted(rows, key=attrgetter("dtype", "recomputed"))),
        uncounted=tuple(sorted({name for window in windows for name in window.uncounted})),
        recompute=next((window.recompute for window in windows), None),
        scalar_float32=all(window.scalar_float32 for window in windows),
        devices=max(window.devices for window in windows),
    )


PHASE_SUMS = Part(name="phases", type=PhaseSums, empty=PhaseSums, merge=merge_phase_sums)


IDLE_SUMS: Part[tuple[IdleSum, ...]] = Part(name="idle", type=tuple[IdleSum, ...], empty=tuple, merge=_merged_idle)


FLOPS = Part(name="flops", type=FlopSums, empty=FlopSums, merge=merge_flop_sums)


MEMORY_USE: Part[MemoryUse | None] = Part(name="memory", type=MemoryUse | None, empty=lambda: None, merge=_last_known)


RECORDING_COST: Part[RecordingCost | None] = Part(
    name="recording_cost", type=RecordingCost | None, empty=lambda: None, merge=_merged_costs
)


NAMED_WAITS = sums_part("named_waits", NamedWait, key=("what",), amounts=("total_ns",))


LAUNCH_CALLS = sums_part("launch_calls", LaunchCalls, key=("api",), amounts=("count", "behind"))


UNCLASSIFIED_KERNELS = sums_part(
    "unclassified_kernels", UnclassifiedKernel, key=("pattern",), amounts=("count", "total_ns")
)
