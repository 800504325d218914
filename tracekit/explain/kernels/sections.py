"""The section on kernels and operators: by name, and by what they compute."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.explain.kernels.by_name import (
    KERNEL_TIMES,
    KERNELS,
    OPERATOR_TIMES,
    OPERATORS,
    kernel_times,
    operator_times,
    rows_over_ranks,
)
from tracekit.explain.kernels.by_shape import KERNEL_SHAPES, SHAPE_SUMS, rows_by_shape, shape_sums
from tracekit.explain.section import Section
from tracekit.findings.finding import Finding
from tracekit.model.run import Run
from tracekit.model.table import Frame


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """Kernels and operators, the most total time first.

    Attributes:
        kernels: rows of KERNELS; none for ranks that compute on CPUs.
        kernel_shapes: rows of KERNEL_SHAPES, over some steps of each rank; likewise.
        operators: rows of OPERATORS, over some steps of each rank (`by_name.MOST_OPERATORS`).
    """

    kernels: Frame = Frame(KERNELS)
    kernel_shapes: Frame = Frame(KERNEL_SHAPES)
    operators: Frame = Frame(OPERATORS)
    findings: tuple[Finding, ...] = ()


def kernels(run: Run) -> Kernels:
    """Return the kernels and operators of all ranks."""
    operators = rows_over_ranks([(summary.rank, summary[OPERATOR_TIMES]) for summary in run.ranks])
    return Kernels(
        kernels=rows_over_ranks([(summary.rank, summary[KERNEL_TIMES]) for summary in run.ranks]),
        kernel_shapes=rows_by_shape(run),
        operators=[{name: value for name, value in row.items() if name != "kind"} for row in operators],
    )


KERNELS_SECTION: Section[Kernels] = Section(
    name="kernels",
    reads=(KERNEL_TIMES, SHAPE_SUMS, OPERATOR_TIMES),
    keeps={KERNEL_TIMES: kernel_times, SHAPE_SUMS: shape_sums, OPERATOR_TIMES: operator_times},
    analyze=lambda given: kernels(given.run),
    tables=(KERNELS, KERNEL_SHAPES, OPERATORS),
)
