"""Tables of where a rank's time and memory go."""

from tracekit.analysis.table import RANK, Column, Display, Table

__all__ = ["IDLE", "IDLE_PLACES", "MEMORY", "PHASES", "PHASES_BY_PHASE", "PHASE_FACTS", "RANKS", "ROOFLINE", "STEPS"]

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
    "host_bound, kernel_gap, synchronisation, data, checkpoint, logging, allocator, garbage_collection, between_steps "
    "or other.",
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
IDLE_PLACES = Table(
    "idle_places",
    (
        _CAUSE,
        Column("operator", "str?", "", "The outermost operator that hosts were in; null: they were in Python."),
        Column("annotation", "str?", "", "The innermost annotation, where there is no operator."),
        Column("source", "str?", "", "The innermost function of the program; null without recorded stacks."),
        Column("ranks", "int", "", "On how many ranks."),
        Column("total_ns", "int", "ns", "Of the longest stretches of this cause in complete steps."),
        Column("worst_rank", "int", "", "The rank with the most."),
        Column("worst_ns", "int", "ns", "Its time."),
    ),
    Display(
        "What hosts did while their ranks idled (ms a step, mean of all ranks)",
        "cause | the host was in=place | source? | time={total_ns/steps}",
        most=8,
        sort="total_ns",
    ),
)
_PHASE_PARTS = ("total_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
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
    (RANK, _STEP_PHASE, *(Column(part, "int", "ns", _PHASE_PART_MEANINGS[part]) for part in _PHASE_PARTS)),
)
PHASES_BY_PHASE = Table(
    "phases_by_phase",
    (
        _STEP_PHASE,
        Column("ranks", "int", "", "Ranks that the means are over, and over their complete steps."),
        Column("share", "float", "ratio", "Of the mean step."),
        *(Column(part, "float", "ns", f"Mean a step. {_PHASE_PART_MEANINGS[part]}") for part in _PHASE_PARTS),
        Column("worst_rank", "int", "", "The rank with the most time in the phase."),
        Column("worst_total_ns", "float", "ns", "Its time a step."),
    ),
    Display(
        "What the step does (ms a step, mean over ranks)",
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
