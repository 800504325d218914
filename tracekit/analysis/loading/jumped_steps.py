"""In which steps a rank's clock jumps: what the rank recorded as their length is wrong by the jump."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tracekit.analysis.clocks.jumping import OwnJump, jumping_clocks
from tracekit.model.events import ABSENT
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
    for rank, clock in jumping_clocks(run.ranks, run.clocks).items():
        lengths_ns = _lengths_ns(summaries[rank])
        steps: set[int] = set()
        for jump in clock.jumps:
            around = _steps_around(summaries[rank], jump)
            steps |= {step for step in around if abs(jump.by_ns) > _SMALL_PART * lengths_ns[step]}
        if steps:
            result[rank] = frozenset(steps)
    return result


def _lengths_ns(summary: RankSummary) -> dict[int, int]:
    return {step.step: step.step_ns for step in _all_steps(summary)}


def _steps_around(summary: RankSummary, jump: OwnJump) -> set[int]:
    """Return the steps in which a jump may be.

    Of one that collectives show these are the steps between two neighbouring collectives of a group, whose middle is
    nearest to it.
    """
    if jump.at_error_ns is not None:
        return _overlapping(summary, jump.at_ns - jump.at_error_ns, jump.at_ns + jump.at_error_ns)
    collectives = summary.collectives
    nearest: tuple[int, int, int] | None = None
    for group in np.unique(collectives.group).tolist():
        rows = np.flatnonzero((collectives.group == group) & (collectives.step != ABSENT))
        if len(rows) < 2:
            continue
        ends_ns = collectives.end_ns[rows]
        off_ns = np.abs((ends_ns[:-1] + ends_ns[1:]) // 2 - jump.at_ns)
        place = int(np.argmin(off_ns))
        if nearest is None or off_ns[place] < nearest[0]:
            nearest = int(off_ns[place]), int(rows[place]), int(rows[place + 1])
    if nearest is None:
        return set()
    return steps_between(summary, *nearest[1:])


def steps_between(summary: RankSummary, before: int, after: int) -> set[int]:
    """Return the steps in which a rank's clock may have jumped that did so between two collectives, given as rows."""
    collectives = summary.collectives
    begin_ns, end_ns = sorted((int(collectives.end_ns[before]), int(collectives.end_ns[after])))
    between = range(int(collectives.step[before]), int(collectives.step[after]) + 1)
    return _overlapping(summary, begin_ns, end_ns) | {s.step for s in _all_steps(summary) if s.step in between}


def _overlapping(summary: RankSummary, begin_ns: int, end_ns: int) -> set[int]:
    """Return the steps that overlap an interval of the rank's clock."""
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
