"""What a reader must know of a run as a whole: missing ranks, steps that not all ranks have, what was inferred."""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.model.notes import Note
from tracekit.model.ranks import format_ranges, ranks_text
from tracekit.model.run import LeftOutStep
from tracekit.model.summary import RankSummary
from tracekit.read.files.discover import Discovery

__all__ = ["inferred_note", "left_out_notes", "missing_note", "other_run_notes", "step_notes"]


def missing_note(missing: Sequence[int], present: int, expected: int) -> list[Note]:
    if not missing:
        return []
    text = f"{present} of {expected} ranks; missing: {format_ranges(missing)}"
    return [Note(kind="missing_rank", severity="warning", text=text)]


def step_notes(ranks: Sequence[RankSummary]) -> list[Note]:
    """Return a note if ranks completed different steps: comparisons over ranks leave out the others."""
    measured = [s for s in ranks if s.is_measured]
    complete = {s.rank: frozenset(step.step for step in s.steps if step.complete) for s in measured}
    if len(set(complete.values())) < 2:
        return []
    common_steps, all_steps = frozenset.intersection(*complete.values()), frozenset.union(*complete.values())
    incomplete_ranks = [rank for rank, steps in complete.items() if steps != all_steps]
    of_all = f"{len(common_steps)} of {len(all_steps)} steps are complete on all ranks"
    if len(incomplete_ranks) > 1:
        text = f"{of_all}; {ranks_text(incomplete_ranks)} lack some"
        return [Note(kind="step_mismatch", severity="warning", text=text)]
    (rank,) = incomplete_ranks
    file = next(summary.file_name for summary in measured if summary.rank == rank)
    where = f"rank {rank}: {file}" if file else f"rank {rank}"
    text = f"{where}: it completed {len(complete[rank])} of the {len(all_steps)} steps; {of_all}, and are compared"
    return [Note(kind="step_mismatch", severity="warning", rank=rank, file=file, text=text)]


def left_out_notes(left_out: Sequence[LeftOutStep], ranks: Sequence[RankSummary]) -> list[Note]:
    """Return a note about each step that is left out. It names the ranks where the step is long, if these are few."""
    most_ns = max((step.step_ns for summary in ranks for step in summary.steps if step.complete), default=0)
    first = "the first recorded" if len(left_out) == 1 else "the first of its window"
    notes = []
    for left in left_out:
        lengths_ns = {
            summary.rank: part.step_ns for summary in ranks for part in summary.left_out if part.step == left.step
        }
        slow = [summary for summary in ranks if lengths_ns.get(summary.rank, 0) > most_ns]
        few = 2 * len(slow) < len(lengths_ns)
        where = f" on {ranks_text([summary.rank for summary in slow])} ({slow[0].file_name})" if few and slow else ""
        text = (
            f"step {left.step}, {first}, took {left.step_ns / 1e6:,.1f} ms{where}, the others at most "
            f"{most_ns / 1e6:,.1f} ms: it is left out"
        )
        notes.append(Note(kind="first_step", severity="info", text=text))
    return notes


def inferred_note(ranks: Sequence[RankSummary]) -> list[Note]:
    notes = []
    inferred = sorted({slug for summary in ranks if summary.strategies_inferred for slug in summary.strategies})
    if inferred:
        text = f"parallelism {', '.join(inferred)} inferred from the names of events"
        notes.append(Note(kind="inferred", severity="info", text=text))
    if any(summary.pipeline is not None and summary.pipeline.inferred for summary in ranks):
        text = "the pipeline's schedule, stages and ranks are inferred from the order of its actions"
        notes.append(Note(kind="inferred", severity="info", text=text))
    return notes


def other_run_notes(discovery: Discovery) -> list[Note]:
    """Return a note for each run that is there and was not chosen. What a single file is of is said of the file."""
    notes = []
    for other in discovery.others:
        files = [window.path.name for windows in other.ranks.values() for window in windows]
        file = files[0] if len(files) == 1 else None
        what = file or f"{len(other.ranks)} ranks"
        option = "--attempt" if other.run_id == discovery.chosen.run_id else "--run"
        text = f"run {other.run_id}, attempt {other.attempt} ({what}) is there too; choose it with {option}"
        notes.append(Note(kind="other_run", severity="info", file=file, text=text))
    return notes
