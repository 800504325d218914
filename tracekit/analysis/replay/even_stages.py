"""What evening out a pipeline's stages means: by which factor the work of each stage changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tracekit.analysis.replay.replay import stable_order
from tracekit.model.events import Float64, Int64

__all__ = ["even_stage_factors", "group_values"]


def even_stage_factors(kind: Int64, stage: Int64, work_ns: Float64, *, kinds: int, stages: int) -> Float64:
    """Return the factors, float64 [kinds, stages + 1], that make all stages take equally long for a kind of work.

    kind, stage: int64 [n] of the work's n samples; work_ns: float64 [n]. A stage takes as long as the median of its
    samples, so that neither one slow rank nor one slow step is an imbalance. All stages that do this kind of work get
    the mean of their medians. The factor is 1 where there are no samples, and in the last column, so that work without
    a stage, -1, stays as it is.
    """
    median_ns = np.full(kinds * stages, np.nan)
    for label, values_ns in group_values(kind * stages + stage, work_ns):
        median_ns[label] = np.median(values_ns)
    by_stage_ns = median_ns.reshape(kinds, stages)
    known = np.isfinite(by_stage_ns)
    total_ns = np.where(known, by_stage_ns, 0.0).sum(axis=1)
    even_ns = np.divide(total_ns, known.sum(axis=1), out=np.zeros(kinds), where=known.any(axis=1))
    factors = np.ones((kinds, stages + 1))
    np.divide(even_ns[:, None], by_stage_ns, out=factors[:, :stages], where=known & (by_stage_ns > 0))
    return factors


def group_values(label: Int64, values: Float64) -> Iterator[tuple[int, Float64]]:
    """Yield each label with its values, ascending. label: int64 [n], not negative; values: float64 [n]."""
    if not len(label):
        return
    order = stable_order(label)
    label, values = label[order], values[order]
    first = np.flatnonzero(np.diff(label, prepend=-1))
    for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(label)], strict=True):
        yield int(label[begin]), values[begin:end]
