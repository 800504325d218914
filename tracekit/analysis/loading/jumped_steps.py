"""In which steps a rank's clock jumps: what the rank recorded as their length is wrong by the jump."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tracekit.analysis.clocks.jumping import RankJump, jumping_clocks
from tracekit.model.notes import Note
from tracekit.model.ranks import format_ranges
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary, StepParts

_SMALL_PART = 0.01  # of a step: a jump that is smaller changes no answer

__all__ = ["steps_between", "steps_with_jumps", "with_jumped_steps"]


def steps_with_jumps(run: Run) -> dict[int, frozenset[int]]:
    """Return, by rank, the steps in which its clock may have jumped by more than a small part of them.

    A jump lies between the two collectives or messages that show it.
    """
    summaries = {summary.rank: summary for summary in run.ranks}
    result = {}
    for rank, jumps in jumping_clocks(run.ranks, run.clocks).items():
        summary = summaries[rank]
        lengths_ns = {step.step: step.step_ns for step in _all_steps(summary)}
        steps: set[int] = set()
        for jump in jumps:
            around = _steps_around(summary, jump)
            steps |= {s for s in around if jump.at_least or abs(jump.by_ns) > _SMALL_PART * lengths_ns[s]}
        if steps:
            result[rank] = frozenset(steps)
    return result


def _steps_around(summary: RankSummary, jump: RankJump) -> set[int]:
    """Return the steps in which a jump may be.

    A clock that is set back shows times before and after the jump twice. If it is set back by more than a step, its
    steps are out of order, and the rank has no times.
    """
    begin_ns, end_ns = jump.between_ns
    around = _overlapping(summary, begin_ns, end_ns)
    shortest_ns = min((step.step_ns for step in _all_steps(summary) if step.step in around), default=0)
    twice_ns = -jump.by_ns if -jump.by_ns < shortest_ns else 0
    return around if twice_ns <= 0 else _overlapping(summary, begin_ns - twice_ns, end_ns + twice_ns)


def steps_between(summary: RankSummary, before: int, after: int) -> set[int]:
    """Return the steps in which a rank's clock may have jumped that did so between two collectives, given as rows."""
    collectives = summary.collectives
    begin_ns, end_ns = sorted((int(collectives.end_ns[before]), int(collectives.end_ns[after])))
    between = range(int(collectives.step[before]), int(collectives.step[after]) + 1)
    return _overlapping(summary, begin_ns, end_ns) | {s.step for s in _all_steps(summary) if s.step in between}


def _overlapping(summary: RankSummary, begin_ns: int, end_ns: int) -> set[int]:
    """Return the steps that overlap an interval of the rank's clock."""
    end_ns = max(end_ns, begin_ns + 1)
    return {s.step for s in _all_steps(summary) if s.start_ns < end_ns and begin_ns < s.start_ns + s.step_ns}


def _all_steps(summary: RankSummary) -> tuple[StepParts, ...]:
    return (*summary.left_out, *summary.steps)


def with_jumped_steps(
    notes: Sequence[Note], ranks: Sequence[RankSummary], steps: Mapping[int, Collection[int]]
) -> tuple[Note, ...]:
    """Return the notes of a run, where those about clocks that jump name the file and the steps that do not count."""
    files = {summary.rank: summary.file_name for summary in ranks}
    result = []
    for note in notes:
        if note.kind == "clock_step" and note.file is None and note.rank is not None and note.rank in steps:
            file = files.get(note.rank)
            where = f"{file}: " if file else ""
            which = f"{where}step {format_ranges(steps[note.rank])} may contain the jump and does not count"
            result.append(replace(note, file=file, text=f"{note.text}; {which}"))
        else:
            result.append(note)
    return tuple(result)
