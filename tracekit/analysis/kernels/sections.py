"""The section on kernels and operators."""

from __future__ import annotations

from tracekit.analysis.kernels import tables
from tracekit.analysis.kernels.kernels import Kernels, kernels
from tracekit.analysis.kernels.per_rank import kernel_times, operator_times
from tracekit.analysis.kernels.tables import KERNEL_TIMES, OPERATOR_TIMES
from tracekit.analysis.section import Section

__all__ = ["KERNELS_SECTION"]

KERNELS_SECTION: Section[Kernels] = Section(
    name="kernels",
    reads=(KERNEL_TIMES, OPERATOR_TIMES),
    keeps={KERNEL_TIMES: kernel_times, OPERATOR_TIMES: operator_times},
    analyze=lambda given: kernels(given.run),
    tables=(tables.KERNELS, tables.OPERATORS),
)
