"""Which files of one rank are of the same recording, which only decoding them shows, and which of them counts.

A copy may be filtered or trimmed, so that it begins elsewhere, or number its steps otherwise. A process has one
profiler, so what it recorded at one time is one recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.analysis.per_rank.recording import Recording
from tracekit.model.notes import Note
from tracekit.model.summary import RankSummary
from tracekit.read.files.storage import TracePath, version_of

__all__ = ["SummarizedFile", "summarized_file", "without_copies"]


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
    return Note(kind="duplicate_rank", severity="info", file=name, text=text).about_rank(file.summary.rank)
