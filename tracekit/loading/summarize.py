"""What is kept of one rank, from all of its trace files. Runs in a worker, and the events stay there.

Several recordings of one rank become one summary, each field merged by a stated rule. Which files are of the same
recording, only decoding them shows. A copy may be filtered or trimmed, so that it begins elsewhere, or number its steps
otherwise. A process has one profiler, so what it recorded at one time is one recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tracekit.errors import InputError
from tracekit.explain.pipeline.per_rank import recorded_pipeline
from tracekit.explain.sections import ALL_PARTS, parts_for
from tracekit.explain.step_time.breakdown import step_parts
from tracekit.explain.step_time.step_lengths import long_first_steps
from tracekit.explain.strategies import recorded_strategies
from tracekit.health.run_checks import without_times
from tracekit.loading.options import SummaryOptions
from tracekit.loading.recording import Recording, recording_of
from tracekit.model.metadata import ClockMeasurement
from tracekit.model.notes import Note
from tracekit.model.run import format_ranges
from tracekit.model.summary import RankFailure, RankSummary
from tracekit.rank.phases import PHASES
from tracekit.rank.point_to_point import merge_messages, rank_messages
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.rank.recorded_waits import blocking_times
from tracekit.rank.segments import computing_or_loading, merge_collectives, rank_collectives
from tracekit.read.cache.cache_dir import DecodedSpool
from tracekit.read.decode.decoder import decode
from tracekit.read.files.storage import TracePath, version_of

T = TypeVar("T")


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
            recording = recording_of(trace, options.rules, options.search)
            if spool is not None:
                spool.put(path, recording)
            files.append(summarized_file(path, recording, summarize_recording(recording, rank, options)))
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
    return Note(id=kind, severity="error", file=path.name, text=f"{path.name}: {reason}; left out")


def summarize_recording(recording: Recording, rank: int, options: SummaryOptions) -> RankSummary:
    """Return the summary of one recording."""
    trace, lanes = recording.trace, recording.lanes
    header, metadata = trace.header, trace.header.metadata
    serves_only = metadata is not None and metadata.rpc is not None and not metadata.steps
    own_rank = metadata.rank if metadata is not None else header.rank
    rank = rank if own_rank is None else own_rank
    steps = tuple(
        step
        for step in step_parts(lanes, blocking_times(trace.events, lanes))
        if not serves_only and (options.steps.whole or step.step in options.steps)
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
    strategies, inferred = recorded_strategies(recorded)
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
        has_backward=bool((recording.phases.launch_phase == PHASES.index("backward")).any()),
        steps_from=lanes.windows.source,
        first_step=options.first_step,
        recorded_steps=() if serves_only else tuple(lanes.windows.step.tolist()),
        steps=recorded.steps,
        left_out=left_out,
        collectives=rank_collectives(trace, lanes, work),
        messages=recorded.messages,
        event_count=len(trace.events),
        first_event_ns=int(trace.events.start_ns.min()) if len(trace.events) else None,
        profiler_options=header.profiler_options,
        notes=tuple(note.about_rank(rank) for note in recording.health.notes),
        parts={part.name: recorded.once(make) for part, make in parts_for(options.sections).items()},
    )
    return summary if unmeasured is None else without_times(summary, unmeasured)


def _process_id(recorded: RecordedSteps) -> int | None:
    """Return the id of the process that ran the steps; None if its file does not tell."""
    tracks, thread = recorded.trace.events.tracks, recorded.lanes.windows.thread
    pid = tracks[thread].pid if thread >= 0 else None
    return pid if isinstance(pid, int) else None


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
        has_backward=any(recording.has_backward for recording in recordings),
        steps_from=recordings[0].steps_from,
        first_step=recordings[0].first_step,
        recorded_steps=_concatenate(recordings, lambda recording: recording.recorded_steps),
        steps=_concatenate(recordings, lambda recording: recording.steps),
        left_out=_concatenate(recordings, lambda recording: recording.left_out),
        collectives=merge_collectives([(recording.collectives, recording.groups) for recording in recordings], groups),
        messages=merge_messages([(recording.messages, recording.groups) for recording in recordings], groups),
        event_count=sum(recording.event_count for recording in recordings),
        profiler_options=tuple(sorted({option for recording in recordings for option in recording.profiler_options})),
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
        notes.append(Note(id="duplicate-rank", severity="warning", file=file, text=text).about_rank(recording.rank))
    return [recording for recording in recordings if any(recording is one for one in kept)], notes


def _has_no_steps(recording: RankSummary) -> bool:
    """Return whether the whole recording counts as step 0."""
    return any(note.id == "no-steps" for note in recording.notes)


def _concatenate(recordings: Sequence[RankSummary], field: Callable[[RankSummary], tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(item for recording in recordings for item in field(recording))


def _difference_note(rank: int, field: str) -> Note:
    field_name = field.replace("_", " ")
    text = f"rank {rank}: its recordings name more than one {field_name}; the latest is taken"
    return Note(id="recordings-differ", severity="warning", rank=rank, text=text)


def _merge_clocks(clocks: Sequence[ClockMeasurement]) -> ClockMeasurement | None:
    """Return the clock measurements of all recordings as one: they are of the same clock."""
    measured = [clock for clock in clocks if clock.method != "none"] or list(clocks)
    if not measured:
        return None
    samples = [sample for clock in measured for sample in clock.samples]
    return replace(measured[0], samples=samples)


@dataclass(frozen=True, kw_only=True)
class SummarizedFile:
    """The summary of one file, and what decides whether it counts.

    Attributes:
        path: Of the file.
        summary: Of what is in it.
        step_starts_ns: When the host began each step; none if no steps are recorded.
        start_ns: When the first step began, or the recording.
        end_ns: When the last step ended, or the recording.
        complete_steps: How many steps count, selected or not.
        is_whole: The file was written to its end.
    """

    path: TracePath
    summary: RankSummary
    step_starts_ns: frozenset[int]
    start_ns: int
    end_ns: int
    complete_steps: int
    is_whole: bool

    @property
    def merit(self) -> tuple[int, bool, int, int]:
        """Return what decides between two files of a recording: the larger one is better, at last the newer one."""
        return self.complete_steps, self.is_whole, self.summary.event_count, _changed_ns(self.path)

    def is_of_same_recording(self, other: SummarizedFile) -> bool:
        """Return whether both files are of one recording, which has steps in one of them at most or the same in both.

        Steps of other numbers that only overlap in time are of two windows: a clock was set back between them.
        """
        shared_ns = min(self.end_ns, other.end_ns) - max(self.start_ns, other.start_ns)
        if shared_ns < 0 or self.summary.serves_only or other.summary.serves_only:
            return False
        are_of_probe = self.summary.run_id is not None and other.summary.run_id is not None
        if not are_of_probe and not self.step_starts_ns.isdisjoint(other.step_starts_ns):
            return True  # renumbered; the probe's recordings are known by the numbers of their steps
        if self.step_starts_ns and other.step_starts_ns:
            numbers = frozenset(self.summary.recorded_steps)
            if numbers.isdisjoint(other.summary.recorded_steps):
                return False
        # Windows that follow each other may overlap by a few events.
        return 2 * shared_ns >= min(self.end_ns - self.start_ns, other.end_ns - other.start_ns)


def summarized_file(path: TracePath, recording: Recording, summary: RankSummary) -> SummarizedFile:
    """Return the summary of one file with what decides whether it counts."""
    windows = recording.lanes.windows
    has_steps = windows.source != "recording"
    is_known = recording.health.excluded is None
    return SummarizedFile(
        path=path,
        summary=summary,
        step_starts_ns=frozenset(windows.host_start_ns.tolist()) if has_steps else frozenset(),
        start_ns=int(windows.host_start_ns[0]),
        end_ns=int(windows.end_ns[-1]),
        complete_steps=int(windows.complete.sum()) if has_steps and is_known else 0,
        is_whole=recording.trace.complete,
    )


def without_copies(files: Sequence[SummarizedFile]) -> tuple[list[RankSummary], list[Note]]:
    """Return the summaries of one rank's files in their order, one of each recording, and notes about the others.

    Of the files of one recording the one with the most steps that count is kept, else the one with the most events.
    """
    if len(files) == 1:
        return [files[0].summary], []
    kept: list[SummarizedFile] = []
    notes: list[Note] = []
    for file in sorted(files, key=lambda file: file.merit, reverse=True):
        better = next((other for other in kept if file.is_of_same_recording(other)), None)
        if better is None:
            kept.append(file)
        else:
            notes.append(_copy_note(file, better))
    return [file.summary for file in files if any(file is one for one in kept)], notes


def _changed_ns(path: TracePath) -> int:
    try:
        return version_of(path).changed_ns or 0
    except OSError:  # it was removed after it was read
        return 0


def _copy_note(file: SummarizedFile, better: SummarizedFile) -> Note:
    why = ""
    if file.step_starts_ns != better.step_starts_ns and not file.step_starts_ns:
        why = ", without steps"
    elif file.complete_steps < better.complete_steps:
        why = ", with fewer complete steps"
    elif file.summary.event_count < better.summary.event_count:
        why = ", with fewer events"
    name = file.path.name
    text = f"{name}: another file of the same recording{why}; {better.path.name} is used"
    return Note(id="duplicate-rank", severity="info", file=name, text=text).about_rank(file.summary.rank)
