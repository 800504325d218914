"""Folders with recorded runs of two GPU ranks whose steps have known lengths."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.builders import TraceBuilder

STEADY = (1000, 1010, 990, 1005, 995, 1000, 1002, 998, 1001, 999)
"""Lengths of steps in us."""


def longer(by_us: int) -> tuple[int, ...]:
    return tuple(length + by_us for length in STEADY)


def write_run(folder: Path, lengths_us: Sequence[int], *, ranks: int = 2, transfer_us: int = 100) -> Path:
    """Write a run whose steps have these lengths: compute, and an all-reduce at the end. Return the folder."""
    folder.mkdir()
    for rank in range(ranks):
        trace, begin = TraceBuilder(rank, ranks), 0
        for number, length in enumerate(lengths_us):
            compute = length - transfer_us
            trace.step(number, begin, length).kernel("gemm", begin, compute, launched_at=begin)
            trace.nccl("all_reduce", begin + compute, transfer_us, launched_at=begin + 1)
            begin += length
        trace.write(folder / f"rank{rank}.json.gz")
    return folder
