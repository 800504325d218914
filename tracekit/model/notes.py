"""What a reader of the result must know of the input: what is missing, was repaired or was left out.

A `Note` is a fact about one file or rank. Its text begins with "rank N:" if the rank is known, names the file, and says
what was done. What to do about the run is a `Finding` (`findings/finding.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Severity = Literal["info", "warning", "error"]

NOTE_KINDS = frozenset(
    {
        # the file
        *("truncated", "unterminated", "unfinished_tmp", "ignored_file", "empty", "permission", "limit", "encoding"),
        # its events
        *("escape", "non_finite", "negative_duration", "out_of_range", "malformed_event", "duplicate_event"),
        *("overlapping", "unlinked", "unclassified", "lost_device_records", "no_device_records", "before_recording"),
        *("mixed_processes", "other_device", "nothing_ran", "empty_step", "unlinked_kernels", "profiler_loss"),
        # its steps, rank and clock
        *(
            "no_steps",
            "first_step",
            "partial",
            "step_order",
            "step_mismatch",
            "no_rank",
            "rank_mismatch",
            "recordings_differ",
            "duplicate_rank",
            "device_clock",
            "clock_step",
            "clock_drift",
        ),
        # the run
        *("missing_rank", "other_run", "not_available", "inferred", "capture", "profiler", "worker_died"),
        "internal_error",
    }
)

HARMLESS_KINDS = frozenset(
    {
        "before_recording",
        "capture",
        "first_step",
        "inferred",
        "no_steps",
        "not_available",
        "other_run",
        "profiler",
        "unclassified",
    }
)
"""Kinds of notes about inputs from which nothing is missing and in which nothing was repaired."""

_HARMLESS_IF_INFO = {("unlinked", "info"), ("empty_step", "info")}

__all__ = ["HARMLESS_KINDS", "NOTE_KINDS", "Note", "Severity"]


@dataclass(frozen=True, kw_only=True)
class Note:
    """A fact about one file, rank or run.

    Attributes:
        kind: one of `NOTE_KINDS`.
        events_dropped: how many events were left out.
    """

    kind: str
    severity: Severity
    text: str
    rank: int | None = None
    file: str | None = None
    events_dropped: int = 0

    def __post_init__(self) -> None:
        if self.kind not in NOTE_KINDS:
            raise ValueError(f"unknown kind of note: {self.kind!r}")

    @property
    def is_defect(self) -> bool:
        """Return whether something is missing or was repaired."""
        # Such as a collective that is still running at the end of a window.
        return self.kind not in HARMLESS_KINDS and (self.kind, self.severity) not in _HARMLESS_IF_INFO

    def about_rank(self, rank: int | None) -> Note:
        """Return the note with the rank. Readers see single files; only a whole run knows the rank of each."""
        if rank is None or self.rank is not None:
            return self
        return replace(self, rank=rank, text=f"rank {rank}: {self.text}")
