"""Tables of kernels and operators."""

from tracekit.analysis.table import Column, Display, Table

__all__ = ["KERNELS", "OPERATORS"]

_SUMS = (
    Column("count", "float", "", "Mean number a step."),
    Column("total_ns", "float", "ns", "Mean time a step, with what it calls."),
    Column("self_ns", "float", "ns", "Mean time a step without what it calls."),
)
_RANKS = (
    Column("ranks", "int", "", "Ranks on which it is among those with the most time; the means are over these."),
    Column("worst_rank", "int", "", "The rank with the most total time in it."),
    Column("worst_total_ns", "float", "ns", "Its time a step."),
)
_CELLS = "name | count | total_ns | self_ns | exposed_ns | {worst_rank}: {worst_total_ns}"
KERNELS = Table(
    "kernels",
    (
        Column("name", "str", "", "As recorded."),
        Column("kind", "str", "", "compute, copy, or the kind of communication: all_reduce, send, ..."),
        *_SUMS,
        Column(
            "exposed_ns",
            "float",
            "ns",
            "The part of compute while nothing communicates, of communication while nothing computes, of copies while "
            "neither does.",
        ),
        *_RANKS,
    ),
    Display(
        "Kernels with the most total time (ms a step)",
        _CELLS,
        bars="exposed_ns | hidden={total_ns-exposed_ns}",
        most=8,
        sort="total_ns",
    ),
)
OPERATORS = Table(
    "operators",
    (
        Column("name", "str", "", "As recorded, on the threads of the step and of autograd."),
        *_SUMS,
        Column("exposed_ns", "float", "ns", "Self time in which the device idles; on a CPU: nothing communicates."),
        *_RANKS,
    ),
    Display(
        "Operators with the most self time (ms a step)",
        _CELLS,
        bars="exposed_ns | hidden={self_ns-exposed_ns}",
        most=8,
        sort="self_ns",
    ),
)
