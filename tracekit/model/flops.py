"""Floating-point operations of one rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RecomputeSource = Literal["recorded", "inferred"]

__all__ = ["FlopSum", "FlopSums", "RecomputeSource"]


@dataclass(frozen=True, kw_only=True)
class FlopSum:
    """Operators of one rank on one data type (`tf32`: float32 on tensor cores), over its complete steps. `recomputed`:
    forwards that a backward pass ran again.
    """

    dtype: str
    recomputed: bool
    count: int
    flops: int


@dataclass(frozen=True, kw_only=True)
class FlopSums:
    """`unknown`: why there are no rows. `uncounted`: what else does such work, which the rows lack. `recompute`: how
    recomputation was told, None where it was not. `scalar_float32`: kernels multiplied float32 without tensor cores.
    """

    rows: tuple[FlopSum, ...] = ()
    uncounted: tuple[str, ...] = ()
    unknown: str | None = None
    recompute: RecomputeSource | None = None
    scalar_float32: bool = False
