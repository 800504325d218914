"""Traces for discovery, and the runs that it finds."""

from __future__ import annotations

from tests.builders import TraceBuilder
from tracekit.read.files.discover import Discovery

SECOND = 1e6  # microseconds
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE


def trace(rank: int = 0, world_size: int = 2, *, at_us: float = 0, pid: int | None = None) -> TraceBuilder:
    """A trace with one operator. `at_us` and `pid` make it another window or process."""
    builder = TraceBuilder(rank, world_size)
    builder.pid = builder.main = pid or builder.pid
    return builder.op("op", at_us, 1)


def runs(found: Discovery) -> list[dict[int, int]]:
    """Return how many windows each rank has, for each run, the chosen one first."""
    return [{rank: len(w) for rank, w in run.ranks.items()} for run in (found.chosen, *reversed(found.others))]


def files(found: Discovery) -> dict[int, list[str]]:
    return {rank: [window.path.name for window in windows] for rank, windows in found.chosen.ranks.items()}


def kinds(found: Discovery) -> list[str]:
    return [note.id for note in found.notes]
