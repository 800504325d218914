"""How several recordings of one rank become one summary. Every field is merged by a stated rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from tracekit.analysis.sections import ALL_PARTS
from tracekit.analysis.timeline.point_to_point import merge_messages
from tracekit.analysis.timeline.segments import merge_collectives
from tracekit.model.metadata import ClockMeasurement
from tracekit.model.notes import Note
from tracekit.model.summary import RankSummary

__all__ = ["merge_windows"]

T = TypeVar("T")


def merge_windows(windows: Sequence[RankSummary]) -> RankSummary:
    """Return the summary of all windows of one rank: at least one, in order of time.

    Fields that must be the same in all windows, and are not, give a note.
    """
    if len(windows) == 1:
        return windows[0]
    groups = tuple(dict.fromkeys(group for window in windows for group in window.groups))
    notes: list[Note] = [note for window in windows for note in window.notes]

    def same(field: str) -> Any:
        """Return the value that all windows share, unknown ones left out. If they differ, the latest, with a note."""
        values = [value for window in windows if (value := getattr(window, field)) is not None]
        if any(value != values[0] for value in values):
            notes.append(_difference_note(windows[0].rank, field))
        return values[-1] if values else None

    return RankSummary(
        rank=same("rank"),
        world_size=same("world_size"),
        files=_concatenate(windows, lambda window: window.files),
        run_id=same("run_id"),
        attempt=same("attempt"),
        host=same("host"),
        host_id=same("host_id"),
        device=same("device"),
        device_name=same("device_name"),
        serves_only=all(window.serves_only for window in windows),
        strategies=tuple(sorted({slug for window in windows for slug in window.strategies})),
        strategies_inferred=any(window.strategies_inferred for window in windows),
        groups=groups,
        mesh=same("mesh"),
        pipeline=same("pipeline"),
        clock=_merge_clocks([window.clock for window in windows if window.clock is not None]),
        recorded_steps=_concatenate(windows, lambda window: window.recorded_steps),
        steps=_concatenate(windows, lambda window: window.steps),
        collectives=merge_collectives([(window.collectives, window.groups) for window in windows], groups),
        messages=merge_messages([(window.messages, window.groups) for window in windows], groups),
        event_count=sum(window.event_count for window in windows),
        first_event_ns=min((w.first_event_ns for w in windows if w.first_event_ns is not None), default=None),
        parts={name: ALL_PARTS[name].merge([window.parts[name] for window in windows]) for name in windows[0].parts},
        notes=tuple(notes),
    )


def _concatenate(windows: Sequence[RankSummary], field: Callable[[RankSummary], tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(item for window in windows for item in field(window))


def _difference_note(rank: int, field: str) -> Note:
    field_name = field.replace("_", " ")
    text = f"rank {rank}: its recordings name more than one {field_name}; the latest is taken"
    return Note(kind="windows_differ", severity="warning", rank=rank, text=text)


def _merge_clocks(clocks: Sequence[ClockMeasurement]) -> ClockMeasurement | None:
    """Return the clock measurements of all windows as one: they are of the same clock."""
    measured = [clock for clock in clocks if clock.method != "none"] or list(clocks)
    if not measured:
        return None
    samples = [sample for clock in measured for sample in clock.samples]
    return msgspec.structs.replace(measured[0], samples=samples)
