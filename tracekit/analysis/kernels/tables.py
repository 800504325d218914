"""Tables of kernels and operators.

What is kept of one rank's kernels and operators: sums by name, of those that take the most time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tracekit.analysis.table import Column, Display, Table
from tracekit.model.columnar import Columnar
from tracekit.model.events import Int64
from tracekit.model.summary import Part

__all__ = ["KERNEL_TIMES", "MOST_OF_RANK", "OPERATOR_TIMES", "OperationSums", "OperationTimes", "longest", "longest_of"]


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

MOST_OF_RANK = 50
"""How many names are kept of a rank, by each of total, self and exposed time: with them all, thousands of ranks would
take much memory.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class OperationSums(Columnar):
    """n names of kernels or operators, each with its sums over some steps of one rank.

    Attributes:
        name: object [n], as recorded.
        kind: object [n], text: compute, copy or a kind of communication; "" for operators.
        count: int64 [n].
        total_ns: int64 [n], with what an operator calls.
        self_ns: int64 [n], without it.
        exposed_ns: int64 [n]. Of compute: while nothing communicates. Of communication: while nothing computes. Of a
            copy: while neither does. Of an operator: the self time in which the device is idle, or, on a CPU rank, in
            which nothing communicates.
    """

    name: np.ndarray
    kind: np.ndarray
    count: Int64
    total_ns: Int64
    self_ns: Int64
    exposed_ns: Int64


@dataclass(frozen=True, kw_only=True)
class OperationTimes:
    """Sums by name.

    Attributes:
        steps: how many complete steps the sums are over.
    """

    steps: int = 0
    sums: OperationSums = field(default_factory=OperationSums.empty)


def longest(sums: OperationSums, most: int) -> Int64:
    """Return `longest_of` the three times."""
    return longest_of((sums.total_ns, sums.self_ns, sums.exposed_ns), most)


def longest_of(columns: Sequence[np.ndarray], most: int) -> Int64:
    """Return the rows, int64 [k], of the `most` with the most in each column [n]; those with the most in the first one
    come first.
    """
    rows = np.arange(len(columns[0]))
    if len(rows) > most:
        rows = np.unique(np.concatenate([np.argsort(-column, kind="stable")[:most] for column in columns]))
    return rows[np.argsort(-columns[0][rows], kind="stable")]


def _merged(windows: Sequence[OperationTimes]) -> OperationTimes:
    sums = OperationSums.concatenate([window.sums for window in windows])
    places: dict[tuple[str, str], int] = {}
    pairs = zip(sums.name.tolist(), sums.kind.tolist(), strict=True)
    which = np.array([places.setdefault(pair, len(places)) for pair in pairs], dtype=np.int64)
    amounts = {name: np.zeros(len(places), dtype=np.int64) for name in ("count", "total_ns", "self_ns", "exposed_ns")}
    for name, column in amounts.items():
        np.add.at(column, which, getattr(sums, name))
    names, kinds = (np.array([pair[i] for pair in places], dtype=object) for i in (0, 1))
    merged = OperationSums(name=names, kind=kinds, **amounts)
    return OperationTimes(
        steps=sum(window.steps for window in windows), sums=merged.rows(longest(merged, MOST_OF_RANK))
    )


KERNEL_TIMES = Part(name="kernel_times", type=OperationTimes, empty=OperationTimes, merge=_merged)


OPERATOR_TIMES = Part(name="operator_times", type=OperationTimes, empty=OperationTimes, merge=_merged)
