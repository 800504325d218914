"""What a reader of the result must know of the input: what is missing, was repaired or was left out.

A `Note` is a fact about one file or rank. Its text begins with "rank N:" if the rank is known, names the file, and says
what was done. What to do about the run is a `Finding` (`findings/finding.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Severity = Literal["info", "warning", "error"]

NOTE_IDS = frozenset(
    {
        # the file
        *("truncated", "unterminated", "unfinished-tmp", "ignored-file", "empty", "permission", "limit", "encoding"),
        # its events
        *("escape", "non-finite", "negative-duration", "out-of-range", "malformed-event", "duplicate-event"),
        *("overlapping", "unlinked", "unclassified", "lost-device-records", "no-device-records", "before-recording"),
        *("mixed-processes", "other-device", "nothing-ran", "empty-step", "unlinked-kernels", "profiler-loss"),
        # its steps, rank and clock
        *(
            "no-steps",
            "first-step",
            "partial",
            "step-order",
            "step-mismatch",
            "no-rank",
            "rank-mismatch",
            "recordings-differ",
            "duplicate-rank",
            "device-clock",
            "clock-step",
            "clock-drift",
        ),
        # the run
        *("missing-rank", "other-run", "not-available", "inferred", "capture", "profiler", "worker-died"),
        "internal-error",
    }
)

HARMLESS_IDS = frozenset(
    {
        "before-recording",
        "capture",
        "first-step",
        "inferred",
        "no-steps",
        "not-available",
        "other-run",
        "profiler",
        "unclassified",
    }
)
"""Kinds of notes about inputs from which nothing is missing and in which nothing was repaired."""

_HARMLESS_IF_INFO = {("unlinked", "info"), ("empty-step", "info")}


@dataclass(frozen=True, kw_only=True)
class Note:
    """A fact about one file, rank or run.

    Attributes:
        id: one of `NOTE_IDS`.
        events_dropped: how many events were left out.
    """

    id: str
    severity: Severity
    text: str
    rank: int | None = None
    file: str | None = None
    events_dropped: int = 0

    def __post_init__(self) -> None:
        if self.id not in NOTE_IDS:
            raise ValueError(f"unknown id of a note: {self.id!r}")

    @property
    def is_defect(self) -> bool:
        """Return whether something is missing or was repaired."""
        # Such as a collective that is still running at the end of a window.
        return self.id not in HARMLESS_IDS and (self.id, self.severity) not in _HARMLESS_IF_INFO

    def about_rank(self, rank: int | None) -> Note:
        """Return the note with the rank. Readers see single files; only a whole run knows the rank of each."""
        if rank is None or self.rank is not None:
            return self
        return replace(self, rank=rank, text=f"rank {rank}: {self.text}")
