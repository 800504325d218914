"""From the trace files of one rank to its `RankSummary`. Runs in a worker, and the events stay there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracekit.analysis.events.strategies import strategies_of
from tracekit.analysis.health.run_checks import without_times
from tracekit.analysis.per_rank.merge import (
    SummarizedFile,
    merge_recordings,
    summarized_file,
    without_copies,
    without_repeated_steps,
)
from tracekit.analysis.per_rank.options import SummaryOptions
from tracekit.analysis.per_rank.recording import Recording, recording_of
from tracekit.analysis.pipeline.per_rank import recorded_pipeline
from tracekit.analysis.sections import parts_for
from tracekit.analysis.step_time.per_rank.step_parts import step_parts
from tracekit.analysis.step_time.step_lengths import long_first_steps
from tracekit.analysis.timeline.point_to_point import rank_messages
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.analysis.timeline.segments import computing_or_loading, rank_collectives
from tracekit.errors import InputError
from tracekit.model.events import DecodedTrace
from tracekit.model.notes import Note
from tracekit.model.summary import RankFailure, RankSummary
from tracekit.read.cache.spool import DecodedSpool
from tracekit.read.decode.decoder import decode
from tracekit.read.files.storage import TracePath

__all__ = ["summarize", "summarize_trace"]


def summarize(
    rank: int, paths: Sequence[TracePath], options: SummaryOptions, spool: DecodedSpool | None = None
) -> RankSummary | RankFailure:
    """Return the summary of one rank from its recordings; a `RankFailure` if no file could be used.

    `rank` is what discovery concluded from the files; a rank that the trace itself names takes precedence. Each
    `Recording` is also put into the `spool`.

    A file that cannot be used gives a note. An error in tracekit itself while it reads one file must not lose the
    others either.
    """
    files: list[SummarizedFile] = []
    failures: list[Note] = []
    internal_error = False
    for path in paths:
        try:
            # A merged trace shows extra arguments.
            trace = decode(path, extra_args=spool is not None, namer=options.pseudonyms)
            recording = recording_of(trace, options.rules, whole=options.steps.whole)
            if spool is not None:
                spool.put(path, recording)
            files.append(summarized_file(path, recording, _summary_of(recording, rank, options)))
            del trace, recording  # so that one window is in memory at a time
        except InputError as error:
            failures.append(_failure_note(path, error.kind, error.reason))
        except MemoryError:
            failures.append(_failure_note(path, "limit", "reading it takes more memory than there is; try --jobs 1"))
        except Exception as error:
            internal_error = True
            failures.append(_failure_note(path, "ignored-file", f"a bug in tracekit ({type(error).__name__}: {error})"))
    failures = [note.about_rank(rank) for note in failures]
    if not files:
        return RankFailure(rank=rank, notes=tuple(failures), internal_error=internal_error)
    recordings, copies = without_copies(files)
    recordings, repeated = without_repeated_steps(recordings)
    merged = merge_recordings(recordings)
    return replace(merged, notes=(*failures, *copies, *repeated, *merged.notes))


def _failure_note(path: TracePath, kind: str, reason: str) -> Note:
    return Note(kind=kind, severity="error", file=path.name, text=f"{path.name}: {reason}; left out")


def summarize_trace(trace: DecodedTrace, rank: int, options: SummaryOptions) -> RankSummary:
    """Return the summary of one recording."""
    return _summary_of(recording_of(trace, options.rules, whole=options.steps.whole), rank, options)


def _summary_of(recording: Recording, rank: int, options: SummaryOptions) -> RankSummary:
    trace, lanes = recording.trace, recording.lanes
    header, metadata = trace.header, trace.header.metadata
    serves_only = metadata is not None and metadata.rpc is not None and not metadata.steps
    own_rank = metadata.rank if metadata is not None else header.rank
    rank = rank if own_rank is None else own_rank
    steps = tuple(
        step for step in step_parts(lanes) if not serves_only and (options.steps.whole or step.step in options.steps)
    )
    without = long_first_steps(steps).union(options.without) if options.settled else frozenset(options.without)
    left_out = tuple(step for step in steps if step.step in without)
    steps = tuple(step for step in steps if step.step not in without)
    unmeasured = recording.health.unmeasured([step.step for step in steps])
    recorded = RecordedSteps(
        trace=trace,
        lanes=lanes,
        phases=recording.phases,
        steps=steps,
        messages=rank_messages(trace, lanes),
    )
    strategies, inferred = strategies_of(trace)
    work = recorded.once(computing_or_loading)
    summary = RankSummary(
        rank=rank,
        world_size=metadata.world_size if metadata is not None else header.world_size,
        files=(trace.file,),
        run_id=metadata.run_id if metadata is not None else None,
        attempt=metadata.attempt if metadata is not None else 0,
        host_id=metadata.host_id if metadata is not None else None,
        host=metadata.host if metadata is not None else header.host,
        process_id=_process_id(recorded),
        device=lanes.device,
        device_name=metadata.device.name if metadata is not None else next(iter(header.device_names), None),
        serves_only=serves_only,
        strategies=strategies,
        strategies_inferred=inferred,
        groups=lanes.communication_events.groups,
        mesh=metadata.mesh if metadata is not None else None,
        pipeline=recorded_pipeline(metadata),
        clock=metadata.clock if metadata is not None else None,
        recorded_steps=() if serves_only else tuple(lanes.windows.step.tolist()),
        steps=recorded.steps,
        left_out=left_out,
        collectives=rank_collectives(trace, lanes, work),
        messages=recorded.messages,
        event_count=len(trace.events),
        first_event_ns=int(trace.events.start_ns.min()) if len(trace.events) else None,
        notes=tuple(note.about_rank(rank) for note in recording.health.notes),
        parts={part.name: recorded.once(make) for part, make in parts_for(options.sections).items()},
    )
    return summary if unmeasured is None else without_times(summary, unmeasured)


def _process_id(recorded: RecordedSteps) -> int | None:
    """Return the id of the process that ran the steps; None if its file does not tell."""
    tracks, thread = recorded.trace.events.tracks, recorded.lanes.windows.thread
    pid = tracks[thread].pid if thread >= 0 else None
    return pid if isinstance(pid, int) else None
