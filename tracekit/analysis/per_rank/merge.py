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
from tracekit.model.ranks import format_ranges
from tracekit.model.summary import RankSummary

__all__ = ["merge_recordings", "without_repeated_steps"]

T = TypeVar("T")


def merge_recordings(recordings: Sequence[RankSummary]) -> RankSummary:
    """Return the summary of all recordings of one rank: at least one, in order of time.

    Fields that must be the same in all recordings, and are not, give a note.
    """
    if len(recordings) == 1:
        return recordings[0]
    groups = tuple(dict.fromkeys(group for recording in recordings for group in recording.groups))
    notes: list[Note] = [note for recording in recordings for note in recording.notes]

    def same(field: str) -> Any:
        """Return the value that all recordings share, unknown ones left out; if they differ the latest, with a note."""
        values = [value for recording in recordings if (value := getattr(recording, field)) is not None]
        if any(value != values[0] for value in values):
            notes.append(_difference_note(recordings[0].rank, field))
        return values[-1] if values else None

    return RankSummary(
        rank=same("rank"),
        world_size=same("world_size"),
        files=_concatenate(recordings, lambda recording: recording.files),
        run_id=same("run_id"),
        attempt=same("attempt"),
        host=same("host"),
        host_id=same("host_id"),
        process_id=next((r.process_id for r in recordings if r.process_id is not None), None),
        device=same("device"),
        device_name=same("device_name"),
        serves_only=all(recording.serves_only for recording in recordings),
        unmeasured=None if any(recording.unmeasured is None for recording in recordings) else recordings[0].unmeasured,
        strategies=tuple(sorted({slug for recording in recordings for slug in recording.strategies})),
        strategies_inferred=any(recording.strategies_inferred for recording in recordings),
        groups=groups,
        mesh=same("mesh"),
        pipeline=same("pipeline"),
        clock=_merge_clocks([recording.clock for recording in recordings if recording.clock is not None]),
        recorded_steps=_concatenate(recordings, lambda recording: recording.recorded_steps),
        steps=_concatenate(recordings, lambda recording: recording.steps),
        left_out=_concatenate(recordings, lambda recording: recording.left_out),
        collectives=merge_collectives([(recording.collectives, recording.groups) for recording in recordings], groups),
        messages=merge_messages([(recording.messages, recording.groups) for recording in recordings], groups),
        event_count=sum(recording.event_count for recording in recordings),
        first_event_ns=min((w.first_event_ns for w in recordings if w.first_event_ns is not None), default=None),
        parts={
            name: ALL_PARTS[name].merge([recording.parts[name] for recording in recordings])
            for name in recordings[0].parts
        },
        notes=tuple(notes),
    )


def without_repeated_steps(recordings: Sequence[RankSummary]) -> tuple[list[RankSummary], list[Note]]:
    """Return the recordings of one rank of which no two have a step of the same number, and notes about the others.

    Two of them are of two attempts of the job, or the profiler began to count anew. The newest is kept.
    """
    kept: list[RankSummary] = []
    notes: list[Note] = []
    for recording in sorted(recordings, key=lambda recording: -(recording.first_event_ns or 0)):
        steps = frozenset(recording.recorded_steps)
        newer = next((other for other in kept if steps.intersection(other.recorded_steps)), None)
        if newer is None or _has_no_steps(recording):
            kept.append(recording)
            continue
        repeated = format_ranges(steps.intersection(newer.recorded_steps))
        file, other = recording.file_name, newer.file_name
        text = f"{file}: step {repeated} is in {other}, too, which is newer; {file} is left out"
        notes.append(Note(kind="duplicate_rank", severity="warning", file=file, text=text).about_rank(recording.rank))
    return [recording for recording in recordings if any(recording is one for one in kept)], notes


def _has_no_steps(recording: RankSummary) -> bool:
    """Return whether the whole recording counts as step 0."""
    return any(note.kind == "no_steps" for note in recording.notes)


def _concatenate(recordings: Sequence[RankSummary], field: Callable[[RankSummary], tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(item for recording in recordings for item in field(recording))


def _difference_note(rank: int, field: str) -> Note:
    field_name = field.replace("_", " ")
    text = f"rank {rank}: its recordings name more than one {field_name}; the latest is taken"
    return Note(kind="recordings_differ", severity="warning", rank=rank, text=text)


def _merge_clocks(clocks: Sequence[ClockMeasurement]) -> ClockMeasurement | None:
    """Return the clock measurements of all recordings as one: they are of the same clock."""
    measured = [clock for clock in clocks if clock.method != "none"] or list(clocks)
    if not measured:
        return None
    samples = [sample for clock in measured for sample in clock.samples]
    return msgspec.structs.replace(measured[0], samples=samples)
