"""Table of the floating-point work of steps."""

from tracekit.schema.columns import RANK, Column, Table

__all__ = ["ROOFLINE"]

ROOFLINE = Table(
    "roofline",
    (
        RANK,
        Column("steps", "int", "", "Complete steps that the sums are over."),
        Column("flops", "int?", "FLOP", "Of matrix products, convolutions and attention, recomputation included."),
        Column("recomputed_flops", "int?", "FLOP", "Of forwards that backward passes ran again; null when unknown."),
        Column("recompute", "str?", "", "recorded: told by the capture; inferred: by autograd numbers; null: unknown."),
        Column("lower_bound", "bool", "", "Whether some work of the kind could not be counted."),
        Column("dtypes", "list", "", "Data types that it was done in, the most first; tf32: float32 on tensor cores."),
        Column("step_ns", "int", "ns", "Length of the steps."),
        Column("compute_ns", "int", "ns", "Time covered by compute."),
        Column("flops_per_s", "float?", "FLOP/s", "By the length of the steps."),
        Column("computing_flops_per_s", "float?", "FLOP/s", "By the time covered by compute."),
        Column("peak_flops_per_s", "float?", "FLOP/s", "What the device can do at most in these data types."),
        Column("mfu", "float?", "ratio", "flops less recomputed_flops, by what the device can do in the steps."),
        Column("hfu", "float?", "ratio", "The same with recomputation."),
    ),
)
